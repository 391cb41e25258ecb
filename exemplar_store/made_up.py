"""Made-up rows and slots as large as private ones can be, read and opened as those are: to measure what they take."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import reading
from exemplar_store.encryption import SALT_BYTES, TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.exemplar import Slot, content, halved, pack
from exemplar_store.nearness import Nearest
from exemplar_store.reading import Edition, fill
from exemplar_store.slots import SlotRule, read_slots
from exemplar_store.tables import exemplars as private
from exemplar_store.tables import unit_topics
from exemplar_store.topics import PAGE, OnTopic, TopicList, keep_pages, on_topic

_READS = 5
_MOST_ROWS, _MOST_PAGES = 8192, 1024
_ROWS_AT_ONCE = 256
_RANKED_BYTES = 1024
_EDITION = Edition(0, 1)


def made_up_slots(
    contents: Sequence[Mapping[str, str]], dimension: int, *, response: bool, exemplars: int
) -> Callable[[], list[Slot]]:
    """A function that opens slots of made-up exemplars: each is decrypted and unpacked by itself as a drawn one is.

    Args:
        contents: content of each slot's exemplars, which are equal; all with the same fields.
        dimension: length of their embeddings, 0 for none.
        response: whether they also have an embedding of their response.
        exemplars: number of exemplars in each slot.
    """
    keys = KnowledgeBaseKeys(os.urandom(32), os.urandom(SALT_BYTES))
    vectors = halved(np.full((1 + response, dimension), dimension**-0.5)) if dimension else []
    names, tag = list(contents[0]), bytes(TAG_BYTES)
    payloads = [keys.encrypt(pack(content(fields, names), *vectors), place(0, tag)) for fields in contents]
    stored = {number: (0, tag, payloads[number // exemplars]) for number in range(len(contents) * exemplars)}
    kept = list(np.arange(len(stored)).reshape(-1, exemplars))
    return lambda: fill(keys, names, dimension, stored, kept, response=response)


@dataclass(frozen=True, eq=False)
class LargestSample:
    """A sample than which none is larger.

    Attributes:
        slots: number of slots.
        kept: number of exemplars that each keeps.
        shown: number of these that each shows.
        fields: content of each exemplar, which is filled up to its size.
        bytes: size of each exemplar.
        dimension: length of the exemplars' embeddings, 0 for none.
        response: whether they also have an embedding of their response.
        topics: topics of the task, found with as much work as any exemplar's can take, of which the first is that of
            every exemplar; None: there are none.
        pages: pages on which the units' topics are.
    """

    slots: int
    kept: int
    shown: int
    fields: Mapping[str, str]
    bytes: int
    dimension: int
    response: bool
    topics: TopicList | None = None
    pages: int = 0


def reading_s(database: sa.Engine, sample: LargestSample) -> float:
    """Seconds to find and read made-up rows by the code of a draw, the median of a few times.

    They are in temporary tables, which go when the transaction ends.

    Args:
        database: database that private rows are read from.
        sample: sample to read. Of more than a few thousand rows, or pages, some are read and the others get time in
            proportion.
    """
    slots = max(1, min(sample.slots, _MOST_ROWS // sample.kept))
    units, topics = slots * sample.kept, sample.topics
    pages = max(-(-units // PAGE), min(sample.pages, _MOST_PAGES)) if topics else 0
    nearest = Nearest(np.ones(sample.dimension), sample.shown) if sample.shown < sample.kept else None
    rule = SlotRule(slots, sample.kept, OnTopic(topics, 0) if topics else None, nearest)
    # On SQLite rows that lie all over a large file are read in twice the time, on PostgreSQL in the same (measured).
    temporary, scattered = ("temp", 2) if database.dialect.name == "sqlite" else ("pg_temp", 1)
    found_s, read_s = [], []
    # The schema is named, so that no statement can mean the real tables.
    with reading(database).execution_options(schema_translate_map={None: temporary}) as connection:
        keys = KnowledgeBaseKeys(os.urandom(32), os.urandom(SALT_BYTES))
        rows = _created(connection, private)
        for first in range(0, units, _ROWS_AT_ONCE):
            some = range(first, min(first + _ROWS_AT_ONCE, units))
            connection.execute(sa.insert(rows), [_row(sample, keys, slots, number) for number in some])
        if topics:
            keep_pages(connection, _created(connection, unit_topics), keys, topics, units, pages)
        for _ in range(_READS):
            started, positions = time.monotonic(), np.arange(units)
            if rule.topic:
                positions = on_topic(connection, 0, keys, rule.topic, [(0, units)])
            found = time.monotonic()
            in_database, holders = _Stopwatch(), positions % slots
            names = [*sample.fields]
            _, shown = read_slots(connection, _EDITION, keys, names, positions, holders, rule, in_database)
            found_s.append(scattered * (found - started))
            read_s.append(time.monotonic() - found + (scattered - 1) * in_database.seconds)
            if [len(numbers) for numbers in shown] != [sample.shown] * slots:
                raise AssertionError("made-up exemplars are not shown as drawn ones are")
    every_page = max(1.0, sample.pages / pages) if pages else 1.0
    every_slot = sample.slots / slots
    return statistics.median(found_s) * every_page + statistics.median(read_s) * every_slot


class _Stopwatch(AbstractContextManager["_Stopwatch"]):
    """Counts the seconds that are spent within it."""

    seconds = 0.0

    def __enter__(self) -> "_Stopwatch":
        self._since = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._since


def _created(connection: sa.Connection, like: sa.Table) -> sa.Table:
    columns = (sa.Column(column.name, column.type, primary_key=column.primary_key) for column in like.c)
    made_up = sa.Table(like.name, sa.MetaData(), *columns)
    made_up.create(connection, checkfirst=False)
    return made_up


def _row(sample: LargestSample, keys: KnowledgeBaseKeys, slots: int, number: int) -> dict[str, object]:
    """A made-up unit's one exemplar. Of equally near ones a slot shows those with the first tags, and reads them."""
    by, is_shown = sample.topics and sample.topics.by, number // slots < sample.shown
    tag = bytes([not is_shown]) + os.urandom(TAG_BYTES - 1)
    at = place(number, tag)
    vector = by[0] if isinstance(by, np.ndarray) else np.ones(sample.dimension, np.int8)
    payload = os.urandom(_RANKED_BYTES)  # of one that is only ranked, this is not read
    if is_shown or (sample.topics and not isinstance(by, np.ndarray)):
        halves = halved(np.zeros((1 + sample.response, sample.dimension)))
        packed = content(sample.fields, [*sample.fields]).ljust(sample.bytes)  # still JSON
        payload = keys.encrypt(pack(packed, *halves), at)
    sealed = keys.encrypt_vector(vector.tobytes(), at) if sample.dimension else None
    stays = {"kb_id": 0, "position": number, "content_tag": tag, "stored_in": 1, "replaced_in": 0}
    return {**stays, "vector": sealed, "payload": payload}
