"""Rows of Parquet and Arrow, a batch at a time. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

from exemplar_store import BadRowError, Layout, Row

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from pyarrow import RecordBatch

Read = Callable[[BinaryIO, Layout], Iterator[Row]]

_BATCH_ROWS = 1000


def numbered(names: Sequence[str], records: Iterable[Mapping[str, object]], layout: Layout) -> Iterator[Row]:
    """Rows, counted from 1.

    Args:
        names: all columns, also those that the records leave out.
        records: with at least the columns that the layout needs.
        layout: which columns are what.

    Raises:
        BadRowError: a column is missing, or a row is not valid.
    """
    layout.require(1, names)
    left_out = dict.fromkeys(names)
    for number, record in enumerate(records, start=1):
        yield layout.row(number, left_out | dict(record))


def read_parquet(stream: BinaryIO, layout: Layout) -> Iterator[Row]:
    """Rows of a Parquet file, of which only the columns that are needed are read.

    Raises:
        BadRowError: see :func:`numbered`.
        ValueError: it is no Parquet file, or pyarrow is not installed.
    """
    parquet = _pyarrow("parquet").ParquetFile(stream)
    names = parquet.schema_arrow.names
    return _rows(names, parquet.iter_batches(batch_size=_BATCH_ROWS, columns=_needed(names, layout)), layout)


def read_arrow(stream: BinaryIO, layout: Layout) -> Iterator[Row]:
    """Rows of an Arrow file (Feather), or of an Arrow stream, as Hugging Face datasets are on disk.

    Raises:
        BadRowError: see :func:`numbered`.
        ValueError: it is neither, or pyarrow is not installed.
    """
    ipc = _pyarrow("ipc")
    if stream.read(6) == b"ARROW1":
        file = ipc.open_file(stream)
        return _rows(file.schema.names, map(file.get_batch, range(file.num_record_batches)), layout)
    stream.seek(0)
    reader = ipc.open_stream(stream)
    return _rows(reader.schema.names, reader, layout)


def read_folder(files: AbstractFileSystem, path: str, layout: Layout) -> Iterator[Row]:
    """Rows of a folder's Parquet files, or of a Hugging Face dataset that was saved there; in the order of names.

    Raises:
        ValueError: the folder holds neither, a row is not valid (which names its file), or pyarrow is not installed.
    """
    kinds: tuple[tuple[Read, str], ...] = ((read_parquet, "**/*.parquet"), (read_arrow, "*.arrow"))
    for read, pattern in kinds:
        if matching := sorted(files.glob(f"{path}/{pattern}")):
            return (row for file in matching for row in _of_file(read, files, file, layout))
    splits = sorted({file.rpartition("/")[0] for file in files.glob(f"{path}/*/*.arrow")})
    named = f": it is one of {', '.join(splits)} that does" if splits else ""
    raise ValueError(f"{path} holds neither Parquet files nor a dataset saved to disk{named}")


def _of_file(read: Read, files: AbstractFileSystem, file: str, layout: Layout) -> Iterator[Row]:
    with files.open(file, "rb") as stream:
        try:
            yield from read(stream, layout)
        except BadRowError as error:
            raise ValueError(f"{file}: {error}") from None


def _rows(names: Sequence[str], batches: Iterable[RecordBatch], layout: Layout) -> Iterator[Row]:
    return numbered(names, (record for batch in batches for record in batch.to_pylist()), layout)


def _needed(names: Sequence[str], layout: Layout) -> list[str]:
    wanted = {layout.unit_id, *map(layout.column, layout.fields)}
    return [name for name in names if name in wanted]


def _pyarrow(part: str) -> ModuleType:
    try:
        return import_module(f"pyarrow.{part}")
    except ImportError:
        raise ValueError("Parquet and Arrow need pyarrow: pip install 'dp-icl[tables]'") from None
