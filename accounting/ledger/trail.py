"""The audit trail: what was granted, spent, released and refused, as one chain of hashes.

Every event is appended in the transaction of what it records, so the two stand or fall together, and carries the hash
of the event before it: a keeper of an event's hash can tell later whether anything up to it was changed, removed or
reordered (:mod:`accounting.replay.trail`). Events hold public quantities only.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from accounting.ledger.dialects import reading
from accounting.ledger.events import LedgerRestored, Particulars, read
from accounting.ledger.tables import audit_events

FIRST = "0" * 64
"""What stands for the hash before the first event."""

_LOCK = 0x64706963_6C61  # PostgreSQL's advisory lock of the chain's end
BATCH = 1000
"""How many events are read at once."""


@dataclass(frozen=True)
class AuditEvent:
    """One event.

    Attributes:
        sequence: 1, 2, 3, ... without a gap.
        at: when, in UTC.
        kind: what happened, such as ``charge`` (:data:`accounting.ledger.events.KINDS`).
        body: its particulars, as canonical JSON.
        previous: hash of the event before, in hexadecimal.
        hash: SHA-256 over this event and ``previous``, in hexadecimal.
    """

    sequence: int
    at: datetime
    kind: str
    body: str
    previous: str
    hash: str

    @property
    def particulars(self) -> Particulars | None:
        """The body, read (:func:`accounting.ledger.events.read`); None for a kind that only a newer version knows."""
        return read(self.kind, self.body)

    def continues(self, sequence: int, previous: str) -> bool:
        """Whether it is as it was written, and follows the event with this sequence number and hash."""
        written = digest(self.sequence, timestamp(self.at), self.kind, self.body, self.previous)
        return (self.sequence, self.previous, self.hash) == (sequence + 1, previous, written)

    def line(self) -> str:
        """The event as a line of an export."""
        fields = {"sequence": self.sequence, "at": timestamp(self.at), "kind": self.kind, "body": json.loads(self.body)}
        return canonical({**fields, "previous": self.previous, "hash": self.hash})


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def timestamp(at: datetime) -> str:
    """An instant to the microsecond, in UTC (ISO 8601)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def digest(sequence: int, at: str, kind: str, body: str, previous: str) -> str:
    """An event's hash. Its parts are separated by a character that none of them contains.

    Args:
        sequence: see :class:`AuditEvent`.
        at: from :func:`timestamp`.
        kind: see :class:`AuditEvent`.
        body: from :func:`canonical`.
        previous: see :class:`AuditEvent`.
    """
    return hashlib.sha256("\n".join((previous, str(sequence), at, kind, body)).encode()).hexdigest()


def append(connection: sa.Connection, at: datetime, *happened: Particulars) -> None:
    """Add events within the caller's transaction, as the last that it does.

    The chain's end stays locked until the transaction ends, and a transaction that took another lock after it could
    wait for one that waits for the end.

    Args:
        connection: in a transaction that writes.
        at: when they happened.
        happened: in this order.
    """
    lock_end(connection)
    end = connection.execute(_END).one_or_none()
    sequence, previous = (end.sequence, end.hash) if end else (0, FIRST)
    new = []
    for particulars in happened:
        sequence += 1
        kind, body = particulars.kind, canonical(particulars.model_dump())
        event = AuditEvent(sequence, at, kind, body, previous, digest(sequence, timestamp(at), kind, body, previous))
        new.append(vars(event))
        previous = event.hash
    if new:
        connection.execute(_ADD, new)


def lock_end(connection: sa.Connection) -> None:
    """Keep all others from appending until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite's transaction has locked the database
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def restores(connection: sa.Connection) -> list[LedgerRestored]:
    """Every restore that was acknowledged, oldest first."""
    of = sa.select(audit_events.c.body).where(audit_events.c.kind == LedgerRestored.kind)
    bodies = connection.scalars(of.order_by(audit_events.c.sequence))
    return [LedgerRestored.model_validate_json(body) for body in bodies]


_ACTORS = ("key", "by", "signed_by")


def _says(name: str, value: str, *, begins: bool = False) -> sa.ColumnElement[bool]:
    """Whether a body has this field. Bodies are canonical and quote every quote, so it can be found in their text."""
    written = f"{canonical(name)}:{canonical(value)}"
    return audit_events.c.body.contains(written[:-1] if begins else written, autoescape=True)


_NEWEST_FIRST = sa.select(audit_events).order_by(audit_events.c.sequence.desc())
_END = sa.select(audit_events.c.sequence, audit_events.c.hash).order_by(audit_events.c.sequence.desc()).limit(1)
_ADD = sa.insert(audit_events)
_FOLLOWING = (
    sa.select(*(audit_events.c[name] for name in AuditEvent.__dataclass_fields__))
    .where(audit_events.c.sequence > sa.bindparam("after"))
    .order_by(audit_events.c.sequence)
    .limit(BATCH)
)


class AuditTrail:
    """The trail in the database, to be read.

    Args:
        database: see :class:`accounting.ledger.budgets.Budgets`.
    """

    def __init__(self, database: sa.Engine) -> None:
        self._database = database

    def head(self) -> AuditEvent | None:
        """The newest event, which vouches for all before it; None while nothing has happened."""
        with reading(self._database) as connection:
            row = connection.execute(_NEWEST_FIRST.limit(1)).first()
        return AuditEvent(**row._mapping) if row else None

    def events(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        knowledge_base: str | None = None,
        by: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = False,
    ) -> list[AuditEvent]:
        """Some events.

        Args:
            after: only those of a higher sequence number.
            before: only those of a lower one.
            limit: at most so many.
            kinds: only these.
            knowledge_base: only those that name it or one of its tasks.
            by: only those of one of these keys, people or names of the command line: the key itself, who asked, did it
                or signed.
            since: only those at this time or later.
            until: only those before this time.
            newest_first: their order, and which end the limit keeps.
        """
        query = _NEWEST_FIRST if newest_first else sa.select(audit_events).order_by(audit_events.c.sequence)
        query = query.where(audit_events.c.sequence > after)
        if before is not None:
            query = query.where(audit_events.c.sequence < before)
        if kinds is not None:
            query = query.where(audit_events.c.kind.in_(kinds))
        if knowledge_base is not None:
            query = query.where(
                _says("knowledge_base", knowledge_base) | _says("task", f"{knowledge_base}.", begins=True)
            )
        if by is not None:
            query = query.where(sa.or_(sa.false(), *(_says(as_, one) for one in by for as_ in _ACTORS)))
        if since is not None:
            query = query.where(audit_events.c.at >= since)
        if until is not None:
            query = query.where(audit_events.c.at < until)
        with reading(self._database) as connection:
            return [AuditEvent(**row._mapping) for row in connection.execute(query.limit(limit))]

    def following(self, sequence: int) -> list[AuditEvent]:
        """The next events after one, a thousand at most, in their order; none: the trail ends there."""
        with reading(self._database) as connection:
            return [AuditEvent(*row) for row in connection.execute(_FOLLOWING, {"after": sequence})]

    def export(self) -> Iterator[str]:
        """Every event as a line of JSON, and a last line that says where the trail ended.

        Reads in batches, each in a transaction of its own: events are only ever added at the end.
        """
        last = 0, FIRST
        while batch := self.following(last[0]):
            for event in batch:
                yield event.line() + "\n"
            last = batch[-1].sequence, batch[-1].hash
        yield canonical({"end": {"sequence": last[0], "hash": last[1]}}) + "\n"
