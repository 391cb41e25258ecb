"""Ingest: an upload is checked whole, embedded, and then stored whole, or not at all."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import NUMBERS, among, empty_write_ahead_log, insert_new, reading
from exemplar_store.encryption import OVERHEAD_BYTES, KnowledgeBaseKeys, place
from exemplar_store.errors import (
    BadRowError,
    EmbeddingError,
    UnitTooLargeError,
    UnknownKnowledgeBaseError,
    UploadLostError,
)
from exemplar_store.exemplar import (
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    embeddings_of,
    halved,
    overhead,
    pack,
    values,
)
from exemplar_store.keyring import Keyring
from exemplar_store.knowledge_base import (
    BeforeCommit,
    KnowledgeBase,
    KnowledgeBaseRow,
    Progress,
    as_published,
    change,
    do_nothing,
)
from exemplar_store.nearness import rounded
from exemplar_store.reading import Edition, asked_for, is_there
from exemplar_store.rows import Row, row_content
from exemplar_store.spool import Record, Spool
from exemplar_store.staging import BATCH, Staging, begin
from exemplar_store.tables import exemplars, units
from exemplar_store.topics import TopicList, find, keep

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to unit vectors, float array (n, d)."""

EMBED_BATCH = 2048
"""Texts that are given to the embedder at once: enough of them that batches of one length are mostly full."""
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
    skip_forgotten: bool
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
    skipped_units: int = 0
    """Units that were forgotten, and are left out."""
    skipped_rows: int = 0
    """Rows of the upload that are theirs."""


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
        done, skipped = _Written(), _Skipped()
        if len(checked):
            if not upload.dry_run:
                upload = replace(upload, announce=cache(upload.announce))
            while True:
                with suppress(_ForgottenError):
                    done, skipped = _store(upload, knowledge_base, keys, embed, checked)
                    break
        return IngestReport(
            exemplars=done.exemplars,
            units=done.units,
            replaced=done.replaced,
            returned=len(done.returned),
            already_there=len(checked) - done.exemplars - skipped.rows,
            skipped_units=len(skipped.unit_tags),
            skipped_rows=skipped.rows,
            ignored_fields=tuple(sorted(ignored)),
        )


class _ForgottenError(Exception):
    """A unit was forgotten before the upload was published, and the upload relied on it, or is to leave it out."""


@dataclass
class _Skipped:
    """What an upload leaves out: all of units that were forgotten."""

    rows: int = 0
    unit_tags: set[bytes] = field(default_factory=set)


@dataclass
class _Written:
    """What an upload has written so far."""

    exemplars: int = 0
    units: int = 0
    replaced: int = 0
    returned: set[int] = field(default_factory=set)
    """Positions of forgotten units that are back."""
    known: set[int] = field(default_factory=set)
    """Positions of units stored before this upload that are in it."""
    relied_on: set[int] = field(default_factory=set)
    """Positions of those of which it leaves exemplars alone that are there already."""


def _store(
    upload: IngestOptions, knowledge_base: KnowledgeBase, keys: KnowledgeBaseKeys, embed: Embed | None, checked: Spool
) -> tuple[_Written, _Skipped]:
    """Embed what is not there yet, write it, and publish it.

    Raises:
        _ForgottenError: nothing was stored; try again.
    """
    with Spool() as new, Spool() as there, Spool() as embedded:
        skipped = _divide(upload, checked, new, there)
        if embed is None:
            return _write(upload, keys, new, there, 0, upload.progress), skipped
        dimension = _embed(knowledge_base, new, embed, embedded, upload.progress, len(there))
        return _write(upload, keys, embedded, there, dimension, do_nothing), skipped


def _divide(upload: IngestOptions, checked: Spool, new: Spool, there: Spool) -> _Skipped:
    """Put the records of exemplars that are stored already apart, without their bodies: they need no embedding.

    An upload that replaces its units' exemplars needs all of them. Those of forgotten units are left out, if they are
    to be skipped.
    """
    skipped = _Skipped()
    for batch in checked.batches(BATCH):
        with reading(upload.database) as connection:
            row, _ = upload.keyring.open(connection, upload.name)
            edition, positions = Edition.of(row), _known_positions(connection, row.id, batch)
            arrived = {at for at in positions.values() if at < row.next_position}
            forgotten = _forgotten(connection, edition, arrived) if upload.skip_forgotten else set()
            stored = set() if upload.replace else _stored(connection, edition, positions, batch)
        for record in batch:
            if positions.get(record.unit_tag) in forgotten:
                skipped.rows += 1
                skipped.unit_tags.add(record.unit_tag)
            elif record[:2] in stored:
                there.append(record._replace(body=b""))
            else:
                new.append(record)
    return skipped


