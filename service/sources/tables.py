"""Records of Parquet and Arrow, a batch at a time. Needs pyarrow.

Only the needed columns are read: another may hold values that Python has no type for. No error repeats a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

from exemplar_store import BadRowError
from exemplar_store.rows import SourceRecords

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

_BATCH_ROWS = 1000


def table_records(
    names: Sequence[str], needed: Collection[str] | None, records: Iterable[Mapping[str, object]]
) -> SourceRecords:
    """Records of a table, counted from 1.

    Args:
        names: names of all columns.
        needed: names of the columns that the records hold; None: all of them.
        records: records without the other columns, whose names are added.
    """
    left_out = {} if needed is None else dict.fromkeys(names)
    return SourceRecords(((number, {**left_out, **record}) for number, record in enumerate(records, start=1)), names)


def read_parquet(stream: BinaryIO, needed: Collection[str] | None) -> SourceRecords:
    """Records of a Parquet file.

    Raises:
        ValueError: the file is not Parquet, or pyarrow is not installed. Reading the records raises it, too, where the
            file is damaged, and :class:`BadRowError` for a value that cannot be read.
    """
    parquet = _pyarrow("parquet")
    with _reading("Parquet"):
        file = parquet.ParquetFile(stream)
        names = file.schema_arrow.names
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=_wanted(names, needed))
    return table_records(names, needed, _records(batches, names, needed, "Parquet"))


def read_arrow(stream: BinaryIO, needed: Collection[str] | None) -> SourceRecords:
    """Records of an Arrow file (Feather), or of an Arrow stream, as Hugging Face datasets are on disk.

    Raises:
        ValueError: the file is not Arrow, or pyarrow is not installed. Reading the records raises it, too, where the
            file is damaged, and :class:`BadRowError` for a value that cannot be read.
    """
    ipc = _pyarrow("ipc")
    batches: Iterable[RecordBatch]
    with _reading("Arrow"):
        if stream.read(6) == b"ARROW1":
            file = ipc.open_file(stream)
            names, batches = file.schema.names, map(file.get_batch, range(file.num_record_batches))
        else:
            stream.seek(0)
            reader = ipc.open_stream(stream)
            names, batches = reader.schema.names, reader
    return table_records(names, needed, _records(batches, names, needed, "Arrow"))


def _records(
    batches: Iterable[RecordBatch], names: Sequence[str], needed: Collection[str] | None, kind: str
) -> Iterator[Mapping[str, object]]:
    wanted, done, unread = _wanted(names, needed), 0, iter(batches)
    while True:
        with _reading(kind):
            if (batch := next(unread, None)) is None:
                return
        columns = {name: _values(batch.column(name), name, done) for name in wanted}
        for place in range(batch.num_rows):
            yield {name: column[place] for name, column in columns.items()}
        done += batch.num_rows


def _values(column: Array, name: str, before: int) -> list[Any]:
    """The values of a column of a batch; ``before`` is the number of rows in earlier batches."""
    with suppress(Exception):  # of whatever kind; it quotes the value
        values: list[Any] = column.to_pylist()
        return values
    for number, value in enumerate(column, start=before + 1):
        try:
            value.as_py()
        except Exception:
            problem = f"is {_article(str(column.type))} that cannot be read; write the column as text"
            raise BadRowError(number, name, problem) from None
    raise BadRowError(before + 1, name, "begins a part of the column that cannot be read; write the column as text")


def _article(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def _wanted(names: Sequence[str], needed: Collection[str] | None) -> list[str]:
    return [name for name in names if needed is None or name in needed]


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Raise pyarrow's errors as a message that the file is not of this format, or is damaged."""
    try:
        yield
    except (_pyarrow("lib").ArrowException, OSError) as error:  # the former's words may quote what is in the file
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"it is not {kind}, or it is cut off or damaged; copy it again") from None


def _pyarrow(part: str) -> ModuleType:
    try:
        return import_module(f"pyarrow.{part}")
    except ImportError:
        raise ValueError("Parquet and Arrow need pyarrow: pip install 'dp-icl[tables]'") from None
