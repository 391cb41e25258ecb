"""Rows of a file: on this disk or at any address that fsspec knows, in the format that its name's ending shows."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath
from statistics import median
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

import fsspec

from exemplar_store import BadRowError, Layout, Row
from exemplar_store.errors import MissingColumnError, NotUtf8Error
from exemplar_store.rows import MAX_LINE_CHARACTERS, SourceRecords, csv_records, json_records
from service.connections import http_options
from service.sources import compressed
from service.sources.encodings import UTF8, as_utf8, check_marked, encoding_of, not_utf8
from service.sources.folders import check_no_table, parquet_files, saved_dataset
from service.sources.reading import AS_IT_IS, Reading, SentRows
from service.sources.tables import read_arrow, read_parquet
from service.sources.workbooks import WORKBOOKS, read_sheet, sheet_records

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_JSON = (".jsonl", ".ndjson")
_TABLES = {".parquet": ("Parquet", read_parquet), ".arrow": ("Arrow", read_arrow), ".feather": ("Arrow", read_arrow)}
ENDINGS = (*_JSON, ".csv", ".tsv", *WORKBOOKS, *_TABLES)
SAMPLE_BYTES = 1 << 20
_PREAMBLE_ROWS = 100

Read = Callable[[Collection[str] | None], SourceRecords]
"""A function from the names of the needed columns (None: all) to the records."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A file, or another part of a source; records come from the parts one after the other."""

    read: Read
    where: str = ""
    """The name of the part in errors; empty: errors name none."""
    sample: bytes = b""
    """The beginning of a text."""
    may_name: bool = True
    """Whether the person may name its encoding."""
    beginning: Callable[[], Iterable[Sequence[object]]] = tuple
    """Cells of the first rows, where one of them names the columns."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Name the part in errors of reading it. Errors of code that uses the rows do not pass here."""
        with _named(self.where):
            try:
                yield
            except NotUtf8Error as error:
                raise not_utf8(self.where, error, self.sample, may_name=self.may_name) from None
            except MissingColumnError as error:
                propose_header(error, self.beginning())
                raise


@dataclass(frozen=True, slots=True)
class Source:
    """An open source of rows."""

    described: str
    """The source's format, with what was detected of it."""
    parts: Callable[[], Iterator[SourcePart]]
    reading: SentRows = AS_IT_IS
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of :meth:`records` left out, as of :attr:`exemplar_store.Layout.left_out`."""

    def rows(self, layout: Layout) -> Iterator[Row]:
        """The rows, for a knowledge base.

        Raises:
            BadRowError: a row is not valid; the error names it.
            ValueError: the source is not of the format that it seemed to be, or is damaged.
        """
        wanted = as_read(layout, self.reading)
        for part in self.parts():
            with part.reading():
                yield from wanted.rows(part.read(wanted.needed))

    def records(self, needed: Collection[str], *, whole: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows with their numbers, as of :class:`exemplar_store.errors.BadRowError`.

        Args:
            needed: names of the columns that must hold text.
            whole: whether the other columns are read, too, as they are; what cannot be read in them is
                :class:`exemplar_store.rows.Unreadable`.

        Raises:
            BadRowError: a row is not valid; the error names it.
            ValueError: the source is not of the format that it seemed to be, or is damaged.
        """
        layout = as_read(Layout((), left_out=self.left_out), self.reading)
        for part in self.parts():
            with part.reading():
                yield from layout.texts(needed, part.read(None if whole else needed))


def as_read(layout: Layout, reading: SentRows) -> Layout:
    """A layout with the options of reading; rows that are left out are counted in the one given."""
    numbers, incomplete = reading.numbers_as_text, reading.skip_incomplete
    return replace(
        layout,
        numbers_as_text=layout.numbers_as_text or numbers,
        skip_incomplete=layout.skip_incomplete or incomplete,
    )


def read_records(where: str) -> list[dict[str, Any]]:
    """All rows of what :func:`open_file` opens, with all columns.

    Raises:
        ValueError: the file or folder cannot be opened or read.
    """
    with open_file(where) as source:
        return [record for _, record in source.records((), whole=True)]