def _check(knowledge_base: KnowledgeBase, keys: KnowledgeBaseKeys, rows: Iterable[Row], checked: Spool) -> set[str]:
    """Check all rows and collect them; returns columns that are not fields.

    Raises:
        BadRowError: a row is not valid.
        UnitTooLargeError: a unit is too large in the upload alone.
    """
    names, tag_of = set(knowledge_base.fields), keys.unit_tagger()
    ignored: set[str] = set()
    count, size = Counter[bytes](), Counter[bytes]()
    for row in rows:
        if row.fields.keys() != names:
            wrong = min(names ^ row.fields.keys())
            raise BadRowError(row.number, wrong, f"knowledge base {knowledge_base.name!r} has other fields")
        if len(ignored) < _MAX_IGNORED:
            ignored.update(row.ignored)
        unit_tag = tag_of(row.unit_id)
        body = row_content(row.number, row.fields, knowledge_base.fields, knowledge_base.max_exemplar_bytes)
        checked.append(Record(unit_tag, keys.content_tag(unit_tag, body), body))
        count[unit_tag] += 1
        size[unit_tag] += len(body)
    # Few units, if any, need a closer look: all rows' tags would be a lot to hold.
    large = {tag for tag in count if count[tag] > MAX_EXEMPLARS_PER_UNIT or size[tag] > MAX_UNIT_BYTES}
    _check_sizes(checked, large)
    return ignored


def _check_sizes(checked: Spool, large: Iterable[bytes]) -> None:
    """Refuse those units of some, by tag, that are too large in the upload alone. Repeated exemplars count once."""
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
        by_text = dict(zip(distinct, halved(vectors), strict=True))
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
    upload: IngestOptions, tagged_with: KnowledgeBaseKeys, new: Spool, there: Spool, dimension: int, progress: Progress
) -> _Written:
    """Write an upload and publish it. Uploads to one knowledge base take turns here (:mod:`exemplar_store.staging`).

    Args:
        upload: destination of the records.
        tagged_with: the keys that the records' tags were made with.
        new: records to store.
        there: records that must be stored already.
        dimension: length of the embeddings; 0: there are none.
        progress: called with the number of records stored.

    Raises:
        _ForgottenError: nothing was stored; try again.
    """
    if not upload.dry_run:
        upload.announce()
    with reading(upload.database) as connection:
        row, _ = upload.keyring.open(connection, upload.name)
    staging = begin(upload.database, row.id)
    try:
        with reading(upload.database) as connection:
            row, keys = upload.keyring.open(connection, upload.name)
        if keys.check != tagged_with.check:
            raise UnknownKnowledgeBaseError(
                f"Knowledge base {upload.name!r} was deleted and created anew meanwhile. Upload again."
            )
        if row.embedding_dimension not in (None, dimension):
            raise EmbeddingError(
                f"Another upload filled knowledge base {upload.name!r} with embeddings of length "
                f"{row.embedding_dimension}, this one has {dimension}."
            )
        writer = _Writer(upload, staging, row, keys, dimension)
        writer.rely_on(there)
        writer.write(new, lambda done: progress(len(there) + done, len(there) + len(new)))
        if upload.dry_run:
            staging.clear()
        else:
            writer.publish()
    except BaseException:
        # What cannot be cleared now, since the database is down, is cleared once this process is taken for dead.
        with suppress(sa.exc.SQLAlchemyError, UploadLostError):
            staging.clear()
        raise
    if upload.replace and not upload.dry_run:
        with suppress(sa.exc.SQLAlchemyError, UploadLostError):  # likewise
            staging.clear()
            empty_write_ahead_log(upload.database)
    return writer.written


