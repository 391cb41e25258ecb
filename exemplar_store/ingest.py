"""Ingest: an upload is checked whole, embedded, and then stored whole, in one transaction, or not at all."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import NUMBERS, among, empty_write_ahead_log, insert_new, overwrite_deleted
from exemplar_store.encryption import OVERHEAD_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import BadRowError, EmbeddingError, UnitTooLargeError, UnknownKnowledgeBaseError
from exemplar_store.exemplar import (
    MAX_EXEMPLAR_BYTES,
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    embeddings_of,
    overhead,
    pack,
    values,
)
from exemplar_store.keyring import Keyring
from exemplar_store.knowledge_base import BeforeCommit, KnowledgeBase, KnowledgeBaseRow, Progress, change, do_nothing
from exemplar_store.nearness import rounded
from exemplar_store.rows import Row, row_content
from exemplar_store.spool import Record, Spool
from exemplar_store.tables import exemplars, units
from exemplar_store.topics import TopicList, assign

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to unit vectors, float array (n, d)."""

EMBED_BATCH = 512
"""Texts that are given to the embedder at once: enough of them that batches of one length are mostly full."""
WRITE_BATCH = 1000
_NORM_TOLERANCE = 1e-3
_MAX_IGNORED = 100


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Destination and options of an upload; see :meth:`exemplar_store.store.ExemplarStore.ingest` for the options.

    Attributes:
        database: database that holds the knowledge base.
        keyring: keyring that opens it.
        name: name of the knowledge base.
    """

    database: sa.Engine
    keyring: Keyring
    name: str
    embed: Embed | None
    progress: Progress
    before_commit: BeforeCommit
    announce: Callable[[], None]
    replace: bool
    dry_run: bool
    topics: Callable[[sa.Connection], Iterable[TopicList]]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The changes by an upload."""

    exemplars: int
    """Exemplars stored."""
    units: int
    """Units seen for the first time."""
    already_there: int
    """Exemplars of the upload that their unit had already, from this or an earlier upload; left alone."""
    ignored_fields: tuple[str, ...]
    """Columns that are not fields of the knowledge base (the first hundred, sorted)."""
    replaced: int = 0
    """Exemplars of earlier uploads that were deleted, of units that this one replaces."""
    returned: int = 0
    """Units that were forgotten, and are back."""


def ingest(
    upload: IngestOptions, knowledge_base: KnowledgeBase, keys: KnowledgeBaseKeys, rows: Iterable[Row]
) -> IngestReport:
    """Store an upload; see :meth:`exemplar_store.store.ExemplarStore.ingest`."""
    embed, dimension = upload.embed, knowledge_base.embedding_dimension
    if upload.dry_run and embed is not None:
        embed = partial(_unit_vectors, dimension or 1)
    if dimension is not None and (embed is None) != (dimension == 0):
        raise EmbeddingError(
            f"Knowledge base {upload.name!r} was filled with exemplars "
            + ("that have embeddings; ingest with them." if embed is None else "without embeddings; ingest so.")
        )
    with Spool() as checked:
        ignored = _check(knowledge_base, keys, rows, checked)
        _check_unit_sizes(checked)
        if not len(checked):
            stored = new = replaced = returned = 0
        else:
            if not upload.dry_run:
                upload = replace(upload, announce=cache(upload.announce))
            while True:
                with suppress(_ForgottenError):
                    stored, new, replaced, returned = _store(upload, knowledge_base, keys, embed, checked)
                    break
        return IngestReport(
            exemplars=stored,
            units=new,
            replaced=replaced,
            returned=returned,
            already_there=len(checked) - stored,
            ignored_fields=tuple(sorted(ignored)),
        )


class _ForgottenError(Exception):
    """An exemplar that was there, and so was not embedded, was deleted before the upload was stored."""


def _store(
    upload: IngestOptions, knowledge_base: KnowledgeBase, keys: KnowledgeBaseKeys, embed: Embed | None, checked: Spool
) -> tuple[int, int, int, int]:
    """Embed what is not there yet, and write it; returns what :func:`_write` does.

    Raises:
        _ForgottenError: nothing was stored; try again.
    """
    if embed is None:
        return _write(upload, keys, checked, (), 0, upload.progress)
    with Spool() as new, Spool() as there, Spool() as embedded:
        _divide(upload, checked, new, there)
        dimension = _embed(knowledge_base, new, embed, embedded, upload.progress, len(there))
        return _write(upload, keys, embedded, there.batches(WRITE_BATCH), dimension, do_nothing)


def _divide(upload: IngestOptions, checked: Spool, new: Spool, there: Spool) -> None:
    """Put the records of exemplars that are stored already apart, without their bodies: they need no embedding.

    An upload that replaces its units' exemplars needs all of them.
    """
    with upload.database.connect() as connection:
        row, _ = upload.keyring.open(connection, upload.name)
        for batch in checked.batches(WRITE_BATCH):
            stored = set() if upload.replace else _stored(connection, row.id, batch)
            for record in batch:
                if record[:2] in stored:
                    there.append(record._replace(body=b""))
                else:
                    new.append(record)


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
        checked.append(Record(unit_tag, keys.content_tag(unit_tag, body), body))
    return ignored


