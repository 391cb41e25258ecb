"""The topic of each unit, in each task that has topics: found once, and kept for life.

A unit's topic is that of most of its exemplars (of equals, the one named first), a function of its own exemplars and of
public things. It is found once: when the plan is signed, for every unit that ever arrived, or when the unit first
arrives. From then on it stays, whatever becomes of the unit's exemplars: a unit that changed its topic could be drawn
for the answers of two, and only those of one are paid for. To be on no topic is for life, too. Else a unit could get
one between the charge of an answer and its draw, in an upload that a restore loses unnoticed, and another one later.

A unit has a position for life (:mod:`exemplar_store.tables`), so topics are kept as numbers by position, in pages that
are encrypted whole: who reads the database learns neither a unit's topic nor how many units a topic has.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from exemplar_store.cohorts import Spans
from exemplar_store.encryption import KnowledgeBaseKeys
from exemplar_store.errors import TamperedError
from exemplar_store.exemplar import Exemplar
from exemplar_store.knowledge_base import KnowledgeBaseRow
from exemplar_store.nearness import closest, rounded
from exemplar_store.reading import Edition, Stored, by_unit, open_fields, open_vectors, read_exemplars
from exemplar_store.tables import exemplars as exemplars_table
from exemplar_store.tables import unit_topics

NumberOf = Callable[[Mapping[str, str]], int | None]
"""The number of an exemplar's topic by its fields, from 0, which depends on them and on public things; None: none."""

PAGE = 4096
"""Positions of a page."""
_NUMBER = np.dtype("<u2")
_UNITS_AT_ONCE = 100


@dataclass(frozen=True, eq=False)
class TopicList:
    """The topics of a task. An exemplar's topic depends on this exemplar and on public things.

    Attributes:
        version: version of the signed plan.
        task: name of the task.
        count: number of topics.
        by: function of an exemplar's fields; or the topics' centres, int8 (topics, d), of which the one most similar
            to the rounded embedding is the exemplar's.
    """

    version: int
    task: str
    count: int
    by: NumberOf | np.ndarray

    @property
    def column(self) -> sa.Column[bytes]:
        """The column that an exemplar's topic is found by."""
        return exemplars_table.c.vector if isinstance(self.by, np.ndarray) else exemplars_table.c.payload

    def of_rows(self, keys: KnowledgeBaseKeys, names: Sequence[str], rows: Sequence[Stored]) -> np.ndarray:
        """The topics of some exemplars, from 1; 0: none, or it does not open. int64 (rows,).

        Args:
            keys: the knowledge base's encryption keys.
            names: names of its fields.
            rows: exemplars with the value of :attr:`column`.
        """
        numbered = dict(enumerate(rows))
        found = np.zeros(len(rows), np.int64)
        if isinstance(self.by, np.ndarray):
            vectors = open_vectors(keys, numbered)
            here = [number for number, vector in vectors.items() if len(vector) == self.by.shape[1]]
            packed = np.frombuffer(b"".join(vectors[number] for number in here), np.int8)
            found[here] = 1 + closest(self.by, packed.reshape(len(here), self.by.shape[1]))
        else:
            for number, fields in open_fields(keys, names, numbered).items():
                topic = self.by(fields)
                found[number] = 0 if topic is None else 1 + topic
        return found

    def of_unit(self, found: np.ndarray) -> int:
        """The topic of a unit, that most of its exemplars are on; of equals the first; from 1; 0: none of them is.

        Args:
            found: the exemplars' topics, from :meth:`of_rows`.
        """
        counts = Counter(found[found > 0].tolist())
        return min(counts, key=lambda number: (-counts[number], number), default=0)