class _Writer:
    """Writes an upload's records to its staging.

    Args:
        upload: destination of the records.
        staging: the right to write it.
        row: row of the knowledge base.
        keys: the knowledge base's encryption keys.
        dimension: length of the embeddings; 0: there are none.
    """

    def __init__(
        self,
        upload: IngestOptions,
        staging: Staging,
        row: KnowledgeBaseRow,
        keys: KnowledgeBaseKeys,
        dimension: int,
    ) -> None:
        self._upload, self._staging, self._row, self._keys = upload, staging, row, keys
        self._dimension = dimension
        self._published, self._own = Edition.of(row), Edition(row.id, row.uploads + 1)
        self._next_position = row.next_position
        self.written = _Written()

    def rely_on(self, there: Spool) -> None:
        """Note the units of which exemplars are left alone.

        Raises:
            _ForgottenError: an exemplar is not there.
        """
        for batch in there.batches(BATCH):
            with reading(self._upload.database) as connection:
                positions = _known_positions(connection, self._row.id, batch)
                if {record[:2] for record in batch} != _stored(connection, self._published, positions, batch):
                    raise _ForgottenError
            self.written.relied_on.update(positions.values())
        self.written.known |= self.written.relied_on

    def write(self, new: Spool, progress: Callable[[int], None]) -> None:
        """Write records, and check how large their units become.

        Raises:
            UnitTooLargeError: a unit would be too large.
        """
        done = 0
        for batch in new.batches(BATCH):
            self._write(batch)
            done += len(batch)
            progress(done)
        self._check_sizes()

    def publish(self) -> None:
        """Show the upload, whole, to all readers.

        Raises:
            _ForgottenError: a unit was forgotten meanwhile that the upload relied on, or is to leave out.
        """
        having_topics: set[tuple[int, str]] = set()
        while (missing := self._publish(having_topics)) is not None:
            for topics in missing:
                self._find_topics(topics)
                having_topics.add((topics.version, topics.task))

    def _publish(self, having_topics: set[tuple[int, str]]) -> list[TopicList] | None:
        """Publish; or return the topics that new units must be given before that."""
        new = self._next_position > self._row.next_position
        with self._staging.batch() as connection:
            row, _ = self._upload.keyring.open(connection, self._upload.name, lock=True)
            lists = self._upload.topics(connection)
            # A plan may be signed at any time before this transaction, and at none within it.
            missing = [topics for topics in lists if new and (topics.version, topics.task) not in having_topics]
            if missing:
                return missing
            forgotten = self._staging.forgotten(connection) & self.written.known
            if forgotten & self.written.relied_on or (forgotten and self._upload.skip_forgotten):
                raise _ForgottenError
            self.written.returned |= forgotten
            model = self._upload.keyring.embedding_model if self._dimension else None
            embedded = {"embedding_dimension": self._dimension, "embedding_model": model}
            change(connection, row, uploads=self._own.upload, next_position=self._next_position, **embedded)
            self._upload.before_commit(connection)
            if not self._upload.replace:
                self._staging.end(connection)
        return None

    def _write(self, batch: Sequence[Record]) -> None:
        """Write a batch. All but the writing itself comes before its transaction."""
        kb_id = self._row.id
        with reading(self._upload.database) as connection:
            positions = _known_positions(connection, kb_id, batch)
            earlier = {at for at in positions.values() if at < self._row.next_position} - self.written.known
            returned = _forgotten(connection, self._published, earlier)
            if returned and self._upload.skip_forgotten:
                raise _ForgottenError
            self.written.returned |= returned
            there = set() if self._upload.replace else _stored(connection, self._published, positions, batch)
        self.written.relied_on.update(positions[unit_tag] for unit_tag, _ in there)
        self.written.known |= earlier
        arrivals = []
        for unit_tag in dict.fromkeys(record.unit_tag for record in batch):
            if unit_tag not in positions:
                positions[unit_tag] = self._next_position
                arrivals.append({"kb_id": kb_id, "position": self._next_position, "unit_tag": unit_tag})
                self._next_position += 1
        rows = self._encrypted([record for record in batch if record[:2] not in there], positions)
        with self._staging.batch() as connection:
            if self._upload.replace and earlier:
                self.written.replaced += _replace(connection, self._own, earlier)
            if arrivals:
                connection.execute(sa.insert(units), arrivals)
            if rows:
                self.written.exemplars += connection.execute(insert_new(connection, exemplars), rows).rowcount
        self.written.units += len(arrivals)

    def _encrypted(self, records: Sequence[Record], positions: Mapping[bytes, int]) -> list[dict[str, object]]:
        rows = []
        bodies = [body for *_, body in records]
        vectors = rounded(embeddings_of(bodies, self._dimension)) if self._dimension and bodies else None
        for number, (unit_tag, content_tag, body) in enumerate(records):
            at = positions[unit_tag]
            here = place(at, content_tag)
            payload = self._keys.encrypt(body if self._dimension else pack(body), here)
            vector = None if vectors is None else self._keys.encrypt_vector(vectors[number].tobytes(), here)
            stays = {"kb_id": self._row.id, "position": at, "content_tag": content_tag}
            uploads = {"stored_in": self._own.upload, "replaced_in": 0}
            rows.append({**stays, **uploads, "vector": vector, "payload": payload})
        return rows

    def _find_topics(self, topics: TopicList) -> None:
        """Give the units that arrive the topics of a task."""
        for start in range(self._row.next_position, self._next_position, BATCH):
            positions = np.arange(start, min(start + BATCH, self._next_position))
            with reading(self._upload.database) as connection:
                as_it_will_be = {"uploads": self._own.upload, "embedding_dimension": self._dimension}
                row = as_published(connection, self._row, **as_it_will_be)
                found = find(connection, row, self._keys, topics, positions)
            with self._staging.batch() as connection:
                keep(connection, row, self._keys, topics, int(positions[0]), found)

    def _check_sizes(self) -> None:
        """Refuse units that are too large together with what earlier uploads stored, by the lengths of their rows."""
        grown, count = sorted(self.written.known), 0
        for start in range(0, len(grown), BATCH):
            with reading(self._upload.database) as connection:
                count += _too_large(connection, self._row, self._own, self._dimension, grown[start : start + BATCH])
        if count:
            raise UnitTooLargeError(count)


