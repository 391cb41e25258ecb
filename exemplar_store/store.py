"""Knowledge bases: create, ingest, forget, sample."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import sqlalchemy as sa

from exemplar_store import knowledge_base, sampling, unit_ids
from exemplar_store.blocks import members
from exemplar_store.cohorts import FIRST, add, spans, unrecognised
from exemplar_store.dialects import empty_write_ahead_log, insert_new, overwrite_deleted, reading
from exemplar_store.encryption import SALT_BYTES, TAG_BYTES, KnowledgeBaseKeys
from exemplar_store.errors import (
    InvalidUnitIdError,
    KnowledgeBaseExistsError,
    KnowledgeBaseNotEmptyError,
    UnknownKnowledgeBaseError,
    UnknownUnitError,
    UnrecognisedUnitsError,
)
from exemplar_store.exemplar import MAX_EXEMPLAR_BYTES, Slot
from exemplar_store.ingest import Embed, IngestOptions, IngestReport, ingest
from exemplar_store.keyring import Keyring
from exemplar_store.knowledge_base import BeforeCommit, KnowledgeBase, KnowledgeBaseRow, Progress, describe, do_nothing
from exemplar_store.made_up import LargestSample, reading_s
from exemplar_store.nearness import Nearest
from exemplar_store.parts import Part
from exemplar_store.reading import Edition, Stored, by_unit, fill, is_there, list_exemplars, read_exemplars, read_listed
from exemplar_store.reencryption import reencrypt
from exemplar_store.rows import Row
from exemplar_store.slots import SlotRule, read_slots
from exemplar_store.staging import clear_abandoned, note_forgotten
from exemplar_store.tables import exemplars, knowledge_bases, units
from exemplar_store.topics import OnTopic, TopicList, assign, find, keep, on_topic

Slots = list[Slot]
"""One query's slots."""


def _no_topics(_connection: sa.Connection) -> Iterable[TopicList]:
    return ()


_UNITS_AT_ONCE = 100  # read; each has at most a quarter of a mebibyte


