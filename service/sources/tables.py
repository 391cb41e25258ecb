"""Records of Parquet and Arrow, a batch at a time. Needs pyarrow.

Of columns that are not needed none is converted: it may hold values that Python has no type for. No error repeats a
value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

from exemplar_store.rows import NAMED_TWICE, SourceRecords, Unreadable, within

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
        records: records without the other columns and those that share a name, whose names are added.
    """
    left_out: dict[str, object] = {} if needed is None else dict.fromkeys(names)
    left_out |= dict.fromkeys(repeated(names), NAMED_TWICE)
    return SourceRecords(((number, {**left_out, **record}) for number, record in enumerate(records, start=1)), names)


def wanted(names: Sequence[str], needed: Collection[str] | None) -> list[str]:
    """Names of the columns to read: those needed (None: all of them), without those that share a name."""
    twice, read = repeated(names), None if needed is None else {within(name, names) for name in needed}
    return [name for name in names if (read is None or name in read) and name not in twice]


def repeated(names: Sequence[str]) -> set[str]:
    """Names that several columns share."""
    return {name for name in names if names.count(name) > 1}


def read_parquet(stream: BinaryIO, needed: Collection[str] | None) -> SourceRecords:
    """Records of a Parquet file.

    Raises:
        ValueError: the file is not Parquet, or pyarrow is not installed. Reading the records raises it, too, where the
            file is damaged.
    """
    parquet = _pyarrow("parquet")
    with _reading("Parquet"):
        file = parquet.ParquetFile(stream)
        names = file.schema_arrow.names
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=wanted(names, needed))
    return table_records(names, needed, _records(batches, names, needed, "Parquet"))


def read_arrow(stream: BinaryIO, needed: Collection[str] | None) -> SourceRecords:
    """Records of an Arrow file (Feather), or of an Arrow stream, as Hugging Face datasets are on disk.

    Raises:
        ValueError: the file is not Arrow, or pyarrow is not installed. Reading the records raises it, too, where the
            file is damaged.
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
    read, unread = wanted(names, needed), iter(batches)
    while True:
        with _reading(kind):
            if (batch := next(unread, None)) is None:
                return
        columns = {name: _values(batch.column(name)) for name in read}
        for place in range(batch.num_rows):
            yield {name: column[place] for name, column in columns.items()}


def _values(column: Array) -> list[Any]:
    """The values of a column of a batch."""
    with suppress(Exception):  # of whatever kind; it quotes the value
        values: list[Any] = column.to_pylist()
        return values
    wrong = Unreadable(f"is {_article(str(column.type))} that cannot be read; write the column as text")
    values = []
    for place in range(len(column)):
        try:
            values.append(column[place].as_py())
        except Exception:
            values.append(wrong)
    return values


def _article(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


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