@contextmanager
def open_file(where: str, reading: Reading = AS_IT_IS, *, for_others: bool = False) -> Iterator[Source]:
    """Open a file or a folder of rows.

    Args:
        where: a path, or an address such as ``s3://bucket/tickets.parquet``. A file's name ends in .jsonl, .ndjson,
            .csv, .tsv, .xlsx, .xls, .ods, .parquet, .arrow or .feather, perhaps with .gz, .bz2, .xz or .zip behind it;
            a folder holds Parquet files, or is a Hugging Face dataset saved to disk.
        reading: options of reading.
        for_others: whether they are for other files, too, so that some may mean nothing for this one.

    Raises:
        ValueError: there is no such file, an option means nothing for it, its format or the encoding is not known, or
            the package that reads it is not installed; also when the source is read, if the file is not of the format
            that it seemed to be.
        OSError: the file cannot be read.
    """
    with ExitStack() as stack:
        with _named(where):
            source = _opened(where, stack, reading, for_others=for_others)
        yield replace(source, reading=reading)


def can_read(name: str) -> bool:
    """Whether the ending of a file's name allows reading it; an archive may still hold another format."""
    inner = PurePosixPath(name).stem if compressed.is_compressed(name) else name
    return PurePosixPath(inner).suffix.lower() in ENDINGS or name.lower().endswith(".zip")


def _opened(where: str, stack: ExitStack, reading: Reading, *, for_others: bool) -> Source:
    if where == "-":
        raise ValueError("rows are read from a file, not from standard input: name one")
    try:
        files, path = fsspec.url_to_fs(where, **_connection(where))
        # A web server has no folders, and would be asked in vain.
        local = "http" not in files.protocol
        if local and files.isdir(path):
            if not for_others:
                reading.check_fits("a folder")
            return _folder(files, path)
        name = PurePosixPath(path).name
        if not can_read(name):
            with files.open(path, "rb") as other:
                if what := compressed.not_text(other.read(16)):
                    raise ValueError(f"it is {': '.join(what)}")
            raise ValueError(
                f"its name must end in {', '.join(ENDINGS)}, perhaps with {', '.join(compressed.ENDINGS)} behind it, "
                "so that its format is known"
            )
        stream = stack.enter_context(files.open(path, "rb"))
    except FileNotFoundError:
        raise ValueError("there is no such file") from None
    except ImportError as error:
        raise ValueError(str(error)) from None
    content, inner = stack.enter_context(compressed.unpacked(cast("BinaryIO", stream), name))
    ending = PurePosixPath(inner).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"the name of what it holds must end in {', '.join(ENDINGS)}, so that its format is known")
    if not for_others:
        reading.check_fits(_kind(ending))
    if ending in _TABLES:
        if local and ending == ".parquet":
            check_no_table(files, path)
        described, read = _TABLES[ending]
        part = SourcePart(lambda needed: read(content, needed), where)
    elif ending in WORKBOOKS:
        sheet = read_sheet(content, reading.sheet)
        described = "a workbook"
        part = SourcePart(lambda _: sheet_records(sheet, reading.skip_lines), where, beginning=lambda: sheet)
    else:
        described, part = _text(where, content, ending, reading)
    if not local:
        return Source(described, lambda: iter([part]))
    before = files.ukey(path)
    return Source(described, lambda: _unchanged(files, path, before, part))


def _kind(ending: str) -> str:
    if ending in _TABLES:
        return _TABLES[ending][0]
    return "a workbook" if ending in WORKBOOKS else "JSON Lines" if ending in _JSON else "CSV"


def _connection(where: str) -> dict[str, Any]:
    """Options of fsspec for a web server's address. Other stores read the environment that is left."""
    if urlsplit(where).scheme not in ("http", "https"):
        return {}
    options = http_options(where)
    proxy = {"proxy": options["proxy"]} if options["proxy"] else {}
    return {"client_kwargs": {"trust_env": False, **proxy}, "ssl": options["verify"]}


def _text(where: str, content: BinaryIO, ending: str, reading: Reading) -> tuple[str, SourcePart]:
    buffered = io.BufferedReader(cast("io.RawIOBase", content), SAMPLE_BYTES)
    sample = buffered.peek(SAMPLE_BYTES)
    if what := compressed.not_text(sample):
        raise ValueError(f"it is not text but {': '.join(what)}")
    encoding = encoding_of(sample, reading.encoding)
    if ending in _JSON and not encoding.startswith("utf-"):
        raise ValueError("JSON Lines are UTF-8: leave --encoding out, and save the file as UTF-8 if it is not")
    if encoding == UTF8:
        check_marked(where, sample)
    lines = as_utf8(buffered, encoding)
    if ending in _JSON:
        part = SourcePart(lambda _: json_records(lines), where, sample, may_name=False)
        return f"JSON Lines in {encoding}", part
    text = sample.decode(encoding, "replace")
    mark = delimiter_by(reading, text, "\t" if ending == ".tsv" else None)
    described = f"CSV in {encoding} with {mark!r} between cells"
    return described, SourcePart(
        lambda _: csv_records(lines, mark, reading.skip_lines), where, sample, beginning=lambda: cells(text)
    )


