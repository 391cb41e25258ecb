"""The witness: a second database that remembers the audit trail, so that no restore of the ledger gives budget back.

A restore of the ledger from a backup takes back the charges made since, though their answers have left. The ledger
cannot notice that by itself. The witness can: it is never restored together with the ledger, and holds a copy of the
audit trail. Before a charge is spent, all events up to it are copied there, and the copy begins with a comparison: the
ledger must contain the newest event that the witness has seen, with the same hash. A ledger that does not was restored
from an older state, or is a second copy that went its own way; of two such copies only one can ever have its next
event witnessed. It is refused until an admin acknowledges what was lost (:mod:`accounting.ledger.restoring`).

An older witness does no harm: it is brought up to date. Losing both to backups of the same moment cannot be noticed, so
the witness belongs on other storage, outside the ledger's backups.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from accounting.ledger import checkpoints
from accounting.ledger.dialects import reading
from accounting.ledger.errors import LedgerError
from accounting.ledger.events import Mark
from accounting.ledger.notes import Checkpoint
from accounting.ledger.tables import UtcDateTime, audit_checkpoints, audit_events
from accounting.ledger.trail import BATCH, START, AuditEvent, AuditTrail
from accounting.ledger.triggers import Guard, create_with

_LOCK = 0x64706963_6C77  # PostgreSQL's advisory lock of the witness's end

metadata = sa.MetaData()

witnessed = sa.Table(
    "witnessed_events",
    metadata,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False, comment="0: the row that stands before the first event"),
    sa.Column("at", UtcDateTime),
    sa.Column("kind", sa.String(40)),
    sa.Column("body", sa.Text),
    sa.Column("previous", sa.String(64)),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("lost_in", sa.Integer, comment="number of the acknowledged restore that lost it; NULL: it stands"),
    sa.Index(
        "uq_witnessed_events_sequence",
        "sequence",
        unique=True,
        sqlite_where=sa.text("lost_in IS NULL"),
        postgresql_where=sa.text("lost_in IS NULL"),
    ),
    comment="A copy of the ledger's audit trail. Keep it out of the ledger's backups, and never restore it with them.",
)


def _checkpoints(name: str) -> sa.Table:
    table = audit_checkpoints.to_metadata(metadata, name=name)
    table.primary_key.name = f"pk_{name}"  # else the original's, which PostgreSQL takes once
    return table


witnessed_checkpoints = _checkpoints("witnessed_checkpoints")
"""The checkpoints that the ledger's service signed, which a restored ledger may have forgotten."""
cosigned_checkpoints = _checkpoints("cosigned_checkpoints")
"""The checkpoints that the witness's own key cosigned (:mod:`accounting.ledger.cosigning`)."""

_GUARDS = (
    Guard("witnessed_no_delete", "witnessed_events", "DELETE", "what was witnessed cannot be deleted"),
    Guard(
        "witnessed_only_lost",
        "witnessed_events",
        "UPDATE",
        "what was witnessed cannot be changed",
        "OLD.lost_in IS NOT NULL OR NEW.lost_in IS NULL OR OLD.sequence <> NEW.sequence OR OLD.hash <> NEW.hash",
    ),
    *(
        Guard(f"{table.name}_no_{change.lower()}", table.name, change, "a signed checkpoint stays as it is")
        for table in (witnessed_checkpoints, cosigned_checkpoints)
        for change in ("UPDATE", "DELETE")
    ),
)
create_with(metadata, _GUARDS)

_STANDING = sa.select(witnessed).where(witnessed.c.lost_in.is_(None))
_HEAD = (
    _STANDING.with_only_columns(witnessed.c.sequence, witnessed.c.hash).order_by(witnessed.c.sequence.desc()).limit(1)
)
_ADD = sa.insert(witnessed)


class LedgerRestoredError(LedgerError):
    """The ledger lacks what was witnessed: it was restored from a backup, or is a second copy."""


class WitnessUnavailableError(LedgerError):
    """The witness's database does not answer, so a charge could be lost without a trace; nothing is charged."""

    retry_after_s = 5.0


