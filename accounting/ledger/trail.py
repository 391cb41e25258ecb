"""The audit trail: the events of granting, spending, releasing and refusing, as one chain of hashes.

Every event is appended in the transaction of what it records, so the two stand or fall together, and carries the hash
of the event before it: with an event's hash noted, an auditor can check later whether anything up to it was changed,
removed or reordered (:mod:`accounting.replay.trail`). Events hold public quantities only.
"""

import hashlib
import itertools
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from accounting.ledger.dialects import reading
from accounting.ledger.events import ExemplarsIngested, LedgerRestored, Mark, Particulars, read
from accounting.ledger.notes import Checkpoint
from accounting.ledger.tables import audit_events

FIRST = "0" * 64
"""The value in place of a hash before the first event."""
START = Mark(0, FIRST)
"""The place where every trail begins."""

_LOCK = 0x64706963_6C61  # PostgreSQL's advisory lock of the chain's end
BATCH = 1000
"""Number of events that are read at once."""

Beside = Callable[[sa.Connection, tuple[Particulars, ...]], None]
"""A function that writes something in the transaction of events, before they are appended."""
beside: ContextVar[Beside | None] = ContextVar("beside", default=None)
"""The function that writes beside events, in each transaction that appends some on the caller's behalf; None: none."""
T = TypeVar("T")


@dataclass(frozen=True)
class AuditEvent:
    """One event.

    Attributes:
        sequence: 1, 2, 3, ... without a gap.
        at: the time it happened, in UTC.
        kind: name of the kind, such as ``charge`` (:data:`accounting.ledger.events.KINDS`).
        body: the event's particulars and a random number, as canonical JSON.
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

    @property
    def mark(self) -> Mark:
        """The event's place in the trail."""
        return Mark(self.sequence, self.hash)

    def continues(self, last: Mark) -> bool:
        """Whether the event is unchanged, and follows the event at this place."""
        written = digest(self.sequence, timestamp(self.at), self.kind, self.body, self.previous)
        return (self.sequence, self.previous, self.hash) == (last.sequence + 1, last.hash, written)

    def line(self) -> str:
        """The event as a line of an export."""
        fields = {"sequence": self.sequence, "at": timestamp(self.at), "kind": self.kind, "body": json.loads(self.body)}
        return canonical({**fields, "previous": self.previous, "hash": self.hash})


@dataclass(frozen=True)
class Tally:
    """The number of events of a kind, and the times of the first and the last, in UTC."""

    number: int
    first: datetime
    last: datetime


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def timestamp(at: datetime) -> str:
    """An instant to the microsecond, in UTC (ISO 8601)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def digest(sequence: int, at: str, kind: str, body: str, previous: str) -> str:
    """An event's hash. Its parts are separated by a character that none of them contains.

    Args:
        sequence: number of the event: 1, 2, 3, ...
        at: the time it happened, from :func:`timestamp`.
        kind: name of the kind.
        body: the particulars, from :func:`canonical`.
        previous: hash of the event before, in hexadecimal.
    """
    return hashlib.sha256("\n".join((previous, str(sequence), at, kind, body)).encode()).hexdigest()


def append(connection: sa.Connection, at: datetime, *happened: Particulars) -> None:
    """Add events within the caller's transaction, as the last that it does.

    The chain's end stays locked until the transaction ends, and a transaction that took another lock after it could
    wait for one that waits for the end.

    Args:
        connection: a connection in a transaction that writes.
        at: the time they happened.
        happened: particulars of the events, in their order.
    """
    if happened and (also := beside.get()) is not None:
        also(connection, happened)
    lock_end(connection)
    last = newest(connection)
    new = []
    for sequence, particulars in enumerate(happened, last.sequence + 1):
        fields = particulars.model_dump()
        # Receipts have hashes of other events, which must not be found by trying all that they may be of.
        kind, body = particulars.kind, canonical({**fields, "nonce": secrets.token_hex(16)})
        written = digest(sequence, timestamp(at), kind, body, last.hash)
        new.append(vars(AuditEvent(sequence, at, kind, body, last.hash, written)) | found_by(at, fields))
        last = Mark(sequence, written)
    if new:
        connection.execute(_ADD, new)


def found_by(at: datetime, body: Mapping[str, Any]) -> dict[str, Any]:
    """The columns by which an event's row is found: they repeat parts of its time and its body."""
    return {
        "key_id": body.get("key"),
        "actor": body.get("by", body.get("signed_by")),
        "knowledge_base": body.get("knowledge_base", str(body["task"]).partition(".")[0] if "task" in body else None),
        "day": at.astimezone(UTC).date(),
    }


def carried(work: Callable[[], T]) -> Callable[[], T]:
    """``work`` for another thread, which has no context of its own: called with the caller's :data:`beside`."""
    here = beside.get()

    def called() -> T:
        before = beside.set(here)
        try:
            return work()
        finally:
            beside.reset(before)

    return called


