"""Ingest: an upload is checked whole, embedded, and then stored whole, in one transaction, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import NUMBERS, among, empty_write_ahead_log, insert_new, overwrite_deleted
from exemplar_store.encryption import TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import BadRowError, EmbeddingError, UnitTooLargeError
from exemplar_store.exemplar import pack, values
from exemplar_store.knowledge_base import KnowledgeBase, KnowledgeBaseRow
from exemplar_store.limits import MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES
from exemplar_store.oversized import too_large
from exemplar_store.rows import Row, row_content
from exemplar_store.spool import Spool
from exemplar_store.tables import exemplars, knowledge_bases, units

Embed = Callable[[Sequence[str]], np.ndarray]
Progress = Callable[[int, int], None]
"""Called with the number of exemplars done so far, and of all."""
BeforeCommit = Callable[[sa.Connection], None]
"""Something else to do last in the transaction of a change, so both are committed or neither."""


Announce = Callable[[], None]
"""Called before anything of an upload is stored, outside its transaction."""


def say_nothing() -> None:
    """The default :data:`Announce`."""


def do_nothing(_connection: sa.Connection) -> None:
    """The default :data:`BeforeCommit`."""


EMBED_BATCH = 64
WRITE_BATCH = 1000
_NORM_TOLERANCE = 1e-3
_MAX_IGNORED = 100


Lock = Callable[[sa.Connection], KnowledgeBaseRow]
"""Locks a knowledge base until the transaction ends; its row as it is then."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an upload goes."""

    database: sa.Engine
    knowledge_base: KnowledgeBase
    keys: KnowledgeBaseKeys
    lock: Lock


