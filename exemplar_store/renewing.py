"""Renewal: a knowledge base's exemplars encrypted, and their tags made, under keys that nobody has seen yet.

For when a master key became known together with a copy of the database: then its data keys are known too, and another
master key alone would not help. Renewal keeps a thief from reading later copies. It cannot take back what the
known copy holds. A unit keeps its position; its block (:mod:`exemplar_store.blocks`) is drawn anew, by its new tag.

It goes in small steps. Exemplars are copied, encrypted anew, to a hidden knowledge base (:mod:`exemplar_store.hidden`);
then the two change names, and queries see the new one; then the old one is deleted. Each step is a transaction of
bounded size with a pause after it, in which others write: on SQLite, where every charge needs the one lock, how long a
charge waits does not tell how many exemplars there are.

A renewal that was interrupted leaves a hidden knowledge base. The next one deletes that and starts anew, so of two that
run at once one finds its copy gone, and stops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from exemplar_store.data_keys import DataKeys
from exemplar_store.dialects import among, empty_write_ahead_log, overwrite_deleted
from exemplar_store.encryption import SALT_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import RenewalOvertakenError, TamperedError
from exemplar_store.exemplar import packed_content
from exemplar_store.hidden import LEFT_OVER, KnowledgeBaseRow, beside, hidden_name
from exemplar_store.ingest import BeforeCommit
from exemplar_store.reading import read_exemplars
from exemplar_store.tables import exemplars, knowledge_bases, units

STEP_ROWS = 250
STEP_BYTES = 256 * 1024
"""What one step takes on, stored bytes of exemplars; but always one unit, which ingest bounds."""

_REST = 2.0  # of a step's time, in which others write
_LEAST_PAUSE_S = 0.005

Percent = Callable[[int], None]
"""Called with the percentage done."""
Lock = Callable[[sa.Connection], tuple[KnowledgeBaseRow, KnowledgeBaseKeys]]
"""Locks the knowledge base's row until the transaction ends; the row, and its keys as they are then."""


