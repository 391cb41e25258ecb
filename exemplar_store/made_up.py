"""Made-up rows and slots as large as private ones can be, read and opened as those are: to measure what they take."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import reading
from exemplar_store.encryption import SALT_BYTES, TAG_BYTES, KnowledgeBaseKeys, place
from exemplar_store.exemplar import Slot, content, pack
from exemplar_store.nearness import Nearest
from exemplar_store.reading import fill, list_exemplars, read_listed, read_nearest
from exemplar_store.tables import exemplars as private

_READS = 5
_RANKED_BYTES = 1024


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
    vectors = [np.full(dimension, dimension**-0.5, np.float32)] * (1 + response) if dimension else []
    names, tag = list(contents[0]), bytes(TAG_BYTES)
    payloads = [keys.encrypt(pack(content(fields, names), *vectors), place(0, tag)) for fields in contents]
    stored = {number: (0, tag, payloads[number // exemplars]) for number in range(len(contents) * exemplars)}
    kept = list(np.arange(len(stored)).reshape(-1, exemplars))
    return lambda: fill(keys, names, dimension, stored, kept, response=response)


def reading_s(database: sa.Engine, rows: int, size: int, *, ranked: int = 0, dimension: int = 0) -> float:
    """Seconds to find and read made-up rows, the median of a few times.

    They are in a temporary table, which goes when the transaction ends.

    Args:
        database: database that private rows are read from.
        rows: number of rows.
        size: bytes of each row's payload.
        ranked: number of further rows whose embeddings are read and ranked first.
        dimension: length of these embeddings.
    """
    columns = (sa.Column(column.name, column.type, primary_key=column.primary_key) for column in private.c)
    made_up, payload = sa.Table(private.name, sa.MetaData(), *columns), os.urandom(size)
    # On SQLite rows that lie all over a large file take twice as long, on PostgreSQL no longer (measured).
    temporary, scattered = ("temp", 2) if database.dialect.name == "sqlite" else ("pg_temp", 1)
    took = []
    # The schema is named, so that no statement can mean the real table.
    with reading(database).execution_options(schema_translate_map={None: temporary}) as connection:
        made_up.create(connection, checkfirst=False)
        keys = KnowledgeBaseKeys(os.urandom(32), os.urandom(SALT_BYTES))
        near, far = (level.to_bytes(1, signed=True) * dimension for level in (1, -1))
        new = []
        for row in range(rows + ranked):
            tag = os.urandom(TAG_BYTES)
            sealed = keys.encrypt_vector(near if row < rows else far, place(row, tag)) if ranked else None
            # Of what is only ranked, the payload is not read.
            held = payload if row < rows else payload[:_RANKED_BYTES]
            new.append({"kb_id": 0, "position": row, "content_tag": tag, "vector": sealed, "payload": held})
        connection.execute(sa.insert(made_up), new)
        for _ in range(_READS):
            started = time.monotonic()
            listed = list_exemplars(connection, 0, np.arange(rows + ranked))
            kept = [np.arange(rows + ranked)]
            if ranked:
                wanted = Nearest(np.ones(dimension, np.float32), rows)
                kept = read_nearest(connection, 0, keys, listed, kept, wanted)
            read_listed(connection, 0, listed, kept)
            took.append(time.monotonic() - started)
    return scattered * statistics.median(took)