def _forgotten(connection: sa.Connection, edition: Edition, positions: Iterable[int]) -> set[int]:
    """Those of some units, all known, that have no exemplars."""
    asked = among(connection.dialect.name, units.c.position, sa.literal(sorted(positions), NUMBERS))
    theirs = exemplars.c.kb_id == edition.kb_id, exemplars.c.position == units.c.position
    without = ~sa.exists().where(*theirs, is_there(edition.upload))
    return set(connection.scalars(sa.select(units.c.position).where(units.c.kb_id == edition.kb_id, asked, without)))


def _replace(connection: sa.Connection, edition: Edition, positions: Iterable[int]) -> int:
    """Mark the exemplars of some units as replaced in an upload; returns their number."""
    at = among(connection.dialect.name, exemplars.c.position, sa.literal(sorted(positions), NUMBERS))
    theirs = exemplars.c.kb_id == edition.kb_id, at, is_there(edition.upload - 1)
    return connection.execute(sa.update(exemplars).where(*theirs).values(replaced_in=edition.upload)).rowcount


def _known_positions(connection: sa.Connection, kb_id: int, batch: Sequence[Record]) -> dict[bytes, int]:
    """The positions of known units of a batch by their tags, by one index seek a unit."""
    tags = list({record.unit_tag for record in batch})
    asked = {"of": kb_id, "positions": [0] * len(tags), "tags": b"".join(tags)}
    rows = connection.execute(_seeking_units(connection.dialect.name), asked).all()
    return {tags[number]: position for number, position in rows if position is not None}


@cache
def _seeking_units(dialect: str) -> sa.Select[int, int]:
    """Built once: that takes longer than to execute it.

    Asked for ``kb_id = ... AND unit_tag IN (...)``, SQLite (and PostgreSQL, before its first ANALYZE) reads all units
    of the knowledge base instead, for every batch: uploads would cost the square of the number of units.
    """
    number, _, tag = asked_for(dialect)
    seek = sa.select(units.c.position).where(units.c.kb_id == sa.bindparam("of"), units.c.unit_tag == tag)
    return sa.select(number, seek.scalar_subquery())


def _stored(
    connection: sa.Connection, edition: Edition, positions: Mapping[bytes, int], batch: Sequence[Record]
) -> set[tuple[bytes, bytes]]:
    """Tags of the unit and of the content of those records that are there, by one index seek a record.

    Args:
        connection: connection to the database.
        edition: edition of the knowledge base.
        positions: positions of the batch's known units.
        batch: records.
    """
    known = list({record[:2] for record in batch if record.unit_tag in positions})
    if not known:
        return set()
    places = {"positions": [positions[unit_tag] for unit_tag, _ in known], "tags": b"".join(tag for _, tag in known)}
    asked = {"of": edition.kb_id, "upload": edition.upload, **places}
    rows = connection.execute(_seeking_exemplars(connection.dialect.name), asked).all()
    return {known[number] for number, position in rows if position is not None}


@cache
def _seeking_exemplars(dialect: str) -> sa.Select[int, int]:
    number, position, tag = asked_for(dialect)
    here = exemplars.c.position == position, exemplars.c.content_tag == tag, is_there(sa.bindparam("upload"))
    seek = sa.select(exemplars.c.position).where(exemplars.c.kb_id == sa.bindparam("of"), *here)
    return sa.select(number, seek.scalar_subquery())


def _too_large(
    connection: sa.Connection, row: KnowledgeBaseRow, edition: Edition, dimension: int, positions: Sequence[int]
) -> int:
    """Number of units at some positions that are too large."""
    added = OVERHEAD_BYTES + overhead(dimension, response=row.response_field is not None)
    size = sa.func.length(exemplars.c.payload) - added
    too_large = sa.or_(
        sa.func.count() > MAX_EXEMPLARS_PER_UNIT,
        sa.func.max(size) > row.max_exemplar_bytes,
        sa.func.sum(size) > MAX_UNIT_BYTES,
    )
    some = among(connection.dialect.name, exemplars.c.position, sa.literal(positions, NUMBERS))
    here = exemplars.c.kb_id == row.id, some, is_there(edition.upload)
    of_units = sa.select(exemplars.c.position).where(*here).group_by(exemplars.c.position).having(too_large)
    return len(connection.execute(of_units).all())
