"""A key's own share: how many answers it may be charged, below what the budgets allow everybody together.

The count is kept beside the charges, in the same transactions, and so cannot be overdrawn by racing queries.
"""

from __future__ import annotations

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


def set_quota(connection: sa.Connection, key_id: str, answers: int | None) -> None:
    """Limit how many answers a key may be charged in all, within the caller's transaction.

    Args:
        connection: in a transaction.
        key_id: whose.
        answers: 0 or more; None: no limit but the budgets'.

    Raises:
        ValueError: below 0.
    """
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


def _upsert(
    connection: sa.Connection, key_id: str, charged: int, answers: int | None, update: dict[str, object]
) -> sqlite.Insert | postgresql.Insert:
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    new = insert(quotas).values(key_id=key_id, charged=charged, answers=answers)
    return new.on_conflict_do_update(index_elements=[quotas.c.key_id], set_=update)