@dataclass(frozen=True)
class OnTopic:
    """The topic whose units an answer draws.

    Attributes:
        topics: topics of the task.
        number: number of the topic, from 0.
    """

    topics: TopicList
    number: int

    def shown(self, exemplars: Iterable[Exemplar]) -> tuple[Exemplar, ...]:
        """The exemplars that are on the topic, of those given, with their embeddings if these decide."""
        return tuple(exemplar for exemplar in exemplars if self._is_of(exemplar))

    def _is_of(self, exemplar: Exemplar) -> bool:
        by = self.topics.by
        if not isinstance(by, np.ndarray):
            return by(exemplar.fields) == self.number
        vector = exemplar.embedding
        return (
            vector is not None and len(vector) == by.shape[1] and closest(by, rounded(vector)[None])[0] == self.number
        )


def find(
    connection: sa.Connection, row: KnowledgeBaseRow, keys: KnowledgeBaseKeys, topics: TopicList, positions: np.ndarray
) -> np.ndarray:
    """The topics of the units at some positions by all their exemplars: int64 (units,), from 1; 0: none.

    The time this takes reveals how many exemplars there are.
    """
    found = np.zeros(positions.size, np.int64)
    for start in range(0, positions.size, _UNITS_AT_ONCE):
        some = positions[start : start + _UNITS_AT_ONCE]
        stored = read_exemplars(connection, Edition.of(row), some, topics.column)
        each = topics.of_rows(keys, row.fields, stored)
        found[start : start + _UNITS_AT_ONCE] = [topics.of_unit(each[numbers]) for numbers in by_unit(stored, some)]
    return found