class ExemplarStore:
    """Private exemplars, by knowledge base and privacy unit, encrypted at rest.

    May be shared by threads. Every method but :meth:`create` opens its own transaction.

    Args:
        database: SQLite or PostgreSQL, with the tables of ``exemplar_store.tables``.
        master: the master key, 32 bytes; see :func:`exemplar_store.load_key`.
        embedding_model: identifier of the model that embeds here. Embeddings of another model are refused.

    Raises:
        WrongKeyError: the database was written under another master key.
    """

    def __init__(self, database: sa.Engine, master: bytes, embedding_model: str = "") -> None:
        self._database = database
        self.keyring = Keyring(database, master, embedding_model)

    def create(
        self,
        connection: sa.Connection,
        name: str,
        *,
        public_size: int,
        fields: Sequence[str],
        embedded_field: str,
        response_field: str | None = None,
        max_exemplar_bytes: int = MAX_EXEMPLAR_BYTES,
        remote_engine: bool = False,
    ) -> KnowledgeBase:
        """Create an empty knowledge base, in the caller's transaction (which also opens its budget).

        Args:
            connection: connection to the same database, in a transaction that the caller commits.
            name: 1 to 64 small letters, digits, '-' and '_'.
            public_size: number of exemplars declared as public; never computed from the exemplars.
            fields: names of an exemplar's fields, in the order they are kept.
            embedded_field: the one whose embedding is stored.
            response_field: another one whose embedding is stored, so that an answer taken from an exemplar comes with
                its own; None for none.
            max_exemplar_bytes: the most bytes that an exemplar may have. Answers take as long as with exemplars of
                this size, so a smaller one makes them faster. None of these can be changed later.
            remote_engine: whether exemplars may be shown to an engine outside the deployment, in clear text.

        Raises:
            InvalidKnowledgeBaseError: an argument that cannot be.
            KnowledgeBaseExistsError: the name is taken. Roll the transaction back.
        """
        knowledge_base.check_description(name, public_size, fields, embedded_field, response_field)
        knowledge_base.check_max_exemplar_bytes(max_exemplar_bytes)
        salt = os.urandom(SALT_BYTES)
        created = connection.execute(
            insert_new(connection, knowledge_bases)
            .values(
                name=name,
                public_size=public_size,
                fields=list(fields),
                embedded_field=embedded_field,
                response_field=response_field,
                max_exemplar_bytes=max_exemplar_bytes,
                remote_engine=remote_engine,
                key_salt=salt,
                key_check=self.keyring.of_new(connection, salt).check,
                next_position=0,
                uploads=0,
                later_cohorts=[],
                created_at=datetime.now(UTC),
            )
            .returning(*knowledge_bases.c)
        ).one_or_none()
        if created is None:
            raise KnowledgeBaseExistsError(f"There is a knowledge base named {name!r} already; choose another name.")
        return describe(created)

    def delete(self, connection: sa.Connection, name: str) -> None:
        """Delete a knowledge base that never had a unit, in the caller's transaction (which also deletes its budget).

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            KnowledgeBaseNotEmptyError: units have arrived; they may have been forgotten since.
        """
        if (row := knowledge_base.find(connection, name, lock=True)) is None:
            raise UnknownKnowledgeBaseError(f"There is no knowledge base named {name!r}.")
        if not knowledge_base.delete_empty(connection, row):
            raise KnowledgeBaseNotEmptyError(
                f"Exemplars were stored in knowledge base {name!r}, so it cannot be deleted. Archive it instead."
            )

    def get(self, name: str) -> KnowledgeBase:
        """The knowledge base of this name.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            WrongKeyError: it was written under another encryption key.
        """
        with self._read() as connection:
            return describe(self.keyring.open(connection, name)[0])

    def list(self) -> list[KnowledgeBase]:
        """All knowledge bases, by name.

        Raises:
            WrongKeyError: one was written under another encryption key. (A service calls this before it starts.)
            OtherEmbeddingModelError: one was embedded by another model.
        """
        with self._read() as connection:
            rows = connection.execute(sa.select(knowledge_bases).order_by(knowledge_bases.c.name)).all()
            for row in rows:
                self.keyring.of(row)
        return [describe(row) for row in rows]

    def allow_remote_engine(self, name: str, allowed: bool, before_commit: BeforeCommit = do_nothing) -> KnowledgeBase:
        """Decide whether exemplars may be shown to an engine outside the deployment; in force from the next query.

        Args:
            name: the knowledge base.
            allowed: whether they may.
            before_commit: further work of the caller in the same transaction, done last.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            WrongKeyError: it was written under another encryption key.
        """
        with self._database.begin() as connection:
            row, _ = self.keyring.open(connection, name, lock=True)
            knowledge_base.change(connection, row, remote_engine=allowed)
            before_commit(connection)
            return describe(self.keyring.open(connection, name)[0])

    def open_cohort(self, name: str, public_size: int, before_commit: Callable[[sa.Connection, int], None]) -> int:
        """Open a cohort: units that arrive for the first time from now on belong to it permanently.

        Args:
            name: the knowledge base.
            public_size: number of the cohort's exemplars declared as public; never computed from the exemplars.
            before_commit: gives it its budget, in the same transaction, last.

        Returns:
            The cohort's number.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            UnrecognisedUnitsError: a unit that was there once would not be recognised.
            InvalidKnowledgeBaseError: the public size is out of its range.
        """
        knowledge_base.check_public_size(public_size)
        with self._read() as connection:  # all units are counted before the lock: how long that takes is private
            before, _ = self.keyring.open(connection, name)
            lost = unrecognised(connection, before)
        with self._database.begin() as connection:
            row, _ = self.keyring.open(connection, name, lock=True)
            if lost or unrecognised(connection, row, before.next_position):
                raise UnrecognisedUnitsError(name)
            number = add(connection, row, public_size)
            before_commit(connection, number)
        return number

    def ingest(
        self,
        name: str,
        rows: Iterable[Row],
        embed: Embed | None = None,
        progress: Progress = do_nothing,
        before_commit: BeforeCommit = do_nothing,
        *,
        announce: Callable[[], None] = do_nothing,
        replace: bool = False,
        dry_run: bool = False,
        skip_forgotten: bool = False,
        topics: Callable[[sa.Connection], Iterable[TopicList]] = _no_topics,
    ) -> IngestReport:
        """Add exemplars to a knowledge base: all of the upload, or none of it.

        First all rows are read and checked, then embedded, then written in batches that no reader sees, then published
        at once (:mod:`exemplar_store.staging`); before that they lie encrypted in a temporary file. An exemplar that
        its unit has already is left alone, so an upload may be sent again. Uploads may run side by side.

        Args:
            name: the knowledge base.
            rows: from :mod:`exemplar_store.rows`; their errors pass through.
            embed: texts to unit vectors, float array (n, d); called with up to 64 texts. None stores no embeddings.
                One knowledge base has them for all its exemplars, of one length, or for none.
            progress: called now and then with the number of exemplars embedded (stored, without ``embed``) so far,
                and of all.
            before_commit: further work of the caller in the transaction that publishes, done last.
            announce: called before anything is stored, and so before any of it can be drawn.
            replace: whether to delete, at the same moment, what the units of this upload had before, as :meth:`forget`
                does: the upload is all there is of them.
            dry_run: whether to do all but embed and publish.
            skip_forgotten: whether to leave out units that were forgotten; otherwise they come back.
            topics: returns the topics of every task, as of a transaction: units that arrive for the first time get
                theirs.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            BadRowError: a row is not valid; nothing was stored.
            UnitTooLargeError: a unit would be larger than a unit may be; nothing was stored.
            UploadLostError: this process was interrupted for long, and another one cleared the upload.
            EmbeddingError: embeddings that do not fit; nothing was stored.
        """
        with self._read() as connection:
            row, keys = self.keyring.open(connection, name)
        upload = IngestOptions(
            self._database,
            self.keyring,
            name,
            embed,
            progress,
            before_commit,
            announce,
            replace,
            dry_run,
            skip_forgotten,
            topics,
        )
        return ingest(upload, describe(row), keys, rows)

    def forget(self, name: str, unit_id: str, before_commit: BeforeCommit = do_nothing) -> int:
        """Delete a unit: its exemplars and their embeddings. Its tag and its position stay.

        A reader without the keys cannot recognise the unit by its tag. If the unit comes back, it is known by it and
        is in its former cohort (:mod:`exemplar_store.cohorts`): what it has paid there, it has paid.

        On SQLite the bytes are overwritten in the file and the write-ahead log is emptied (if a reader is in the
        way, that happens at its next full checkpoint). On PostgreSQL they go with the next VACUUM. Copies live on
        in backups, replicas, archived logs and storage snapshots, encrypted, until those are dropped. Answers
        released before stay released; they are what the privacy guarantee is about.

        Args:
            name: the knowledge base.
            unit_id: id of the unit.

        Returns:
            The number of exemplars deleted.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            InvalidUnitIdError: no unit can have this id.
            UnknownUnitError: it does not hold this unit.
        """
        if why := unit_ids.problem(unit_ids.canonical(unit_id)):
            raise InvalidUnitIdError(why)
        with self._database.begin() as connection:
            row, keys = self.keyring.open(connection, name, lock=True)
            overwrite_deleted(connection)
            here = units.c.kb_id == row.id, units.c.position < row.next_position
            unit = sa.select(units.c.position).where(*here, units.c.unit_tag == keys.unit_tag(unit_id))
            position = connection.scalar(unit)
            of_unit = exemplars.c.kb_id == row.id, exemplars.c.position == position
            deleted = connection.execute(sa.delete(exemplars).where(*of_unit, is_there(row.uploads))).rowcount
            if position is None or not deleted:
                raise UnknownUnitError(f"Knowledge base {name!r} holds no unit of this id; nothing was deleted.")
            # Those that an upload replaced, if they are still to be cleared.
            connection.execute(sa.delete(exemplars).where(*of_unit, exemplars.c.stored_in <= row.uploads))
            note_forgotten(connection, row, position)
            before_commit(connection)
        clear_abandoned(self._database, row.id)
        empty_write_ahead_log(self._database)
        return deleted

    def clear_abandoned(self) -> None:
        """Delete what uploads left whose processes died, and no reader ever saw (:mod:`exemplar_store.staging`)."""
        clear_abandoned(self._database)

    def reencrypt(self, progress: Progress, before_commit: BeforeCommit = do_nothing) -> int:
        """Encrypt all exemplars under a new data key (:mod:`exemplar_store.reencryption`).

        In one transaction, for which no other process may have the database open. This store cannot be used afterwards:
        it has the old data key open.

        Args:
            progress: called now and then with the number of units done so far, and of all.
            before_commit: further work of the caller in the same transaction, done last.

        Returns:
            How many exemplars did not open, since their rows were changed outside this program. They stay as they were,
            and queries leave them out, as before.

        Raises:
            DatabaseInUseError: another process has it open; nothing was changed.
            WrongKeyError: the master key was changed since this store was opened.
        """
        return reencrypt(self._database, self.keyring, progress, before_commit)

    def sample_slots(
        self,
        name: str,
        *,
        probability: float,
        ensemble: int,
        max_exemplars: int,
        cohorts: Sequence[int] = FIRST,
        arrived: int | None = None,
        embeddings: bool = True,
        nearest: Nearest | None = None,
        topic: OnTopic | None = None,
    ) -> Slots:
        """Draw one query's slots: Poisson sampling of units, each to a slot of its own choosing.

        Each unit is drawn independently with ``probability``; each drawn unit, with all its exemplars, goes to a
        slot chosen uniformly and independently of the others; a slot keeps at most ``max_exemplars``, chosen and
        ordered by independent random priorities. So adding or removing a unit changes the content of one slot.
        See :mod:`exemplar_store.sampling`. Of the drawn units' exemplars only those kept are read
        (:mod:`exemplar_store.slots`).
        How long that takes depends on the drawn units' sizes, which ingest bounds (:mod:`exemplar_store.exemplar`).

        With ``nearest``, a slot shows some of those that it keeps: the nearest to a question, which is a function of
        what this slot keeps and of the question (:mod:`exemplar_store.nearness`).

        An exemplar that does not open (its row was changed or moved outside this program) is left out of its slot,
        in silence: an error or a log line would show which units were drawn, and would let one unit's row decide
        over the whole answer rather than over one slot.

        Args:
            name: the knowledge base.
            probability: probability of each unit, 0 to 1, a public number.
            ensemble: number of slots.
            max_exemplars: largest number of exemplars in a slot.
            cohorts: numbers of those whose units may be drawn.
            arrived: number of units that had arrived when the answer was charged (:class:`KnowledgeBase`); units that
                came later are not drawn. None: all may be drawn.
            embeddings: whether exemplars come with theirs, which takes longer.
            nearest: the question, and the number that a slot shows; None: all that it keeps.
            topic: draw the units that are on it and no others, and leave out their exemplars on other topics; None:
                there are no topics.

        Returns:
            ``ensemble`` slots; a slot to which no unit was sent is the empty tuple.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            ValueError: a probability, ensemble or maximum out of its range.
        """
        if ensemble < 1 or max_exemplars < 1:
            raise ValueError(f"ensemble ({ensemble}) and max_exemplars ({max_exemplars}) must be at least 1")
        with self._read() as connection:
            row, keys = self.keyring.open(connection, name)
            ranges = spans(row, cohorts, arrived)
            if topic is None:
                positions = sampling.sample_spans(ranges, probability)
            else:
                on_it = on_topic(connection, row.id, keys, topic, ranges)
                positions = on_it[sampling.poisson_sample(on_it.size, probability)]
            slots = sampling.below(ensemble, positions.size)
            rule = SlotRule(ensemble, max_exemplars, topic, nearest)
            stored, kept = read_slots(connection, Edition.of(row), keys, row.fields, positions, slots, rule)
        return _fill(row, keys, stored, kept, embeddings=embeddings)

    def topics_of(self, name: str, topics: TopicList) -> np.ndarray:
        """The topic of every unit that has arrived, by its exemplars as they are: int64 (units,), from 1; 0: none.

        The time this takes reveals how many exemplars there are.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
        """
        with self._read() as connection:
            row, keys = self.keyring.open(connection, name)
            return find(connection, row, keys, topics, np.arange(row.next_position))

    def lock(self, connection: sa.Connection, name: str) -> None:
        """Keep others from storing exemplars in a knowledge base until the caller's transaction ends.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
        """
        self.keyring.open(connection, name, lock=True)

    def keep_topics(self, connection: sa.Connection, name: str, topics: TopicList, found: np.ndarray) -> None:
        """Write down which topic each unit is on, in the transaction that signs the plan, after :meth:`lock`.

        Args:
            connection: the transaction that signs the plan.
            name: name of the knowledge base.
            topics: topics of a task that has none written down yet.
            found: topics from :meth:`topics_of`. Units that arrived since get theirs now.
        """
        row, keys = self.keyring.open(connection, name)
        keep(connection, row, keys, topics, 0, found)
        assign(connection, row, keys, [topics], range(found.size, row.next_position))

    def sample_blocks(
        self,
        name: str,
        *,
        probability: float,
        blocks: int,
        most: int | None = None,
        max_exemplars: int,
        cohorts: Sequence[int] = FIRST,
        arrived: int | None = None,
        embeddings: bool = True,
    ) -> Slots:
        """Draw one query's slots: Poisson sampling of blocks of units, each block a slot of its own.

        A unit's block depends on its keyed tag and the number of blocks alone (:mod:`exemplar_store.blocks`). Each
        block is drawn independently with ``probability``; each drawn block is a slot, which keeps its first
        ``max_exemplars`` in an order of keyed hashes that no query changes. So a block makes the same prompt
        whenever it is drawn, until an exemplar of its units is ingested or forgotten; and adding or removing a unit
        changes the content of one slot.

        If more than ``most`` blocks are drawn, the sample is empty. Whether that happens depends on the coins alone,
        not on any unit: all other blocks' coins fixed, a unit's block is drawn as before, or never used.

        The number of slots, empty ones included, is random and depends on no exemplar. Still it must not be public:
        an attacker who knew it would know better than ``probability`` whether a unit took part.

        Exemplars that do not open, and the time it takes: as in :meth:`sample_slots`.

        Args:
            name: the knowledge base.
            probability: probability of each block, 0 to 1, a public number.
            blocks: number of blocks, a public number that stays the same for all of a task's queries.
            most: largest number of them in a sample, a public number; None: any number.
            max_exemplars: largest number of exemplars in a slot.
            cohorts: numbers of those whose units may be drawn.
            arrived: number of units that had arrived, as in :meth:`sample_slots`.
            embeddings: whether exemplars come with theirs, which takes longer.

        Returns:
            A slot per drawn block, in order of the blocks; where a block has no units, the empty tuple.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
            ValueError: a probability, number of blocks or maximum out of its range.
        """
        if blocks < 1 or max_exemplars < 1:
            raise ValueError(f"blocks ({blocks}) and max_exemplars ({max_exemplars}) must be at least 1")
        with self._read() as connection:
            row, keys = self.keyring.open(connection, name)
            drawn = sampling.poisson_sample(blocks, probability)
            if most is not None and drawn.size > most:
                drawn = drawn[:0]
            positions, slots = members(connection, row.id, spans(row, cohorts, arrived), drawn, blocks)
            listed = list_exemplars(connection, Edition.of(row), positions)
            holder = slots[positions.searchsorted(listed.positions)]
            order = np.frombuffer(listed.content_tags, f"S{TAG_BYTES}")
            kept = sampling.deal(holder, order, drawn.size, max_exemplars)
            stored = read_listed(connection, Edition.of(row), listed, kept)
        return _fill(row, keys, stored, kept, embeddings=embeddings)

    def reading_s(self, sample: LargestSample) -> float:
        """Seconds to find and read the rows of the largest sample, which are made up; no private one is read."""
        return reading_s(self._database, sample)

    def every_unit(
        self, name: str, cohorts: Sequence[int] = FIRST, *, arrived: int | None = None, part: Part | None = None
    ) -> Iterator[Slot]:
        """The exemplars of every unit of some cohorts, with their embeddings, unit by unit, all as of one moment.

        For a release that is made of all of them, which must let no unit count for more than its
        sensitivity allows. An exemplar that does not open is left out in silence, as in :meth:`sample_slots`; a unit
        may so be left with none. The time this takes reveals how many exemplars there are.

        Args:
            name: the knowledge base.
            cohorts: numbers of the cohorts.
            arrived: number of units that had arrived, as in :meth:`sample_slots`.
            part: part of these units to read; None: all.

        Raises:
            UnknownKnowledgeBaseError: no knowledge base has this name.
        """
        with self._read() as connection:
            row, keys = self.keyring.open(connection, name)
            ranges = spans(row, cohorts, arrived)
            starts = ((first, end) for start, end in ranges for first in range(start, end, _UNITS_AT_ONCE))
            for first, end in starts:
                stop = min(first + _UNITS_AT_ONCE, end)
                here = np.arange(first, stop)
                positions = here if part is None else part.positions(connection, row.id, keys, first, stop)
                stored = read_exemplars(connection, Edition.of(row), positions)
                kept = by_unit(stored, positions)
                # A unit that was forgotten, or of which no exemplar can be decrypted, fills no slot.
                yield from filter(None, _fill(row, keys, dict(enumerate(stored)), kept, embeddings=True))

    def _read(self) -> sa.Connection:
        """A connection all of whose statements see the same state, so that keys and what they open belong together."""
        connection = reading(self._database)
        if connection.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ")
        return connection


def _fill(
    row: KnowledgeBaseRow,
    keys: KnowledgeBaseKeys,
    stored: dict[int, Stored],
    kept: Sequence[np.ndarray],
    *,
    embeddings: bool,
) -> Slots:
    """The slots, outside the transaction that read them."""
    dimension = (row.embedding_dimension or 0) if embeddings else 0
    return fill(keys, row.fields, dimension, stored, kept, response=row.response_field is not None)
