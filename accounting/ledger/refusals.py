"""Queries refused without a charge: each is counted, and the audit trail has at most one event a minute for each kind.

A program that goes on asking after its budget is spent would fill the trail otherwise. A kind is a task, a key and a
reason; refusals between two events are in the later event's ``times``.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.dialects import insert
from accounting.ledger.events import QueryRefused
from accounting.ledger.tables import refusals

TOLD_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Refusal:
    """The number of times that a task refused a key for a reason, and the last time."""

    task: str
    key_id: str
    reason: str
    times: int
    last_at: datetime


def count_refusal(connection: sa.Connection, now: datetime, task: str, key_id: str, reason: str) -> None:
    """Count one refusal, in the caller's transaction, and append an event if the last one is a minute old."""
    which = {"task": task, "key_id": key_id, "reason": reason}
    new = insert(connection.dialect.name, refusals).values(
        **which, times=1, last_at=now, audited_times=0, audited_at=now - TOLD_EVERY
    )
    row = connection.execute(
        new.on_conflict_do_update(
            index_elements=[refusals.c[name] for name in which], set_={"times": refusals.c.times + 1, "last_at": now}
        ).returning(refusals.c.times, refusals.c.audited_times, refusals.c.audited_at)
    ).one()
    if now - row.audited_at < TOLD_EVERY:
        return
    chosen = sa.and_(*(refusals.c[name] == value for name, value in which.items()))
    connection.execute(sa.update(refusals).where(chosen).values(audited_times=row.times, audited_at=now))
    times = row.times - row.audited_times
    trail.append(connection, now, QueryRefused(task=task, key=key_id, reason=reason, times=times))


def refusals_of(connection: sa.Connection, knowledge_base: str | None) -> list[Refusal]:
    """Refusals of one knowledge base or of all, by task and reason."""
    query = sa.select(*(refusals.c[name] for name in ("task", "key_id", "reason", "times", "last_at")))
    if knowledge_base is not None:
        query = query.where(refusals.c.task.startswith(f"{knowledge_base}.", autoescape=True))
    return [Refusal(**row._mapping) for row in connection.execute(query.order_by(refusals.c.task, refusals.c.reason))]
