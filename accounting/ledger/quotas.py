"""A key's own share: the number of answers it may be charged, within the budgets that all keys share.

The count is kept beside the charges, in the same transactions, and so cannot be overdrawn by racing queries.
"""

from collections.abc import Collection
from functools import cache

import sqlalchemy as sa

from accounting.ledger.dialects import insert
from accounting.ledger.entries import parts
from accounting.ledger.errors import LedgerError
from accounting.ledger.tables import quotas

NO_KEY = ""
"""The value in place of a key's id where none is charged: a one-time release is charged to its plan."""


class QuotaExhaustedError(LedgerError):
    """The key has been charged as many answers as it may."""

    def __init__(self, quota: int) -> None:
        super().__init__(
            f"this key has used its quota of {quota} answers; repeated queries are still answered, and an admin can "
            "raise the quota"
        )


def set_quota(connection: sa.Connection, key_id: str, answers: int | None) -> None:
    """Limit the number of answers that a key may be charged in all, within the caller's transaction.

    Args:
        connection: a connection in a transaction.
        key_id: id of the key.
        answers: number of answers, 0 or more; None: no limit but the budgets'.

    Raises:
        ValueError: the number is below 0.
    """
    if answers is not None and answers < 0:
        raise ValueError(f"quota: {answers} is below 0")
    new = insert(connection.dialect.name, quotas).values(key_id=key_id, charged=0, answers=answers)
    connection.execute(new.on_conflict_do_update(index_elements=[quotas.c.key_id], set_={"answers": answers}))


def count_charge(connection: sa.Connection, key_id: str, by: int = 1) -> None:
    """Count one charge of a key, or with ``by = -1`` a void; nothing if no key is charged (:data:`NO_KEY`).

    Raises:
        QuotaExhaustedError: the key has used up its quota.
    """
    if key_id == NO_KEY:
        return
    counting = _counting(connection.dialect.name)
    counted = connection.execute(counting, {"key_id": key_id, "charged": max(by, 0), "by": by}).one()
    if by > 0 and counted.answers is not None and counted.charged > counted.answers:
        raise QuotaExhaustedError(counted.answers)  # the caller's transaction takes the count back


@cache
def _counting(dialect: str) -> sa.Executable:
    new = insert(dialect, quotas).values(key_id=sa.bindparam("key_id"), charged=sa.bindparam("charged"), answers=None)
    changed = {"charged": quotas.c.charged + sa.bindparam("by", type_=sa.Integer)}
    return new.on_conflict_do_update(index_elements=[quotas.c.key_id], set_=changed).returning(
        quotas.c.answers, quotas.c.charged
    )


def in_scope(scope: Collection[str], task: str) -> bool:
    """Whether a key with this scope may ask a task.

    Args:
        scope: knowledge bases, like ``support``, and tasks, like ``billing.queue``; empty: all.
        task: ``knowledge_base.task``, with or without ``#topic`` and ``@version``.
    """
    name = parts(task.partition("@")[0])[0]
    return not scope or name in scope or name.partition(".")[0] in scope
