"""A key's own share: how many answers it may be charged, below what the budgets allow everybody together.

The count is kept beside the charges, in the same transactions, and so cannot be overdrawn by racing queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from accounting.budgets import LedgerError
from accounting.tables import quotas


class QuotaExhaustedError(LedgerError):
    """The key has been charged as many answers as it may."""

    def __init__(self, quota: int) -> None:
        self.quota = quota
        super().__init__(
            f"this key has used its quota of {quota} answers; repeated queries are still answered, and an admin can "
            "raise the quota"
        )


@dataclass(frozen=True)
class KeyQuota:
    """How many answers a key may be charged in all (None: no limit of its own), and how many it has been."""

    answers: int | None
    charged: int

    @property
    def left(self) -> int | None:
        """What it may still be charged, as far as its own quota goes."""
        return None if self.answers is None else max(0, self.answers - self.charged)


def set_quota(connection: sa.Connection, key_id: str, answers: int | None) -> None:
    """See :meth:`accounting.ledger.Ledger.set_quota`."""
    if answers is not None and answers < 0:
        raise ValueError(f"quota: {answers} is below 0")
    connection.execute(_upsert(connection, key_id, 0, answers, {"answers": answers}))


def count_charge(connection: sa.Connection, key_id: str, by: int = 1) -> None:
    """Count one charge of a key, or with ``by = -1`` a void.

    Raises:
        QuotaExhaustedError: it may not be charged any more.
    """
    counted = connection.execute(
        _upsert(connection, key_id, max(by, 0), None, {"charged": quotas.c.charged + by}).returning(
            quotas.c.answers, quotas.c.charged
        )
    ).one()
    if by > 0 and counted.answers is not None and counted.charged > counted.answers:
        raise QuotaExhaustedError(counted.answers)  # the caller's transaction takes the count back


def quota_of(connection: sa.Connection, key_id: str) -> KeyQuota:
    """See :meth:`accounting.ledger.Ledger.quota`."""
    row = connection.execute(sa.select(quotas).where(quotas.c.key_id == key_id)).first()
    return KeyQuota(row.answers, row.charged) if row else KeyQuota(None, 0)


def _upsert(
    connection: sa.Connection, key_id: str, charged: int, answers: int | None, update: dict[str, object]
) -> sqlite.Insert | postgresql.Insert:
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    new = insert(quotas).values(key_id=key_id, charged=charged, answers=answers)
    return new.on_conflict_do_update(index_elements=[quotas.c.key_id], set_=update)
