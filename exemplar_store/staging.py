"""An upload's way into the database: written in batches that no reader sees, then published at once.

Its exemplars are stored in the upload with the next number, those that it replaces are replaced in it
(:mod:`exemplar_store.tables`), and its new units lie at positions that are not given out yet. So no reader sees
anything of it until one small transaction sets the knowledge base's ``uploads`` and ``next_position``. Each batch is a
transaction of its own, between which others get a chance to write: SQLite has one writer at a time.

A knowledge base takes one such upload at a time, whose process holds a token. If it gives no sign of life for
:data:`LEASE_S`, the next upload, or the process that opens the database next, clears what it left.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from exemplar_store.dialects import NUMBERS, among, bound_write_ahead_log, overwrite_deleted, reading
from exemplar_store.encryption import TAG_BYTES
from exemplar_store.errors import UnknownKnowledgeBaseError, UploadLostError
from exemplar_store.knowledge_base import KnowledgeBaseRow
from exemplar_store.tables import exemplars, forgotten_meanwhile, knowledge_bases, staged_uploads, units

LEASE_S = 90
"""Longer than a batch waits for SQLite's lock, which is a minute."""
BATCH = 1000
"""Exemplars or units that one transaction writes, about."""
_TURN_S = 0.05
_GAP_S = 0.1
"""As long as SQLite's other writers sleep between two looks at the lock."""
_LOOK_EVERY_S = 0.2


@dataclass
class Staging:
    """The right to write a knowledge base's next upload.

    Attributes:
        database: database that holds the knowledge base.
        kb_id: id of the knowledge base.
        token: token of this process.
    """

    database: sa.Engine
    kb_id: int
    token: bytes = field(default_factory=lambda: os.urandom(TAG_BYTES), repr=False)
    _free_since: float = field(default=0.0, repr=False)
    _held_s: float = field(default=0.0, repr=False)

    @contextmanager
    def batch(self) -> Iterator[sa.Connection]:
        """A transaction of this upload. On SQLite others have had time to take the lock before it begins.

        Raises:
            UploadLostError: another process took the upload for dead.
        """
        if self.database.dialect.name == "sqlite" and self._held_s > _TURN_S:
            time.sleep(max(0.0, self._free_since + _GAP_S - time.monotonic()))
            self._held_s = 0.0
        with self.database.begin() as connection:
            started = time.monotonic()
            self.renew(connection)
            yield connection
        bound_write_ahead_log(self.database)
        self._free_since = time.monotonic()
        self._held_s += self._free_since - started

    def renew(self, connection: sa.Connection) -> None:
        """Give a sign of life.

        Raises:
            UploadLostError: another process took the upload for dead.
        """
        alive = sa.update(staged_uploads).where(self._mine).values(alive_at=datetime.now(UTC))
        if not connection.execute(alive).rowcount:
            raise UploadLostError

    def forgotten(self, connection: sa.Connection) -> set[int]:
        """Positions of the units that were forgotten since this upload began."""
        here = forgotten_meanwhile.c.kb_id == self.kb_id
        return set(connection.scalars(sa.select(forgotten_meanwhile.c.position).where(here)))

    def end(self, connection: sa.Connection) -> None:
        """Let the next upload begin, in a transaction after which nothing is left to clear."""
        connection.execute(sa.delete(forgotten_meanwhile).where(forgotten_meanwhile.c.kb_id == self.kb_id))
        connection.execute(sa.delete(staged_uploads).where(self._mine))

    def clear(self) -> None:
        """Delete, batch by batch, what an unpublished upload stored, and what a published one replaced; then end.

        Raises:
            UploadLostError: another process took the upload for dead.
        """
        last = -1
        while positions := self._left(last):
            with self.batch() as connection:
                overwrite_deleted(connection)
                _discard_exemplars(connection, _row(connection, self.kb_id), positions)
            last = positions[-1]
        while positions := self._unpublished():
            with self.batch() as connection:
                _discard_units(connection, _row(connection, self.kb_id), positions)
        with self.batch() as connection:
            self.end(connection)

    def _left(self, last: int) -> list[int]:
        """Positions after ``last`` of some units with exemplars to delete, about a batch of them."""
        with reading(self.database) as connection:
            row = _row(connection, self.kb_id)
            hidden = sa.or_(exemplars.c.stored_in > row.uploads, exemplars.c.replaced_in != 0)
            counted = (
                sa.select(exemplars.c.position, sa.func.count())
                .where(exemplars.c.kb_id == self.kb_id, exemplars.c.position > last, hidden)
                .group_by(exemplars.c.position)
                .order_by(exemplars.c.position)
                .limit(BATCH)
            )
            found: list[int] = []
            rows = 0
            for position, count in connection.execute(counted).all():
                if found and rows + count > BATCH:
                    break
                found.append(position)
                rows += count
        return found

    def _unpublished(self) -> list[int]:
        with reading(self.database) as connection:
            row = _row(connection, self.kb_id)
            theirs = units.c.kb_id == self.kb_id, units.c.position >= row.next_position
            some = sa.select(units.c.position).where(*theirs).order_by(units.c.position).limit(BATCH)
            return list(connection.scalars(some))

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(staged_uploads.c.kb_id == self.kb_id, staged_uploads.c.token == self.token)