def _folder(files: AbstractFileSystem, path: str) -> Source:
    if found := parquet_files(files, path):
        return Source(f"a folder of Parquet: {_counted(found)}", lambda: _parts(files, found, read_parquet))
    found = saved_dataset(files, path)
    return Source(f"a dataset saved to disk: {_counted(found)}", lambda: _parts(files, found, read_arrow))


def _parts(files: AbstractFileSystem, paths: Sequence[str], read: Callable[..., SourceRecords]) -> Iterator[SourcePart]:
    for path in paths:
        before = files.ukey(path)
        with files.open(path, "rb") as stream:
            part = SourcePart(lambda needed, stream=stream: read(stream, needed), path)  # type: ignore[misc]
            yield from _unchanged(files, path, before, part)


def _unchanged(files: AbstractFileSystem, path: str, before: str, part: SourcePart) -> Iterator[SourcePart]:
    """The part, and an error once it was read, if its file is not what it was before."""
    yield part
    if files.ukey(path) != before:
        raise ValueError(f"{part.where}: it changed while it was read: try again when nothing writes to it")


def _counted(paths: Sequence[str]) -> str:
    return f"{len(paths)} {'file' if len(paths) == 1 else 'files'}"


@contextmanager
def _named(where: str) -> Iterator[None]:
    before = f"{where}: " if where else ""
    try:
        yield
    except BadRowError as error:
        error.args = (f"{before}{error}",)
        raise
    except Exception as error:
        if compressed.is_compressed(where) and compressed.damaged(error):
            raise ValueError(
                f"{before}its content does not fit its name, or it is cut off or damaged: copy it again"
            ) from None
        if isinstance(error, ValueError) and not str(error).startswith(before):
            raise ValueError(f"{before}{error}") from None
        raise


def delimiter_by(reading: SentRows, sample: str, usual: str | None = None) -> str:
    """The delimiter of CSV: the one that is named, else the usual one, else :func:`delimiter_of` what is read.

    Raises:
        ValueError: the one that is named cannot be a delimiter.
    """
    named = "\t" if reading.delimiter == r"\t" else reading.delimiter  # shells pass the former on
    mark = named or usual or delimiter_of(sample, reading.skip_lines)
    if len(mark) != 1 or mark in '\r\n"':
        raise ValueError(f"{mark!r} cannot be the delimiter: it is one character, and not a quote or a line break")
    return mark


def delimiter_of(sample: str, skip_lines: int = 0) -> str:
    """The delimiter of a table that begins so: the one it names as in ``sep=;``, or the most frequent in its header.

    In a header only the usual ones count, outside quotes.
    """
    lines = islice(io.StringIO(sample.lstrip("\ufeff"), newline=""), skip_lines, None)
    header = next(lines, "")[:MAX_LINE_CHARACTERS]
    if (named := header.rstrip("\r\n")).startswith("sep=") and len(named) == len("sep=;"):
        return named[-1]
    counts = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in ",;\t|"}
    return max(counts, key=lambda mark: counts[mark])


def cells(text: str) -> Iterator[list[str]]:
    """The cells of each line of CSV, as if it were the header."""
    for line in io.StringIO(text, newline=""):
        yield next(csv.reader([line], delimiter=delimiter_of(line)), [])


def propose_header(error: MissingColumnError, rows: Iterable[Sequence[object]]) -> None:
    """Propose in an error the row that names most of the needed columns, if one further down does.

    Args:
        error: the error of the row that was taken for the header.
        rows: cells of the first rows.
    """
    looked_at = list(islice(rows, _PREAMBLE_ROWS))
    named = {number: len({*error.needed} & {*row}) for number, row in enumerate(looked_at, 1)}
    best = max(named, key=lambda number: named[number], default=0)
    if best > error.row and named[best] > named[error.row]:
        error.args = (f"{error}; row {best} has {named[best]} of the columns: skip those before it",)
        error.remedy = ("skip_lines", best - 1)
    elif not named.get(error.row) and (first := _first_wide(looked_at)) > error.row:
        error.args = (f"{error}; if row {first} names them, which has more cells, skip those before it",)
        error.remedy = ("skip_lines", first - 1)


def _first_wide(rows: Sequence[Sequence[object]]) -> int:
    """The first row with at least as many cells that hold something as most rows have; 0: there are no rows."""
    filled = [sum(cell not in (None, "") for cell in row) for row in rows]
    usual = int(median(filled)) if filled else 0
    return next((number for number, cells in enumerate(filled, 1) if cells >= usual), 0)