class Witness:
    """The witnessed events, and the ledger's trail to compare them with. One object serves all threads of a process.

    Args:
        ledger: the ledger's database.
        database: the witness's own (``service.records.database.open_database``).

    Attributes:
        trouble: reason why the last comparison failed; None if it did not.
    """

    def __init__(self, ledger: sa.Engine, database: sa.Engine) -> None:
        self._trail = AuditTrail(ledger)
        self._database = database
        self._mutex = threading.Lock()
        self._started = 0
        self._ended = 0
        self.trouble: LedgerError | None = None

    def create(self) -> None:
        """Create the witness's table, and let an empty one begin with a ledger that is empty too.

        Raises:
            WitnessUnavailableError: the database does not answer.
            ValueError: it is a ledger's, which would be restored together with its witness.
        """
        with self._wrapped(), self._locked() as connection:
            if sa.inspect(connection).has_table(audit_events.name):  # under another name, or through a link
                raise ValueError("DPICL_WITNESS_URL: the witness needs its own database, on other storage")
            metadata.create_all(connection)
            if head(connection) is None and self._trail.end() == START:
                connection.execute(sa.insert(witnessed).values(vars(START)))

    def catch_up(self) -> None:
        """Compare, then copy every event that is not witnessed yet, certainly those committed before this call.

        Callers that come while a copy runs share the next one.

        Raises:
            LedgerRestoredError: the ledger lacks events that were witnessed, or holds others in their place.
            WitnessUnavailableError: one of the databases does not answer.
        """
        before = self._started
        with self._mutex:
            if self._ended <= before:
                self._started += 1
                try:
                    self._copy(self._newest)
                    self.trouble = None
                except LedgerError as error:
                    self.trouble = error
                self._ended = self._started
            trouble = self.trouble
        if trouble is not None:
            raise type(trouble)(str(trouble)) from trouble

    def replace(self, expected: Mark | None, common: Mark) -> None:
        """After a restore was acknowledged: mark the events after ``common`` as lost and copy the ledger's instead.

        Args:
            expected: the newest event witnessed when the loss was counted; None if there was none.
            common: the newest event that ledger and witness share.

        Raises:
            LedgerRestoredError: another process had more events witnessed in the meantime.
            WitnessUnavailableError: one of the databases does not answer.
        """

        def lose(connection: sa.Connection) -> Mark:
            if head(connection) != expected:
                raise LedgerRestoredError(
                    "the witness has recorded more in the meantime, so a service still runs on another copy of this "
                    "ledger: stop it, and acknowledge again"
                )
            if expected is None:
                connection.execute(sa.insert(witnessed).values(vars(START)))
            restores = connection.execute(sa.select(sa.func.max(witnessed.c.lost_in))).scalar() or 0
            after = sa.and_(witnessed.c.lost_in.is_(None), witnessed.c.sequence > common.sequence)
            connection.execute(sa.update(witnessed).where(after).values(lost_in=restores + 1))
            return common

        with self._mutex:
            self._copy(lose)
            self.trouble = None

    def head(self) -> Mark | None:
        """The newest event witnessed; None for a witness that never saw this ledger begin."""
        with self._wrapped(), reading(self._database) as connection:
            return head(connection)

    def events(self, after: int, limit: int = BATCH) -> list[AuditEvent]:
        """Events witnessed, in their order.

        Args:
            after: sequence number that only later events are returned for.
            limit: greatest number of events.
        """
        with self._wrapped(), reading(self._database) as connection:
            return standing(connection, after, limit)

    def newest_checkpoint(self, origin: str) -> Checkpoint | None:
        """The newest checkpoint of this origin that :meth:`keep_checkpoint` was given.

        Raises:
            WitnessUnavailableError: the witness does not answer.
        """
        with self._wrapped(), reading(self._database) as connection:
            return checkpoints.newest(connection, witnessed_checkpoints, origin)

    def keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a signed checkpoint.

        Raises:
            accounting.ledger.checkpoints.CheckpointError: another of the same size is stored.
            WitnessUnavailableError: the witness does not answer.
        """
        with self._wrapped(), self._locked() as connection:
            checkpoints.keep(connection, witnessed_checkpoints, checkpoint)

    def _newest(self, connection: sa.Connection) -> Mark:
        """The newest event witnessed."""
        newest = head(connection)
        if newest is None:
            raise LedgerRestoredError(
                f"this ledger has {self._trail.end().sequence} events and its witness none: the witness is new or was "
                f"lost, or the ledger is a copy of another. {_HOW_TO}"
            )
        return newest

    def _copy(self, begin: Callable[[sa.Connection], Mark]) -> None:
        with self._wrapped(), self._locked() as connection:
            last = begin(connection)
            while True:
                new = self._trail.following(last)
                if new is None:
                    raise LedgerRestoredError(
                        f"the ledger lacks events that were witnessed: it has {self._trail.end().sequence} events, "
                        f"and event {last.sequence} was witnessed with the hash {last.hash[:12]}. It was restored from "
                        f"a backup, or is a second copy. {_HOW_TO}"
                    )
                for event in new:
                    if not event.continues(last):
                        raise LedgerRestoredError(
                            f"event {event.sequence} of the audit trail does not continue the one before it: the trail "
                            "was changed. `dpicl audit verify` names the place; restore the ledger from a backup that "
                            "is whole"
                        )
                    last = event.mark
                if new:
                    connection.execute(_ADD, [vars(event) for event in new])
                if len(new) < BATCH:
                    return

    @contextmanager
    def _locked(self) -> Iterator[sa.Connection]:
        """A transaction that has the witness's end to itself."""
        with self._database.begin() as connection:
            if connection.dialect.name == "postgresql":  # SQLite's transaction has locked the database
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield connection

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise WitnessUnavailableError(
                "the witness could not be brought up to date (DPICL_WITNESS_URL), so nothing is charged: see whether "
                f"its database runs and has space ({type(error).__name__})"
            ) from error


_HOW_TO = "Nothing is answered until an admin acknowledges what was lost: see `dpicl ledger status`"


def head(connection: sa.Connection) -> Mark | None:
    """The newest event witnessed."""
    row = connection.execute(_HEAD).first()
    return Mark(row.sequence, row.hash) if row else None


def standing(connection: sa.Connection, after: int, limit: int) -> list[AuditEvent]:
    """Events witnessed that no acknowledged restore lost, in their order; arguments as of :meth:`Witness.events`."""
    query = _STANDING.where(witnessed.c.sequence > after).order_by(witnessed.c.sequence).limit(limit)
    rows = connection.execute(query).mappings().all()
    return [AuditEvent(**{name: row[name] for name in AuditEvent.__dataclass_fields__}) for row in rows]