def _check_unit_sizes(checked: Spool) -> None:
    """Refuse units that are too large in the upload alone. Repeated exemplars count once."""
    rows, size = Counter[bytes](), Counter[bytes]()
    for record in checked:
        rows[record.unit_tag] += 1
        size[record.unit_tag] += len(record.body)
    # Few units, if any, need a closer look: all rows' tags would be a lot to hold.
    large = {tag for tag in rows if rows[tag] > MAX_EXEMPLARS_PER_UNIT or size[tag] > MAX_UNIT_BYTES}
    distinct: dict[bytes, dict[bytes, int]] = {tag: {} for tag in large}
    if distinct:
        for record in checked:
            if record.unit_tag in distinct:
                distinct[record.unit_tag][record.content_tag] = len(record.body)
    too_large = sum(
        len(bodies) > MAX_EXEMPLARS_PER_UNIT or sum(bodies.values()) > MAX_UNIT_BYTES for bodies in distinct.values()
    )
    if too_large:
        raise UnitTooLargeError(too_large)


def _embed(
    knowledge_base: KnowledgeBase, new: Spool, embed: Embed, embedded: Spool, progress: Progress, there: int
) -> int:
    """Embed new records; ``there`` records beside them need no embedding. Returns the embeddings' length."""
    named = [name for name in (knowledge_base.embedded_field, knowledge_base.response_field) if name is not None]
    indices = [knowledge_base.fields.index(name) for name in named]
    dimension = knowledge_base.embedding_dimension
    progress(there, there + len(new))
    for batch in new.batches(EMBED_BATCH // len(indices)):
        contents = [values(record.body) for record in batch]
        texts = [[content[index] for index in indices] for content in contents]
        distinct = list(dict.fromkeys(chain.from_iterable(texts)))
        vectors = embed(distinct)
        dimension = _check_embeddings(vectors, len(distinct), dimension)
        by_text = dict(zip(distinct, vectors, strict=True))
        for record, embedded_texts in zip(batch, texts, strict=True):
            body = pack(record.body, *(by_text[text] for text in embedded_texts))
            embedded.append(record._replace(body=body))
        progress(there + len(embedded), there + len(new))
    return dimension or 0


def _unit_vectors(dimension: int, texts: Sequence[str]) -> np.ndarray:
    """Made-up unit vectors, shape (n, d), in place of embeddings in a dry run."""
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


def _write(
    upload: IngestOptions,
    tagged_with: KnowledgeBaseKeys,
    spool: Spool,
    there: Iterable[Sequence[Record]],
    dimension: int,
    progress: Progress,
) -> tuple[int, int, int, int]:
    """Store the spool in one transaction. Uploads to one knowledge base take turns here, by the lock on its row.

    Args:
        upload: destination of the records.
        tagged_with: the keys that the records' tags were made with.
        spool: records to store.
        there: batches of records that must be stored already.
        dimension: length of the embeddings; 0: there are none.
        progress: called with the number of records stored.

    Returns:
        The numbers of exemplars stored, of new units, of exemplars replaced, and of forgotten units that are back.

    Raises:
        _ForgottenError: a record of ``there`` is not stored; nothing was stored.
    """
    stored = replaced = returned = 0
    if not upload.dry_run:
        upload.announce()
    with upload.database.connect() as connection, connection.begin() as transaction:
        row, keys = upload.keyring.open(connection, upload.name, lock=True)
        if keys.check != tagged_with.check:
            raise UnknownKnowledgeBaseError(
                f"Knowledge base {upload.name!r} was deleted and created anew meanwhile. Upload again."
            )
        for batch in there:
            if {record[:2] for record in batch} != _stored(connection, row.id, batch):
                raise _ForgottenError
        if upload.replace:
            overwrite_deleted(connection)
        first_new = next_position = row.next_position
        if row.embedding_dimension not in (None, dimension):
            raise EmbeddingError(
                f"Another upload filled knowledge base {upload.name!r} with embeddings of length "
                f"{row.embedding_dimension}, this one has {dimension}."
            )
        done = 0
        grown: set[int] = set()  # positions of units stored before this upload
        for batch in spool.batches(WRITE_BATCH):
            positions = _known_positions(connection, row.id, {record.unit_tag for record in batch})
            earlier = {position for position in positions.values() if position < first_new} - grown
            returned += _forgotten(connection, row.id, sorted(earlier))
            if upload.replace:
                replaced += _delete(connection, row.id, sorted(earlier))
            grown |= earlier
            new, rows = [], []
            vectors = rounded(embeddings_of([record.body for record in batch], dimension)) if dimension else None
            for number, (unit_tag, content_tag, body) in enumerate(batch):
                if unit_tag not in positions:
                    positions[unit_tag] = next_position
                    new.append({"kb_id": row.id, "position": next_position, "unit_tag": unit_tag})
                    next_position += 1
                at = positions[unit_tag]
                here = place(at, content_tag)
                payload = keys.encrypt(body if dimension else pack(body), here)
                vector = None if vectors is None else keys.encrypt_vector(vectors[number].tobytes(), here)
                stays = {"kb_id": row.id, "position": at, "content_tag": content_tag}
                rows.append({**stays, "vector": vector, "payload": payload})
            if new:
                connection.execute(sa.insert(units), new)
            stored += connection.execute(insert_new(connection, exemplars), rows).rowcount
            done += len(batch)
            progress(done, len(spool))
        _check_stored_sizes(connection, row, dimension, sorted(grown))
        model = upload.keyring.embedding_model if dimension else None
        change(connection, row, next_position=next_position, embedding_dimension=dimension, embedding_model=model)
        if upload.dry_run:
            transaction.rollback()
        else:
            row, keys = upload.keyring.open(connection, upload.name)
            assign(connection, row, keys, upload.topics(connection), range(first_new, next_position))
            upload.before_commit(connection)
    if upload.replace and not upload.dry_run:
        empty_write_ahead_log(upload.database)
    return stored, next_position - first_new, replaced, returned


def _forgotten(connection: sa.Connection, kb_id: int, positions: Sequence[int]) -> int:
    """Number of these units, all known, that have no exemplars."""
    asked = among(connection.dialect.name, units.c.position, sa.literal(positions, NUMBERS))
    theirs = sa.exists().where(exemplars.c.kb_id == kb_id, exemplars.c.position == units.c.position)
    without = sa.select(sa.func.count()).select_from(units).where(units.c.kb_id == kb_id, asked, ~theirs)
    return connection.execute(without).scalar_one()


def _delete(connection: sa.Connection, kb_id: int, positions: Sequence[int]) -> int:
    """Delete the exemplars of some units; returns their number."""
    at = among(connection.dialect.name, exemplars.c.position, sa.literal(positions, NUMBERS))
    return connection.execute(sa.delete(exemplars).where(exemplars.c.kb_id == kb_id, at)).rowcount


def _known_positions(connection: sa.Connection, kb_id: int, unit_tags: set[bytes]) -> dict[bytes, int]:
    """The positions of known units by their tags, by one index seek a unit.

    Asked for ``kb_id = ... AND unit_tag IN (...)``, SQLite (and PostgreSQL, before its first ANALYZE) reads all units
    of the knowledge base instead, for every batch: uploads would cost the square of the number of units.
    """
    tag = sa.column("tag", sa.LargeBinary)
    asked = sa.values(tag, name="asked").data([(unit_tag,) for unit_tag in unit_tags]).cte()
    seek = sa.select(units.c.position).where(units.c.kb_id == kb_id, units.c.unit_tag == asked.c.tag)
    rows = connection.execute(sa.select(asked.c.tag, seek.scalar_subquery()))
    return {bytes(tag): position for tag, position in rows if position is not None}


def _stored(connection: sa.Connection, kb_id: int, batch: Sequence[Record]) -> set[tuple[bytes, bytes]]:
    """Tags of the unit and of the content of those records that are stored, by one index seek a record."""
    positions = _known_positions(connection, kb_id, {record.unit_tag for record in batch})
    known = {record[:2] for record in batch if record.unit_tag in positions}
    if not known:
        return set()
    owner, at, tag = (
        sa.column("owner", sa.LargeBinary),
        sa.column("at", sa.BigInteger),
        sa.column("tag", sa.LargeBinary),
    )
    listed = [(unit_tag, positions[unit_tag], content_tag) for unit_tag, content_tag in known]
    asked = sa.values(owner, at, tag, name="asked").data(listed).cte()
    here = (exemplars.c.kb_id == kb_id, exemplars.c.position == asked.c.at, exemplars.c.content_tag == asked.c.tag)
    seek = sa.select(exemplars.c.position).where(*here).scalar_subquery()
    rows = connection.execute(sa.select(asked.c.owner, asked.c.tag, seek))
    return {(bytes(owner), bytes(tag)) for owner, tag, position in rows if position is not None}


def _check_stored_sizes(
    connection: sa.Connection, row: KnowledgeBaseRow, dimension: int, positions: Sequence[int]
) -> None:
    """Refuse units that are too large together with what earlier uploads stored, by the lengths of their rows."""
    added = OVERHEAD_BYTES + overhead(dimension, response=row.response_field is not None)
    size = sa.func.length(exemplars.c.payload) - added
    too_large = sa.or_(
        sa.func.count() > MAX_EXEMPLARS_PER_UNIT,
        sa.func.max(size) > MAX_EXEMPLAR_BYTES,
        sa.func.sum(size) > MAX_UNIT_BYTES,
    )
    of_units = sa.select(exemplars.c.position).group_by(exemplars.c.position).having(too_large)
    count = 0
    for start in range(0, len(positions), WRITE_BATCH):
        batch = sa.literal(positions[start : start + WRITE_BATCH], NUMBERS)
        some = among(connection.dialect.name, exemplars.c.position, batch)
        count += len(connection.execute(of_units.where(exemplars.c.kb_id == row.id, some)).all())
    if count:
        raise UnitTooLargeError(count)
