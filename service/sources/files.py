"""Rows of a file: on this disk or at any address that fsspec knows, in the format that its name ends in."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

import fsspec
from charset_normalizer import from_bytes
from fsspec.utils import infer_compression

from exemplar_store import Layout, Row, read_csv, read_json_lines
from service.sources.tables import read_arrow, read_folder, read_parquet

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ENDINGS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".feather")
_SAMPLE_BYTES = 1 << 20
_UTF8 = "utf-8"
_COMMON = "cp1252"


@dataclass(frozen=True, slots=True)
class Source:
    """An open source of rows."""

    described: str
    """Its format, with what was found out about it."""
    rows: Callable[[Layout], Iterator[Row]]


@contextmanager
def open_file(where: str, *, encoding: str | None = None, delimiter: str | None = None) -> Iterator[Source]:
    """Open a file or a folder of rows.

    Args:
        where: a path, or an address such as ``s3://bucket/tickets.parquet``. A file's name ends in .jsonl, .ndjson,
            .csv, .tsv, .parquet, .arrow or .feather, perhaps with .gz or the like behind it; a folder holds Parquet
            files, or is a Hugging Face dataset saved to disk.
        encoding: of text, instead of what it looks like.
        delimiter: between two cells of CSV, instead of what it looks like.

    Raises:
        ValueError: there is no such file, its format is not known, or what reads it is not installed.
        LookupError: there is no such encoding.
        OSError: it cannot be read.
    """
    try:
        files, path = fsspec.url_to_fs(where)
        compression = infer_compression(path)
        ending = PurePosixPath(path.removesuffix(PurePosixPath(path).suffix) if compression else path).suffix.lower()
        if ending in _ENDINGS:
            with fsspec.open(where, "rb", compression=compression) as stream:
                yield _source(ending, cast("BinaryIO", stream), encoding, delimiter)
        elif files.isdir(path):
            yield Source("a folder of tables", lambda layout: read_folder(files, path, layout))
        elif files.exists(path):
            raise ValueError(f"{where}: its name must end in {', '.join(_ENDINGS)}, so that its format is known")
        else:
            raise FileNotFoundError
    except FileNotFoundError:
        raise ValueError(f"{where}: there is no such file") from None
    except (EOFError, zlib.error, lzma.LZMAError):
        raise ValueError(f"{where}: it is cut off or damaged where it is compressed; copy it again") from None
    except ImportError as error:
        raise ValueError(f"{where}: {error}") from None


def _source(ending: str, stream: BinaryIO, encoding: str | None, delimiter: str | None) -> Source:
    if ending == ".parquet":
        return Source("Parquet", lambda layout: read_parquet(stream, layout))
    if ending in (".arrow", ".feather"):
        return Source("Arrow", lambda layout: read_arrow(stream, layout))
    buffered = io.BufferedReader(cast("io.RawIOBase", stream), _SAMPLE_BYTES)
    sample = buffered.peek(_SAMPLE_BYTES)
    encoding = encoding or _encoding(sample)
    lines: BinaryIO = buffered
    if codecs.lookup(encoding).name != _UTF8:
        lines = io.BufferedReader(_InUtf8(io.TextIOWrapper(buffered, encoding, newline="")))
    if ending in (".jsonl", ".ndjson"):
        return Source(f"JSON Lines in {encoding}", lambda layout: read_json_lines(lines, layout))
    mark = delimiter or ("\t" if ending == ".tsv" else _delimiter(sample.decode(encoding, "replace")))
    return Source(f"CSV in {encoding} with {mark!r} between cells", lambda layout: read_csv(lines, layout, mark))


class _InUtf8(io.RawIOBase):
    """A text, in UTF-8 whatever its encoding."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self._rest = text, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        encoded = self._rest or self._text.read(len(view)).encode()
        part, self._rest = encoded[: len(view)], encoded[len(view) :]
        view[: len(part)] = part
        return len(part)


def _encoding(sample: bytes) -> str:
    """UTF-8 if it can be; else what it looks like, or the most common other one where no language is recognised."""
    if _decodes(sample, _UTF8):
        return _UTF8
    best = from_bytes(sample).best()
    if best is None:
        return _UTF8  # whose error names the line
    common = _COMMON in best.could_be_from_charset or (best.coherence == 0 and _decodes(sample, _COMMON))
    return _COMMON if common else best.encoding


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(sample)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _delimiter(sample: str) -> str:
    """What the header has most of, among the usual ones, outside of quotes."""
    header = sample.lstrip("\ufeff").partition("\n")[0]
    cells = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in ",;\t|"}
    return max(cells, key=lambda mark: cells[mark])