@dataclass
class Renewal:
    """One renewal of one knowledge base; :meth:`run` it once."""

    database: sa.Engine
    data_keys: DataKeys
    lock: Lock
    progress: Percent
    """Called now and then with the percentage done."""
    before_commit: BeforeCommit
    """What else is to be done in the transaction that lets queries see the new exemplars, last."""

    def run(self) -> int:
        """How many exemplars did not open under the earlier keys: they are copied as they are.

        Raises:
            RenewalOvertakenError: another renewal of the same knowledge base began.
            EncryptionKeyError: see :meth:`exemplar_store.DataKeys.make`.
        """
        while self._delete_some(lambda _last, _end: None):
            pass
        with self._step() as connection:
            copy = self._begin(connection)
        unreadable, copied = 0, 0
        while True:
            with self._step() as connection:
                row, before = self.lock(connection)
                hidden = beside(connection, row)
                if hidden is None or (hidden.id, hidden.next_position) != (copy, copied):
                    raise _overtaken(row)
                batch = _next_units(connection, row.id, copied)
                if not batch:
                    self._change_names(connection, row, hidden)
                    break
                after = self.data_keys.of(connection, hidden)
                unreadable += _copy(connection, row.id, hidden.id, batch, before, after)
                copied = batch[-1][0] + 1
                _set(connection, hidden.id, next_position=copied)
            self.progress(copied * 50 // row.next_position)
        while self._delete_some(lambda last, end: self.progress(50 + last * 50 // end)):
            pass
        empty_write_ahead_log(self.database)
        self.progress(100)
        return unreadable

    def _begin(self, connection: sa.Connection) -> int:
        """Make an empty copy under a fresh data key; its number."""
        row, before = self.lock(connection)
        if beside(connection, row):
            raise _overtaken(row)
        number, data_key = self.data_keys.make(connection)
        salt = os.urandom(SALT_BYTES)
        earlier = KnowledgeBaseKeys(data_key, salt).seal_tag_keys(before)
        own = {
            "name": hidden_name(row.id),
            "data_key": number,
            "key_salt": salt,
            "key_check": KnowledgeBaseKeys(data_key, salt, earlier).check,
            "earlier_tag_keys": earlier,
            "next_position": 0,
        }
        values = {name: value for name, value in row._mapping.items() if name != "id"} | own
        copy: int = connection.execute(
            sa.insert(knowledge_bases).values(values).returning(knowledge_bases.c.id)
        ).scalar_one()
        return copy

    def _change_names(self, connection: sa.Connection, row: KnowledgeBaseRow, copy: KnowledgeBaseRow) -> None:
        kept = ("id", "data_key", "key_salt", "key_check", "earlier_tag_keys")
        _set(connection, row.id, name=hidden_name(copy.id), next_position=LEFT_OVER)
        _set(connection, copy.id, **{name: value for name, value in row._mapping.items() if name not in kept})
        self.before_commit(connection)

    def _delete_some(self, told: Callable[[int, int], None]) -> bool:
        """Delete some of the hidden knowledge base; whether any of it may be left."""
        with self._step() as connection:
            overwrite_deleted(connection)
            row, _ = self.lock(connection)
            hidden = beside(connection, row)
            if hidden is None:
                return False
            if batch := _next_units(connection, hidden.id, 0):
                _set(connection, hidden.id, next_position=LEFT_OVER)
                positions = [position for position, _ in batch]
                for table in (exemplars, units):
                    of_batch = among(connection, table.c.position, positions)
                    connection.execute(sa.delete(table).where(table.c.kb_id == hidden.id, of_batch))
            else:
                connection.execute(sa.delete(knowledge_bases).where(knowledge_bases.c.id == hidden.id))
                self.data_keys.drop_unused(connection)
        if batch:
            told(batch[-1][0], row.next_position)
        return bool(batch)

    @contextmanager
    def _step(self) -> Iterator[sa.Connection]:
        """A transaction, and a pause after it."""
        with self.database.begin() as connection:
            began = time.monotonic()  # on SQLite it waits for others before
            yield connection
        _pause(max(_LEAST_PAUSE_S, _REST * (time.monotonic() - began)))


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def _overtaken(row: KnowledgeBaseRow) -> RenewalOvertakenError:
    return RenewalOvertakenError(
        f"Another renewal of knowledge base {row.name!r} began. That one continues; this one stopped."
    )


def _next_units(connection: sa.Connection, kb_id: int, first: int) -> list[tuple[int, bytes]]:
    """Position and tag of a knowledge base's next units from a position on: as many as a step takes."""
    of = units.c.kb_id == kb_id
    following = sa.select(units.c.position, units.c.unit_tag).where(of, units.c.position >= first)
    limited = following.order_by(units.c.position).limit(STEP_ROWS)
    found = [(position, bytes(tag)) for position, tag in connection.execute(limited)]
    size = sa.func.coalesce(sa.func.sum(sa.func.length(exemplars.c.payload)), 0)
    of_found = among(connection, exemplars.c.position, [position for position, _ in found])
    measured = sa.select(exemplars.c.position, sa.func.count(), size).where(exemplars.c.kb_id == kb_id, of_found)
    sizes = {at: (rows, bytes_) for at, rows, bytes_ in connection.execute(measured.group_by(exemplars.c.position))}
    rows = bytes_ = 0
    for number, (position, _) in enumerate(found):
        more = sizes.get(position, (0, 0))
        rows, bytes_ = rows + more[0], bytes_ + more[1]
        if number and (rows > STEP_ROWS or bytes_ > STEP_BYTES):
            return found[:number]
    return found


def _copy(
    connection: sa.Connection,
    kb_id: int,
    copy: int,
    batch: Sequence[tuple[int, bytes]],
    before: KnowledgeBaseKeys,
    after: KnowledgeBaseKeys,
) -> int:
    """Copy units with their exemplars, encrypted anew.

    Returns:
        How many exemplars do not open under the present keys, since their rows were changed outside this program. They
        stay as they are, and queries leave them out, as before.
    """
    tags = {position: after.renewed_tag(tag, before) for position, tag in batch}
    unreadable, rows = 0, []
    for position, content_tag, payload in read_exemplars(connection, kb_id, np.array([*tags], np.int64)):
        try:
            packed = before.decrypt(payload, place(position, content_tag))
        except TamperedError:
            unreadable += 1
        else:
            content_tag = after.content_tag(tags[position], packed_content(packed))
            payload = after.encrypt(packed, place(position, content_tag))
        rows.append({"kb_id": copy, "position": position, "content_tag": content_tag, "payload": payload})
    moved = [{"kb_id": copy, "position": position, "unit_tag": tag} for position, tag in tags.items()]
    connection.execute(sa.insert(units), moved)
    if rows:
        connection.execute(sa.insert(exemplars), rows)
    return unreadable


def _set(connection: sa.Connection, kb_id: int, **values: object) -> None:
    connection.execute(sa.update(knowledge_bases).where(knowledge_bases.c.id == kb_id).values(**values))