@dataclass(frozen=True, slots=True)
class Commit:
    """What is done beside storing an upload.

    Attributes:
        announce: see there.
        before_commit: see there.
        replace: whether the upload says all there is of its units: what they had before is deleted.
        dry_run: do nothing of this, and store nothing.
    """

    announce: Announce = say_nothing
    before_commit: BeforeCommit = do_nothing
    replace: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an upload changed."""

    exemplars: int
    """Exemplars stored."""
    units: int
    """Units seen for the first time."""
    already_there: int
    """Exemplars of the upload that their unit had already, from this or an earlier upload; left alone."""
    ignored_fields: tuple[str, ...]
    """Columns that are no field of the knowledge base (the first hundred, sorted)."""
    replaced: int = 0
    """Exemplars of earlier uploads that were deleted, of units that this one replaces."""


def ingest(
    to: Destination, rows: Iterable[Row], embed: Embed | None, progress: Progress | None, commit: Commit
) -> IngestReport:
    """Store an upload; see :meth:`exemplar_store.store.ExemplarStore.ingest`."""
    knowledge_base = to.knowledge_base
    if commit.dry_run and embed is not None:
        embed = partial(_unit_vectors, knowledge_base.embedding_dimension or 1)
    if knowledge_base.embedding_dimension is not None and (embed is None) != (knowledge_base.embedding_dimension == 0):
        raise EmbeddingError(
            f"Knowledge base {knowledge_base.name!r} was filled with exemplars "
            + ("that have embeddings; ingest with them." if embed is None else "without embeddings; ingest so.")
        )
    with Spool() as checked:
        ignored = _check(knowledge_base, to.keys, rows, checked)
        _check_unit_sizes(checked)
        if embed is None:
            stored = _write(to, checked, 0, progress, commit)
        else:
            with Spool() as embedded:
                dimension = _embed(knowledge_base, checked, embed, embedded, progress)
                stored = _write(to, embedded, dimension, None, commit)
        return IngestReport(
            exemplars=stored.exemplars,
            units=stored.units,
            replaced=stored.replaced,
            already_there=len(checked) - stored.exemplars,
            ignored_fields=tuple(sorted(ignored)),
        )


@dataclass(frozen=True, slots=True)
class _Record:
    """An exemplar in the spool: whose, which, and its content, with the embeddings after the second step."""

    unit_tag: bytes
    content_tag: bytes
    body: bytes

    def to_bytes(self) -> bytes:
        return self.unit_tag + self.content_tag + self.body

    @classmethod
    def from_bytes(cls, record: bytes) -> _Record:
        return cls(record[:TAG_BYTES], record[TAG_BYTES : 2 * TAG_BYTES], record[2 * TAG_BYTES :])


def _check(knowledge_base: KnowledgeBase, keys: KnowledgeBaseKeys, rows: Iterable[Row], checked: Spool) -> set[str]:
    names = set(knowledge_base.fields)
    ignored: set[str] = set()
    for row in rows:
        if row.fields.keys() != names:
            wrong = min(names ^ row.fields.keys())
            raise BadRowError(row.number, wrong, f"knowledge base {knowledge_base.name!r} has other fields")
        if len(ignored) < _MAX_IGNORED:
            ignored.update(row.ignored)
        unit_tag = keys.unit_tag(row.unit_id)
        body = row_content(row.number, row.fields, knowledge_base.fields)
        checked.append(_Record(unit_tag, keys.content_tag(unit_tag, body), body).to_bytes())
    return ignored


def _check_unit_sizes(checked: Spool) -> None:
    """Refuse units that are too large in the upload alone. Repeated exemplars count once."""
    rows, size = Counter[bytes](), Counter[bytes]()
    for record in _records(checked):
        rows[record.unit_tag] += 1
        size[record.unit_tag] += len(record.body)
    # Few units, if any, need a closer look: all rows' tags would be a lot to hold.
    large = {tag for tag in rows if rows[tag] > MAX_EXEMPLARS_PER_UNIT or size[tag] > MAX_UNIT_BYTES}
    distinct: dict[bytes, dict[bytes, int]] = {tag: {} for tag in large}
    if distinct:
        for record in _records(checked):
            if record.unit_tag in distinct:
                distinct[record.unit_tag][record.content_tag] = len(record.body)
    found = [len(one) > MAX_EXEMPLARS_PER_UNIT or sum(one.values()) > MAX_UNIT_BYTES for one in distinct.values()]
    if any(found):
        raise UnitTooLargeError(sum(found))


def _embed(
    knowledge_base: KnowledgeBase, checked: Spool, embed: Embed, embedded: Spool, progress: Progress | None
) -> int:
    named = [name for name in (knowledge_base.embedded_field, knowledge_base.response_field) if name is not None]
    indices = [knowledge_base.fields.index(name) for name in named]
    dimension = knowledge_base.embedding_dimension
    for batch in _batches(checked, EMBED_BATCH // len(indices)):
        contents = [values(record.body) for record in batch]
        texts = [[one[index] for index in indices] for one in contents]
        distinct = list(dict.fromkeys(text for one in texts for text in one))
        vectors = embed(distinct)
        dimension = _check_embeddings(vectors, len(distinct), dimension)
        by_text = dict(zip(distinct, vectors, strict=True))
        for record, one in zip(batch, texts, strict=True):
            body = pack(record.body, *(by_text[text] for text in one))
            embedded.append(_Record(record.unit_tag, record.content_tag, body).to_bytes())
        if progress:
            progress(len(embedded), len(checked))
    return dimension or 0


def _unit_vectors(dimension: int, texts: Sequence[str]) -> np.ndarray:
    """Shape (n, d), as embeddings have that nobody will keep."""
    return np.repeat(np.eye(1, dimension), len(texts), axis=0)


def _check_embeddings(vectors: np.ndarray, count: int, dimension: int | None) -> int:
    if vectors.ndim != 2 or vectors.shape[0] != count or vectors.shape[1] == 0:
        raise EmbeddingError(f"Embeddings of {count} texts must have shape ({count}, d), not {vectors.shape}.")
    if dimension not in (None, vectors.shape[1]):
        raise EmbeddingError(
            f"Embeddings of length {vectors.shape[1]} in a knowledge base of length {dimension}: "
            "embed with the model it was filled with."
        )
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if not np.all(np.abs(norms - 1) <= _NORM_TOLERANCE):
        raise EmbeddingError("Embeddings must have Euclidean norm 1; normalise them.")
    return int(vectors.shape[1])


@dataclass(slots=True)
class _Stored:
    exemplars: int = 0
    units: int = 0
    replaced: int = 0


def _write(to: Destination, spool: Spool, dimension: int, progress: Progress | None, commit: Commit) -> _Stored:
    """Store the spool in one transaction. Uploads to one knowledge base take turns here, by the lock on its row."""
    stored = _Stored()
    if not len(spool):
        return stored
    if not commit.dry_run:
        commit.announce()
    with to.database.connect() as connection, connection.begin() as transaction:
        row = to.lock(connection)
        if commit.replace:
            overwrite_deleted(connection)
        first_new = next_position = row.next_position
        if row.embedding_dimension not in (None, dimension):
            raise EmbeddingError(
                f"Another upload filled knowledge base {to.knowledge_base.name!r} with embeddings of length "
                f"{row.embedding_dimension}, this one has {dimension}."
            )
        done = 0
        grown: set[int] = set()  # positions of units stored before this upload
        for batch in _batches(spool, WRITE_BATCH):
            positions = _known_positions(connection, row.id, {record.unit_tag for record in batch})
            earlier = {position for position in positions.values() if position < first_new} - grown
            if commit.replace:
                stored.replaced += _delete(connection, row.id, sorted(earlier))
            grown |= earlier
            new = []
            for record in batch:
                if record.unit_tag not in positions:
                    positions[record.unit_tag] = next_position
                    new.append({"kb_id": row.id, "position": next_position, "unit_tag": record.unit_tag})
                    next_position += 1
            if new:
                connection.execute(sa.insert(units), new)
            stored.units += len(new)
            stored.exemplars += _insert(connection, row.id, to.keys, batch, positions, dimension)
            done += len(batch)
            if progress:
                progress(done, len(spool))
        oversized = too_large(row.id, dimension, response=row.response_field is not None)
        _check_stored_sizes(connection, oversized, sorted(grown))
        update = sa.update(knowledge_bases).where(knowledge_bases.c.id == row.id)
        connection.execute(update.values(next_position=next_position, embedding_dimension=dimension))
        if commit.dry_run:
            transaction.rollback()
        else:
            commit.before_commit(connection)
    if commit.replace and not commit.dry_run:
        empty_write_ahead_log(to.database)
    return stored


def _delete(connection: sa.Connection, kb_id: int, positions: Sequence[int]) -> int:
    """The exemplars of some units; how many there were."""
    if not positions:
        return 0
    at = among(connection.dialect.name, exemplars.c.position, sa.literal(positions, NUMBERS))
    return connection.execute(sa.delete(exemplars).where(exemplars.c.kb_id == kb_id, at)).rowcount


def _known_positions(connection: sa.Connection, kb_id: int, unit_tags: set[bytes]) -> dict[bytes, int]:
    """By one index seek a unit.

    Asked for ``kb_id = ... AND unit_tag IN (...)``, SQLite (and PostgreSQL, before its first ANALYZE) reads all units
    of the knowledge base instead, for every batch: uploads would cost the square of the number of units.
    """
    tag = sa.column("tag", sa.LargeBinary)
    asked = sa.values(tag, name="asked").data([(one,) for one in unit_tags]).cte()
    seek = sa.select(units.c.position).where(units.c.kb_id == kb_id, units.c.unit_tag == asked.c.tag)
    found = connection.execute(sa.select(asked.c.tag, seek.scalar_subquery()))
    return {bytes(tag): position for tag, position in found if position is not None}


def _check_stored_sizes(connection: sa.Connection, oversized: sa.Select[tuple[int]], positions: Sequence[int]) -> None:
    """Refuse units that are too large together with what earlier uploads stored."""
    found = 0
    for start in range(0, len(positions), WRITE_BATCH):
        batch = sa.literal(positions[start : start + WRITE_BATCH], NUMBERS)
        some = among(connection.dialect.name, exemplars.c.position, batch)
        found += len(connection.execute(oversized.where(some)).all())
    if found:
        raise UnitTooLargeError(found)


def _insert(
    connection: sa.Connection,
    kb_id: int,
    keys: KnowledgeBaseKeys,
    batch: Sequence[_Record],
    positions: dict[bytes, int],
    dimension: int,
) -> int:
    rows = []
    for record in batch:
        position = positions[record.unit_tag]
        plaintext = record.body if dimension else pack(record.body)
        rows.append(
            {
                "kb_id": kb_id,
                "position": position,
                "content_tag": record.content_tag,
                "payload": keys.encrypt(plaintext, place(position, record.content_tag)),
            }
        )
    return connection.execute(insert_new(connection, exemplars), rows).rowcount


def _records(spool: Spool) -> Iterator[_Record]:
    return map(_Record.from_bytes, spool)


def _batches(spool: Spool, size: int) -> Iterator[list[_Record]]:
    records = _records(spool)
    while batch := list(islice(records, size)):
        yield batch