def keep(
    connection: sa.Connection,
    row: KnowledgeBaseRow,
    keys: KnowledgeBaseKeys,
    topics: TopicList,
    first: int,
    found: np.ndarray,
) -> None:
    """Write down the topics of units that these are first found of. The work depends on the number of units alone.

    Args:
        connection: connection in a transaction that has locked the knowledge base.
        row: row of the knowledge base.
        keys: the knowledge base's encryption keys.
        topics: topics of the task.
        first: position of the first of these units, whose positions follow each other.
        found: numbers of their topics, int (units,), from 1; 0: none.

    Raises:
        TamperedError: the recorded topics were changed outside this program.
    """
    end = first + len(found)
    for page in range(first // PAGE, -(-end // PAGE)) if len(found) else ():
        start = page * PAGE
        numbers, written = _page(connection, row.id, keys, topics, page)
        # 0 is written, too: of an upload that was never published, another unit's topic may be there.
        numbers[max(first - start, 0) : end - start] = found[max(start - first, 0) : start + PAGE - first]
        sealed = keys.encrypt_topics(numbers.tobytes(), _place(topics.version, topics.task, page))
        here = {"kb_id": row.id, "version": topics.version, "task": topics.task, "page": page}
        if written:
            this = [unit_topics.c[name] == value for name, value in here.items()]
            connection.execute(sa.update(unit_topics).where(*this).values(sealed=sealed))
        else:
            connection.execute(sa.insert(unit_topics).values(**here, sealed=sealed))


def assign(
    connection: sa.Connection,
    row: KnowledgeBaseRow,
    keys: KnowledgeBaseKeys,
    lists: Iterable[TopicList],
    positions: range,
) -> None:
    """Find the topics of units that arrive for the first time, and write them down.

    Args:
        connection: connection in the transaction that stored these units and has locked the knowledge base.
        row: row of the knowledge base, its fields and embeddings as they are now.
        keys: the knowledge base's encryption keys.
        lists: the topics of every task that has some.
        positions: positions of the units, none of which was there before.

    Raises:
        TamperedError: the recorded topics were changed outside this program.
    """
    for topics in lists:
        found = find(connection, row, keys, topics, np.array(positions, np.int64))
        keep(connection, row, keys, topics, positions.start, found)


def on_topic(
    connection: sa.Connection, kb_id: int, keys: KnowledgeBaseKeys, topic: OnTopic, spans: Spans
) -> np.ndarray:
    """The positions of the units that are on a topic: int64, ascending.

    All pages of the task are read, whatever the topic. A page that does not open is left out, in silence.

    Args:
        connection: connection to the database.
        kb_id: id of the knowledge base.
        keys: the knowledge base's encryption keys.
        topic: topic to draw from.
        spans: positions of the units that may be drawn.
    """
    topics = topic.topics
    of_task = (unit_topics.c.kb_id == kb_id, unit_topics.c.version == topics.version, unit_topics.c.task == topics.task)
    pages = sa.select(unit_topics.c.page, unit_topics.c.sealed).where(*of_task)
    rows = sorted(connection.execute(pages).all(), key=lambda row: row.page)
    opened = (keys.decrypt_topics(bytes(row.sealed), _place(topics.version, topics.task, row.page)) for row in rows)
    whole = b"".join(page or bytes(PAGE * _NUMBER.itemsize) for page in opened)
    here = np.flatnonzero(np.frombuffer(whole, _NUMBER) == topic.number + 1)
    positions = np.array([row.page for row in rows], np.int64)[here // PAGE] * PAGE + here % PAGE
    may = np.zeros(positions.size, bool)
    for first, end in spans:
        may |= (positions >= first) & (positions < end)
    return positions[may]


def keep_pages(
    connection: sa.Connection, table: sa.Table, keys: KnowledgeBaseKeys, topics: TopicList, units: int, pages: int
) -> None:
    """Write pages on which the first units are on the first topic and no others on any; they are made up.

    Args:
        connection: connection to the database.
        table: table like the one of units' topics.
        keys: keys to encrypt them.
        topics: topics of the task.
        units: number of units.
        pages: number of pages.
    """
    numbers = np.zeros((pages, PAGE), _NUMBER)
    numbers.reshape(-1)[:units] = 1
    here = {"kb_id": 0, "version": topics.version, "task": topics.task}
    sealed = (keys.encrypt_topics(n.tobytes(), _place(topics.version, topics.task, i)) for i, n in enumerate(numbers))
    connection.execute(sa.insert(table), [{**here, "page": page, "sealed": of} for page, of in enumerate(sealed)])


def reencrypt_pages(connection: sa.Connection, kb_id: int, before: KnowledgeBaseKeys, after: KnowledgeBaseKeys) -> None:
    """Encrypt all pages of a knowledge base under other keys; one that does not open stays as it is."""
    for row in connection.execute(sa.select(unit_topics).where(unit_topics.c.kb_id == kb_id)).all():
        place = _place(row.version, row.task, row.page)
        opened = before.decrypt_topics(bytes(row.sealed), place)
        if opened is None:
            continue
        this = [unit_topics.c[name] == getattr(row, name) for name in ("kb_id", "version", "task", "page")]
        sealed = after.encrypt_topics(opened, place)
        connection.execute(sa.update(unit_topics).where(*this).values(sealed=sealed))


def _page(
    connection: sa.Connection, kb_id: int, keys: KnowledgeBaseKeys, topics: TopicList, page: int
) -> tuple[np.ndarray, bool]:
    """A page's numbers, uint16 (PAGE,), and whether it is written down."""
    named = {"kb_id": kb_id, "version": topics.version, "task": topics.task, "page": page}
    this = [unit_topics.c[name] == value for name, value in named.items()]
    sealed = connection.scalar(sa.select(unit_topics.c.sealed).where(*this))
    if sealed is None:
        return np.zeros(PAGE, _NUMBER), False
    opened = keys.decrypt_topics(bytes(sealed), _place(topics.version, topics.task, page))
    if opened is None or len(opened) != PAGE * _NUMBER.itemsize:
        raise TamperedError(
            "Which units are on which topic does not open under the knowledge base's key: a row was changed or moved "
            "outside this program. Restore the database from a backup."
        )
    return np.frombuffer(opened, _NUMBER).copy(), True


def _place(version: int, task: str, page: int) -> bytes:
    """Place of a page, outside of which it does not open."""
    return f"topics {version} {page} {task}".encode()