def begin(database: sa.Engine, kb_id: int) -> Staging:
    """Begin the next upload to a knowledge base, once the one before has ended, or is taken for dead and cleared.

    Raises:
        UnknownKnowledgeBaseError: it was deleted.
    """
    while True:
        clear_abandoned(database, kb_id)
        mine = Staging(database, kb_id)
        with database.begin() as connection:
            this = sa.select(knowledge_bases.c.id).where(knowledge_bases.c.id == kb_id)
            if connection.execute(this.with_for_update()).one_or_none() is None:
                raise UnknownKnowledgeBaseError("The knowledge base was deleted meanwhile. Nothing was stored.")
            here = sa.exists().where(staged_uploads.c.kb_id == kb_id)
            if not connection.scalar(sa.select(here)):
                new = {"kb_id": kb_id, "token": mine.token, "alive_at": datetime.now(UTC)}
                connection.execute(sa.insert(staged_uploads).values(new))
                return mine
        while _is_alive(database, kb_id):
            time.sleep(_LOOK_EVERY_S)


def clear_abandoned(database: sa.Engine, kb_id: int | None = None) -> None:
    """Clear what uploads left whose processes died, of one knowledge base or of all."""
    of = sa.true() if kb_id is None else staged_uploads.c.kb_id == kb_id
    with reading(database) as connection:
        dead = connection.execute(sa.select(staged_uploads).where(of, _is_dead())).all()
    for upload in dead:
        mine = Staging(database, upload.kb_id)
        with database.begin() as connection:
            this = staged_uploads.c.kb_id == upload.kb_id, staged_uploads.c.token == bytes(upload.token)
            taken = sa.update(staged_uploads).where(*this).values(token=mine.token, alive_at=datetime.now(UTC))
            if not connection.execute(taken).rowcount:
                continue
        mine.clear()


def discard(connection: sa.Connection, row: KnowledgeBaseRow) -> None:
    """Delete all that is left of a staged upload, in one transaction that has locked the knowledge base.

    For when no other process works on the database.
    """
    _discard_exemplars(connection, row, None)
    _discard_units(connection, row, None)
    for table in (forgotten_meanwhile, staged_uploads):
        connection.execute(sa.delete(table).where(table.c.kb_id == row.id))


def note_forgotten(connection: sa.Connection, row: KnowledgeBaseRow, position: int) -> None:
    """Let an upload that is being written know that a unit was forgotten, in the transaction that forgets it."""
    if connection.scalar(sa.select(sa.exists().where(staged_uploads.c.kb_id == row.id))):
        this = {"kb_id": row.id, "position": position}
        known = sa.exists().where(*(forgotten_meanwhile.c[name] == value for name, value in this.items()))
        if not connection.scalar(sa.select(known)):
            connection.execute(sa.insert(forgotten_meanwhile).values(**this))


def _is_alive(database: sa.Engine, kb_id: int) -> bool:
    with reading(database) as connection:
        living = sa.exists().where(staged_uploads.c.kb_id == kb_id, sa.not_(_is_dead()))
        return bool(connection.scalar(sa.select(living)))


def _is_dead() -> sa.ColumnElement[bool]:
    return staged_uploads.c.alive_at < datetime.now(UTC) - timedelta(seconds=LEASE_S)


def _row(connection: sa.Connection, kb_id: int) -> KnowledgeBaseRow:
    return connection.execute(sa.select(knowledge_bases).where(knowledge_bases.c.id == kb_id)).one()


def _at(connection: sa.Connection, column: sa.Column[int], positions: list[int] | None) -> sa.ColumnElement[bool]:
    if positions is None:
        return sa.true()
    return among(connection.dialect.name, column, sa.literal(positions, NUMBERS))


def _discard_exemplars(connection: sa.Connection, row: KnowledgeBaseRow, positions: list[int] | None) -> None:
    here = exemplars.c.kb_id == row.id, _at(connection, exemplars.c.position, positions)
    stored = exemplars.c.stored_in > row.uploads
    replaced = sa.and_(exemplars.c.replaced_in != 0, exemplars.c.replaced_in <= row.uploads)
    connection.execute(sa.delete(exemplars).where(*here, sa.or_(stored, replaced)))
    connection.execute(sa.update(exemplars).where(*here, exemplars.c.replaced_in != 0).values(replaced_in=0))


def _discard_units(connection: sa.Connection, row: KnowledgeBaseRow, positions: list[int] | None) -> None:
    here = units.c.kb_id == row.id, _at(connection, units.c.position, positions)
    connection.execute(sa.delete(units).where(*here, units.c.position >= row.next_position))
