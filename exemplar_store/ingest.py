"""Ingest: an upload is checked whole, embedded, and then stored whole, in one transaction, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import among, insert_new
from exemplar_store.encryption import TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import BadRowError, EmbeddingError, UnitTooLargeError
from exemplar_store.exemplar import content, pack, packed_content, values
from exemplar_store.knowledge_base import KnowledgeBase
from exemplar_store.rows import Row
from exemplar_store.spool import Spool
from exemplar_store.tables import exemplars, knowledge_bases, units

Embed = Callable[[Sequence[str]], np.ndarray]
Progress = Callable[[int], None]
Lock = Callable[[sa.Connection], tuple[sa.Row[tuple[object, ...]], KnowledgeBaseKeys]]
"""Locks the knowledge base's row until the transaction ends; the row, and its keys as they are then."""
Within = Callable[[sa.Connection], None]
"""Something else to be done in the transaction of a change, so that both are committed or neither."""


def nothing_else(_connection: sa.Connection) -> None:
    """The default :data:`Within`."""


MAX_EXEMPLARS_PER_UNIT = 1000
"""A public bound, on what one unit can add to the time that its queries take."""

EMBED_BATCH = 64
WRITE_BATCH = 1000
_NORM_TOLERANCE = 1e-3
_MAX_IGNORED = 100


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


def ingest(
    engine: sa.Engine,
    knowledge_base: KnowledgeBase,
    keys: KnowledgeBaseKeys,
    lock: Lock,
    rows: Iterable[Row],
    embed: Embed | None,
    progress: Progress | None,
    within: Within,
) -> IngestReport:
    """Store an upload; see :meth:`exemplar_store.store.ExemplarStore.ingest`."""
    if knowledge_base.embedding_dimension is not None and (embed is None) != (knowledge_base.embedding_dimension == 0):
        raise EmbeddingError(
            f"Knowledge base {knowledge_base.name!r} was filled with exemplars "
            + ("that have embeddings; ingest with them." if embed is None else "without embeddings; ingest so.")
        )
    with Spool() as checked:
        ignored = _check(knowledge_base, keys, rows, checked)
        _check_unit_sizes(checked)
        if embed is None:
            stored = _write(engine, knowledge_base, keys, lock, checked, 0, progress, within)
        else:
            with Spool() as embedded:
                dimension = _embed(knowledge_base, checked, embed, embedded, progress)
                stored = _write(engine, knowledge_base, keys, lock, embedded, dimension, None, within)
        return IngestReport(
            exemplars=stored.exemplars,
            units=stored.units,
            already_there=len(checked) - stored.exemplars,
            ignored_fields=tuple(sorted(ignored)),
        )


@dataclass(frozen=True, slots=True)
class _Record:
    """An exemplar in the spool: whose, which, and its content, with the embedding after the second step."""

    unit_tag: bytes
    content_tag: bytes
    body: bytes

    def to_bytes(self) -> bytes:
        return self.unit_tag + self.content_tag + self.body

    @classmethod
    def from_bytes(cls, record: bytes) -> _Record:
        return cls(record[:TAG_BYTES], record[TAG_BYTES : 2 * TAG_BYTES], record[2 * TAG_BYTES :])

    def renewed(self, before: KnowledgeBaseKeys, now: KnowledgeBaseKeys, packed: bool) -> _Record:
        """The same with its tags under other keys."""
        unit_tag = now.renewed_tag(self.unit_tag, before)
        body = packed_content(self.body) if packed else self.body
        return _Record(unit_tag, now.content_tag(unit_tag, body), self.body)


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
        body = content(row.fields, knowledge_base.fields)
        checked.append(_Record(unit_tag, keys.content_tag(unit_tag, body), body).to_bytes())
    return ignored


