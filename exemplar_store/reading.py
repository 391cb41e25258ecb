"""The slots of a query, from the units that it drew: reads their exemplars, and decrypts those that slots keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import NUMBERS, among, hexadecimal, numbered
from exemplar_store.encryption import TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import TamperedError
from exemplar_store.exemplar import Slot, unpack
from exemplar_store.nearness import Nearest, nearest
from exemplar_store.tables import exemplars

Stored = tuple[int, bytes, bytes]
"""An exemplar as it is stored: its unit's position, content tag, payload."""


def read_exemplars(connection: sa.Connection, kb_id: int, positions: np.ndarray) -> list[Stored]:
    """All exemplars of the units at some positions, and no other rows.

    Args:
        connection: connection to the database.
        kb_id: id of the knowledge base.
        positions: int array (units,).
    """
    drawn = among(connection.dialect.name, exemplars.c.position, sa.literal(positions.tolist(), NUMBERS))
    rows = connection.execute(
        sa.select(
            exemplars.c.position,
            # SQLite keeps whatever type was written behind our back; as bytes it fails to open, like any other.
            sa.cast(exemplars.c.content_tag, sa.LargeBinary),
            sa.cast(exemplars.c.payload, sa.LargeBinary),
        ).where(exemplars.c.kb_id == kb_id, drawn)
    )
    return [(position, content_tag, payload) for position, content_tag, payload in rows]


@dataclass(frozen=True, slots=True)
class Listed:
    """Some exemplars, without their contents."""

    positions: np.ndarray
    """Positions of their units: int64 array (n,)."""
    content_tags: bytes
    """Content tags of the exemplars, one after the other, 16 bytes each."""

    def content_tag(self, number: int) -> bytes:
        """The content tag of one exemplar."""
        return self.content_tags[number * TAG_BYTES : (number + 1) * TAG_BYTES]


def list_exemplars(connection: sa.Connection, kb_id: int, positions: np.ndarray) -> Listed:
    """The exemplars of the units at some positions, in no particular order.

    One row a unit, from the index alone: reading a thousand exemplars of one unit would take noticeably long.

    Args:
        connection: connection to the database.
        kb_id: id of the knowledge base.
        positions: int array (units,).
    """
    asked = {"of": kb_id, "positions": positions.tolist()}
    rows = connection.execute(_listing(connection.dialect.name), asked).all()
    tags = [bytes.fromhex(of_unit) for _, of_unit in rows]
    units = np.array([position for position, _ in rows], np.int64)
    return Listed(np.repeat(units, [len(of_unit) // TAG_BYTES for of_unit in tags]), b"".join(tags))


@cache
def _listing(dialect: str) -> sa.Select[int, str]:
    """Built once, as :func:`_reading` is: that takes longer than SQLite to execute it."""
    # SQLite keeps whatever type was written behind our back: no tag is longer or shorter than another.
    regular = sa.func.length(sa.cast(exemplars.c.content_tag, sa.LargeBinary)) == TAG_BYTES
    drawn = among(dialect, exemplars.c.position, sa.bindparam("positions", type_=NUMBERS))
    return (
        sa.select(exemplars.c.position, hexadecimal(dialect, exemplars.c.content_tag))
        .where(exemplars.c.kb_id == sa.bindparam("of"), drawn, regular)
        .group_by(exemplars.c.position)
    )


def read_listed(
    connection: sa.Connection,
    kb_id: int,
    listed: Listed,
    kept: Sequence[np.ndarray],
    column: sa.Column[bytes] = exemplars.c.payload,
) -> dict[int, Stored]:
    """The exemplars that some slot keeps, by one index seek each.

    Args:
        connection: connection that they were listed with, which still sees the same state.
        kb_id: id of the knowledge base.
        listed: listed exemplars.
        kept: numbers of the listed exemplars that each slot keeps: int arrays.
        column: column to read.

    Returns:
        The stored exemplars by their numbers in ``listed``; those without a value in the column are left out.
    """
    numbers = np.concatenate([np.empty(0, np.int64), *kept]).tolist()
    tags = [listed.content_tag(number) for number in numbers]
    asked = {"of": kb_id, "positions": listed.positions[numbers].tolist(), "tags": b"".join(tags)}
    rows = connection.execute(_reading(connection.dialect.name, column.name), asked).all()
    return {numbers[i]: (at, tags[i], payload) for i, at, payload in rows if payload is not None}


@cache
def _reading(dialect: str, column: str) -> sa.Select[int, int, bytes]:
    number, position = numbered(dialect, sa.bindparam("positions", type_=NUMBERS))
    tag = sa.func.substr(sa.bindparam("tags", type_=sa.LargeBinary), number * TAG_BYTES + 1, TAG_BYTES)
    payload = sa.select(sa.cast(exemplars.c[column], sa.LargeBinary)).where(
        exemplars.c.kb_id == sa.bindparam("of"), exemplars.c.position == position, exemplars.c.content_tag == tag
    )
    # One subquery each, as in `members`: a join may be turned about.
    return sa.select(number, position, payload.scalar_subquery())


def read_nearest(
    connection: sa.Connection,
    kb_id: int,
    keys: KnowledgeBaseKeys,
    listed: Listed,
    kept: Sequence[np.ndarray],
    wanted: Nearest,
) -> list[np.ndarray]:
    """The exemplars that each slot shows of those it keeps: embeddings are read for that, and no texts.

    Arguments as of :func:`read_listed` and :func:`exemplar_store.nearness.nearest`. An exemplar whose embedding does
    not open is not shown.
    """
    sealed = read_listed(connection, kb_id, listed, kept, exemplars.c.vector)
    size = len(wanted.question)
    opened = {
        number: vector
        for number, (at, tag, stored) in sealed.items()
        if (vector := keys.decrypt_vector(stored, place(at, tag))) is not None and len(vector) == size
    }
    return nearest(kept, np.frombuffer(listed.content_tags, f"S{TAG_BYTES}"), opened, wanted)


def fill(
    keys: KnowledgeBaseKeys,
    names: Sequence[str],
    dimension: int,
    found: Mapping[int, Stored],
    kept: Sequence[np.ndarray],
    *,
    response: bool,
) -> list[Slot]:
    """The slots' exemplars, decrypted. One that does not open is left out of its slot, in silence.

    Args:
        keys: keys of the knowledge base.
        names: names of its fields.
        dimension: length of its embeddings, 0 to leave them out.
        found: exemplars as stored, by number.
        kept: numbers of the exemplars that each slot keeps, in order: int arrays.
        response: whether responses' embeddings are stored.
    """
    decrypted = {i: packed for i, stored in found.items() if (packed := _decrypt(keys, *stored)) is not None}
    unpacked = unpack([*decrypted.values()], names, dimension, response=response)
    opened = dict(zip(decrypted, unpacked, strict=True))
    return [tuple(opened[i] for i in numbers.tolist() if i in opened) for numbers in kept]


def _decrypt(keys: KnowledgeBaseKeys, position: int, content_tag: bytes, payload: bytes) -> bytes | None:
    try:
        return keys.decrypt(payload, place(position, content_tag))
    except TamperedError:
        return None