def lock_end(connection: sa.Connection) -> None:
    """Keep all others from appending until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite's transaction has locked the database
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def newest(connection: sa.Connection) -> Mark:
    """The place of the newest event."""
    end = connection.execute(_END).one_or_none()
    return Mark(*end) if end else START


def restores(connection: sa.Connection) -> list[LedgerRestored]:
    """Every restore that was acknowledged, oldest first."""
    of = sa.select(audit_events.c.body).where(audit_events.c.kind == LedgerRestored.kind)
    bodies = connection.scalars(of.order_by(audit_events.c.sequence))
    return [LedgerRestored.model_validate_json(body) for body in bodies]


def uploads(connection: sa.Connection, knowledge_base: str) -> int:
    """The number of uploads of exemplars that were begun to the knowledge base of this name."""
    begun = sa.and_(audit_events.c.kind == ExemplarsIngested.kind, audit_events.c.knowledge_base == knowledge_base)
    return int(connection.execute(sa.select(sa.func.count()).where(begun)).scalar_one())


_END = sa.select(audit_events.c.sequence, audit_events.c.hash).order_by(audit_events.c.sequence.desc()).limit(1)
_ADD = sa.insert(audit_events)
_EVENTS = sa.select(*(audit_events.c[name] for name in AuditEvent.__dataclass_fields__))
_FOLLOWING = (
    _EVENTS.where(audit_events.c.sequence > sa.bindparam("after"))
    .order_by(audit_events.c.sequence)
    .limit(sa.bindparam("limit", type_=sa.Integer))
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
        return next(iter(self.events(newest_first=True, limit=1)), None)

    def end(self) -> Mark:
        """The place of the newest event."""
        with reading(self._database) as connection:
            return newest(connection)

    def events(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        knowledge_base: str | None = None,
        by: Collection[str] | None = None,
        day: date | None = None,
        newest_first: bool = False,
    ) -> list[AuditEvent]:
        """Some events.

        Args:
            after: sequence number that only later events are returned for.
            before: sequence number that only earlier events are returned for.
            limit: greatest number of events.
            kinds: names of the only kinds to return; None: all.
            knowledge_base: name that events must have, or one of their tasks; None: any.
            by: keys, people or names of the command line: only events about one of these keys, or that one of these
                actors asked for, did or signed.
            day: day, in UTC, that events must be of; None: any.
            newest_first: whether the newest event comes first, and the limit keeps the newest.
        """
        order = audit_events.c.sequence.desc() if newest_first else audit_events.c.sequence
        query = _EVENTS.where(audit_events.c.sequence > after).order_by(order).limit(limit)
        if before is not None:
            query = query.where(audit_events.c.sequence < before)
        if knowledge_base is not None:
            query = query.where(audit_events.c.knowledge_base == knowledge_base)
        if day is not None:
            query = query.where(audit_events.c.day == day)
        of_kinds = [()] if kinds is None else [(audit_events.c.kind == kind,) for kind in kinds]
        of_actors = (
            [()]
            if by is None
            else [(column == one,) for one in by for column in (audit_events.c.key_id, audit_events.c.actor)]
        )
        found: dict[int, AuditEvent] = {}
        with reading(self._database) as connection:
            # Each of these reads no more than a page, from an index, and so does their union.
            for conditions in itertools.product(of_kinds, of_actors):
                rows = connection.execute(query.where(*itertools.chain(*conditions)))
                found |= {row.sequence: AuditEvent(**row._mapping) for row in rows}
        return [found[sequence] for sequence in sorted(found, reverse=newest_first)[:limit]]

    def tally(self, knowledge_base: str, kinds: Collection[str]) -> dict[str, Tally]:
        """Tallies of the events of some kinds that name a knowledge base, by kind. Kinds without any are left out."""
        columns = audit_events.c
        counted = (
            sa.select(columns.kind, sa.func.count(), sa.func.min(columns.at), sa.func.max(columns.at))
            .where(columns.knowledge_base == knowledge_base, columns.kind.in_(kinds))
            .group_by(columns.kind)
        )
        with reading(self._database) as connection:
            return {kind: Tally(*counts) for kind, *counts in connection.execute(counted)}

    def following(self, last: Mark, limit: int = BATCH) -> list[AuditEvent] | None:
        """The next events after a place, in their order; None if the trail has no event, or another one, at that place.

        Args:
            last: place of the event to go on from.
            limit: greatest number of events.
        """
        again = min(last.sequence, 1)  # it comes again with those after it, so that one query sees both
        which = {"after": last.sequence - again, "limit": limit + again}
        with reading(self._database) as connection:
            events = [AuditEvent(*row) for row in connection.execute(_FOLLOWING, which)]
        return None if again and (not events or events[0].mark != last) else events[again:]

    def export(self, checkpoint: Checkpoint | None = None) -> Iterator[str]:
        """Every event as a line of JSON, and a last line with the place where the trail ended.

        It reads in batches, each in a transaction of its own: events are only ever added at the end.

        Args:
            checkpoint: a checkpoint of the trail: the export ends where it does, and the last line holds it.
        """
        last = START
        for event in every(self.events, before=None if checkpoint is None else checkpoint.size + 1):
            yield event.line() + "\n"
            last = event.mark
        signed = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
        yield canonical({"end": vars(last), **signed}) + "\n"


def every(read: Callable[..., list[AuditEvent]], after: int = 0, before: int | None = None) -> Iterator[AuditEvent]:
    """All events between two sequence numbers, in batches: by :meth:`AuditTrail.events`, or the witness's."""
    bounded = {} if before is None else {"before": before}
    while batch := read(after=after, limit=BATCH, **bounded):
        yield from batch
        after = batch[-1].sequence
