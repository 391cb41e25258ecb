"""The slots of a query, from the units that it drew: reads their exemplars, and decrypts those that slots keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import NUMBERS, among, hexadecimal, numbered
from exemplar_store.encryption import TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import TamperedError
from exemplar_store.exemplar import Slot, unpack
from exemplar_store.knowledge_base import KnowledgeBaseRow
from exemplar_store.tables import exemplars

Stored = tuple[int, bytes, bytes]
"""An exemplar as it is stored: its unit's position, content tag, payload."""


class Edition(NamedTuple):
    """A knowledge base as of an upload: its id, and the number of the last upload that is there."""

    kb_id: int
    upload: int

    @classmethod
    def of(cls, row: KnowledgeBaseRow) -> "Edition":
        """What is published."""
        return cls(row.id, row.uploads)


def is_there(upload: int | sa.BindParameter[int]) -> sa.ColumnElement[bool]:
    """An exemplar is there as of an upload, by its number."""
    kept = sa.or_(exemplars.c.replaced_in == 0, exemplars.c.replaced_in > upload)
    return sa.and_(exemplars.c.stored_in <= upload, kept)


def read_exemplars(
    connection: sa.Connection, edition: Edition, positions: np.ndarray, column: sa.Column[bytes] = exemplars.c.payload
) -> list[Stored]:
    """All exemplars of the units at some positions, and no other rows.

    Args:
        connection: connection to the database.
        edition: edition of the knowledge base.
        positions: int array (units,).
        column: column to read; rows without a value in it are left out.
    """
    asked = {"of": edition.kb_id, "upload": edition.upload, "positions": positions.tolist()}
    rows = connection.execute(_reading_units(connection.dialect.name, column.name), asked).all()
    return [(position, content_tag, value) for position, content_tag, value in rows if value is not None]


@cache
def _reading_units(dialect: str, column: str) -> sa.Select[int, bytes, bytes]:
    drawn = among(dialect, exemplars.c.position, sa.bindparam("positions", type_=NUMBERS))
    return sa.select(
        exemplars.c.position,
        # SQLite keeps whatever type was written behind our back; as bytes it fails to open, like any other.
        sa.cast(exemplars.c.content_tag, sa.LargeBinary),
        sa.cast(exemplars.c[column], sa.LargeBinary),
    ).where(exemplars.c.kb_id == sa.bindparam("of"), drawn, is_there(sa.bindparam("upload")))


def by_unit(stored: Sequence[Stored], positions: np.ndarray) -> list[np.ndarray]:
    """The numbers of the exemplars of each unit, of those that :func:`read_exemplars` has read.

    Args:
        stored: exemplars.
        positions: positions of their units, ascending: int array (units,).

    Returns:
        An int array for each unit, empty where it has none.
    """
    owners = np.array([position for position, _tag, _value in stored], np.int64)
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.searchsorted(owners[order], positions[1:]))


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


def list_exemplars(connection: sa.Connection, edition: Edition, positions: np.ndarray) -> Listed:
    """The exemplars of the units at some positions, in no particular order.

    One row a unit, from the index alone: reading a thousand exemplars of one unit would take noticeably long.

    Args:
        connection: connection to the database.
        edition: edition of the knowledge base.
        positions: int array (units,).
    """
    asked = {"of": edition.kb_id, "upload": edition.upload, "positions": positions.tolist()}
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
        .where(exemplars.c.kb_id == sa.bindparam("of"), drawn, regular, is_there(sa.bindparam("upload")))
        .group_by(exemplars.c.position)
    )


def read_listed(
    connection: sa.Connection,
    edition: Edition,
    listed: Listed,
    kept: Sequence[np.ndarray],
    column: sa.Column[bytes] = exemplars.c.payload,
) -> dict[int, Stored]:
    """The exemplars that some slot keeps, by one index seek each.

    Args:
        connection: connection that they were listed with, which still sees the same state.
        edition: edition of the knowledge base.
        listed: listed exemplars.
        kept: numbers of the listed exemplars that each slot keeps: int arrays.
        column: column to read.

    Returns:
        The stored exemplars by their numbers in ``listed``; those without a value in the column are left out.
    """
    numbers = np.concatenate([np.empty(0, np.int64), *kept]).tolist()
    tags = [listed.content_tag(number) for number in numbers]
    places = {"positions": listed.positions[numbers].tolist(), "tags": b"".join(tags)}
    asked = {"of": edition.kb_id, "upload": edition.upload, **places}
    rows = connection.execute(_reading(connection.dialect.name, column.name), asked).all()
    return {numbers[i]: (at, tags[i], payload) for i, at, payload in rows if payload is not None}


@cache
def _reading(dialect: str, column: str) -> sa.Select[int, int, bytes]:
    number, position, tag = asked_for(dialect)
    payload = sa.select(sa.cast(exemplars.c[column], sa.LargeBinary)).where(
        exemplars.c.kb_id == sa.bindparam("of"),
        exemplars.c.position == position,
        exemplars.c.content_tag == tag,
        is_there(sa.bindparam("upload")),
    )
    # One subquery each, as in `members`: a join may be turned about.
    return sa.select(number, position, payload.scalar_subquery())


def asked_for(
    dialect: str,
) -> tuple[sa.ColumnElement[int], sa.ColumnElement[int], sa.ColumnElement[bytes]]:
    """Three columns of a table with a row for each of some rows that are looked for, which two parameters list.

    They are its number, from 0, its position (of ``positions``, :data:`exemplar_store.dialects.NUMBERS`), and its tag
    (of ``tags``, one after the other).
    """
    number, position = numbered(dialect, sa.bindparam("positions", type_=NUMBERS))
    tags = sa.bindparam("tags", type_=sa.LargeBinary)
    return number, position, sa.func.substr(tags, number * TAG_BYTES + 1, TAG_BYTES)


Number = TypeVar("Number")


def open_vectors(keys: KnowledgeBaseKeys, sealed: Mapping[Number, Stored]) -> dict[Number, bytes]:
    """Rounded embeddings, each by the number of its row; those that do not open are left out, in silence."""
    found = ((number, keys.decrypt_vector(value, place(at, tag))) for number, (at, tag, value) in sealed.items())
    return {number: vector for number, vector in found if vector is not None}


def open_fields(
    keys: KnowledgeBaseKeys, names: Sequence[str], stored: Mapping[Number, Stored]
) -> dict[Number, Mapping[str, str]]:
    """Exemplars' fields, each by the number of its row; those that do not open are left out, in silence."""
    packed = _decrypted(keys, stored)
    fields = (exemplar.fields for exemplar in unpack([*packed.values()], names, 0, response=False))
    return dict(zip(packed, fields, strict=True))


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
    decrypted = _decrypted(keys, found)
    unpacked = unpack([*decrypted.values()], names, dimension, response=response)
    opened = dict(zip(decrypted, unpacked, strict=True))
    return [tuple(opened[i] for i in numbers.tolist() if i in opened) for numbers in kept]


def _decrypted(keys: KnowledgeBaseKeys, stored: Mapping[Number, Stored]) -> dict[Number, bytes]:
    return {number: packed for number, row in stored.items() if (packed := _decrypt(keys, *row)) is not None}


def _decrypt(keys: KnowledgeBaseKeys, position: int, content_tag: bytes, payload: bytes) -> bytes | None:
    try:
        return keys.decrypt(payload, place(position, content_tag))
    except TamperedError:
        return None