def _check_unit_sizes(checked: Spool) -> None:
    """Refuse units that have too many exemplars in the upload alone. Repeated exemplars count once."""
    rows = Counter(record.unit_tag for record in _records(checked))
    # Few units, if any, need a closer look: all rows' tags would be a lot to hold.
    distinct: dict[bytes, set[bytes]] = {tag: set() for tag, count in rows.items() if count > MAX_EXEMPLARS_PER_UNIT}
    if distinct:
        for record in _records(checked):
            if record.unit_tag in distinct:
                distinct[record.unit_tag].add(record.content_tag)
    if too_large := sum(len(tags) > MAX_EXEMPLARS_PER_UNIT for tags in distinct.values()):
        raise UnitTooLargeError(too_large, MAX_EXEMPLARS_PER_UNIT)


def _embed(
    knowledge_base: KnowledgeBase, checked: Spool, embed: Embed, embedded: Spool, progress: Progress | None
) -> int:
    index = knowledge_base.fields.index(knowledge_base.embedded_field)
    dimension = knowledge_base.embedding_dimension
    for batch in _batches(checked, EMBED_BATCH):
        vectors = embed([values(record.body)[index] for record in batch])
        dimension = _check_embeddings(vectors, len(batch), dimension)
        for record, vector in zip(batch, vectors, strict=True):
            embedded.append(_Record(record.unit_tag, record.content_tag, pack(record.body, vector)).to_bytes())
        if progress:
            progress(len(embedded))
    return dimension or 0


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


def _write(
    engine: sa.Engine,
    knowledge_base: KnowledgeBase,
    before: KnowledgeBaseKeys,
    lock: Lock,
    spool: Spool,
    dimension: int,
    progress: Progress | None,
    within: Within,
) -> _Stored:
    """Store the spool in one transaction. Uploads to one knowledge base take turns here, by the lock on its row.

    Tags were made under the keys ``before``; the knowledge base's keys may have been renewed since.
    """
    stored = _Stored()
    if not len(spool):
        return stored
    with engine.begin() as connection:
        row, keys = lock(connection)
        first_new = next_position = row.next_position
        if row.embedding_dimension not in (None, dimension):
            raise EmbeddingError(
                f"Another upload filled knowledge base {knowledge_base.name!r} with embeddings of length "
                f"{row.embedding_dimension}, this one has {dimension}."
            )
        done = 0
        grown: set[int] = set()  # positions of units stored before this upload
        for batch in _batches(spool, WRITE_BATCH):
            if keys is not before:
                batch = [record.renewed(before, keys, dimension > 0) for record in batch]
            positions = _known_positions(connection, knowledge_base.id, {record.unit_tag for record in batch})
            grown.update(position for position in positions.values() if position < first_new)
            new = []
            for record in batch:
                if record.unit_tag not in positions:
                    positions[record.unit_tag] = next_position
                    new.append({"kb_id": knowledge_base.id, "position": next_position, "unit_tag": record.unit_tag})
                    next_position += 1
            if new:
                connection.execute(sa.insert(units), new)
            stored.units += len(new)
            stored.exemplars += _insert(connection, knowledge_base.id, keys, batch, positions, dimension)
            done += len(batch)
            if progress:
                progress(done)
        _check_stored_sizes(connection, knowledge_base.id, sorted(grown))
        update = sa.update(knowledge_bases).where(knowledge_bases.c.id == knowledge_base.id)
        connection.execute(update.values(next_position=next_position, embedding_dimension=dimension))
        within(connection)
    return stored


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


def _check_stored_sizes(connection: sa.Connection, kb_id: int, positions: Sequence[int]) -> None:
    """Refuse units that have too many exemplars together with those of earlier uploads."""
    too_large = 0
    for start in range(0, len(positions), WRITE_BATCH):
        some = among(connection, exemplars.c.position, positions[start : start + WRITE_BATCH])
        of_unit = sa.select(exemplars.c.position).where(exemplars.c.kb_id == kb_id, some)
        larger = of_unit.group_by(exemplars.c.position).having(sa.func.count() > MAX_EXEMPLARS_PER_UNIT)
        too_large += len(connection.execute(larger).all())
    if too_large:
        raise UnitTooLargeError(too_large, MAX_EXEMPLARS_PER_UNIT)


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
        plaintext = record.body if dimension else pack(record.body, None)
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
