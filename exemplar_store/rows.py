"""Rows of an upload, and reading them from JSON Lines and CSV, with errors that name the row, the field and what to do.

Nothing of a row's text is repeated in an error message: those end up in logs and terminals.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from functools import partial
from typing import BinaryIO
from uuid import UUID

from exemplar_store import unit_ids
from exemplar_store.errors import BadRowError
from exemplar_store.exemplar import MAX_EXEMPLAR_BYTES, content

MAX_LINE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One exemplar of an upload."""

    number: int
    """Where it is in the upload, as an editor counts lines."""
    unit_id: str
    """Whose it is: the person, customer or document that is protected as a whole."""
    fields: Mapping[str, str]
    """Exactly the knowledge base's fields, none empty."""
    ignored: tuple[str, ...] = ()
    """Names of the columns that the knowledge base has no field for."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of an upload are what."""

    fields: Sequence[str]
    """The knowledge base's fields, each required."""
    unit_id: str = "unit_id"
    """The column with the unit's id."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of a field, where it has another name than the field."""
    numbers_as_text: bool = False
    """Take numbers, dates and times as the text that they print as; otherwise they are refused."""

    def column(self, name: str) -> str:
        """The column that holds a field."""
        return self.columns.get(name, name)

    def require(self, number: int, names: Sequence[str]) -> None:
        """Check the names of all columns, for a source that has them apart from its rows.

        Args:
            number: the line that names them.
            names: as they are there.

        Raises:
            BadRowError: one that is needed is missing, or one is named twice, or cannot be stored as text.
        """
        for position, name in enumerate(names):
            _check_name(number, name)
            if name in names[:position]:
                raise BadRowError(number, name, "is named twice; rename or remove one of the columns")
        for name in (self.unit_id, *map(self.column, self.fields)):
            if name not in names:
                raise BadRowError(number, name, f"is not among the columns, which are {', '.join(map(repr, names))}")

    def row(self, number: int, record: Mapping[str, object]) -> Row:
        """Check a record and take from it what the knowledge base keeps.

        Raises:
            BadRowError: a column is missing, empty, not text, or holds or is named what cannot be stored as
            text.
        """
        try:
            unit = unit_ids.as_text(record.get(self.unit_id))
        except ValueError as error:
            raise BadRowError(number, self.unit_id, str(error)) from None
        unit_id = unit_ids.canonical(self._text(number, self.unit_id, unit))
        if why := unit_ids.problem(unit_id):
            raise BadRowError(number, self.unit_id, why)
        columns = {name: self.column(name) for name in self.fields}
        fields = {name: self._text(number, column, record.get(column)) for name, column in columns.items()}
        row_content(number, fields, self.fields)
        used = {self.unit_id, *columns.values()}
        ignored = tuple(name for name in record if name not in used)
        for name in ignored:  # they are reported
            _check_name(number, name)
        return Row(number, unit_id, fields, ignored)

    def _text(self, number: int, name: str, value: object) -> str:
        if value is None or value != value:
            raise BadRowError(number, name, "is missing; every row needs it")
        if self.numbers_as_text and isinstance(value, _PRINTED) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise BadRowError(number, name, f"must be a string, not {_TYPES.get(type(value), 'a number')}")
        if not value.strip():
            raise BadRowError(number, name, "is empty; give it a value or leave the row out")
        if problem := _not_text(value):
            raise BadRowError(number, name, problem)
        return value


def row_content(number: int, fields: Mapping[str, str], names: Sequence[str]) -> bytes:
    """A row's fields as :func:`exemplar_store.exemplar.content` packs them.

    Raises:
        BadRowError: they are larger than an exemplar may be.
    """
    packed = content(fields, names)
    if len(packed) > MAX_EXEMPLAR_BYTES:
        problem = (
            f"has {len(packed):,} bytes (its fields' values as JSON in UTF-8); at most {MAX_EXEMPLAR_BYTES:,} are "
            "allowed: shorten its texts, or make several rows of it"
        )
        raise BadRowError(number, None, problem)
    return packed


def _check_name(number: int, name: str) -> None:
    if problem := _not_text(name):
        raise BadRowError(number, name, f"the name {problem}")


def _not_text(value: str) -> str | None:
    """Why a string cannot be stored or sent as text, if it cannot."""
    if "\x00" in value:
        return "contains a NUL character; remove it"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "contains half of a surrogate pair, which is no character; remove it"
    return None


_PRINTED = (int, float, Decimal, UUID, date, time)
_TYPES = {dict: "an object", list: "a list", bool: "true or false", bytes: "bytes"}


def read_json_lines(stream: BinaryIO, layout: Layout) -> Iterator[Row]:
    """Rows of a JSON Lines file: one object per line, UTF-8; blank lines are skipped.

    Args:
        stream: the file, opened in binary mode; read as the rows are asked for.
        layout: which members are what.

    Raises:
        BadRowError: at the first line that is not a valid row.
    """
    for number, line in _lines(stream):
        if line.isspace() or not line:
            continue
        try:
            record = json.loads(line, object_pairs_hook=partial(_unique_members, number))
        except BadRowError:
            raise
        except json.JSONDecodeError as error:
            raise BadRowError(
                number, None, f"is not valid JSON: {error.msg} at character {error.colno}; write one object per line"
            ) from None
        except (ValueError, RecursionError):
            raise BadRowError(number, None, "is JSON with a huge number or too many levels; simplify it") from None
        if not isinstance(record, dict):
            raise BadRowError(number, None, 'is not a JSON object; write one like {"unit_id": "...", ...} per line')
        yield layout.row(number, record)


def read_csv(stream: BinaryIO, layout: Layout, delimiter: str = ",") -> Iterator[Row]:
    """Rows of a CSV file: double quotes, UTF-8, a header row; blank lines are skipped.

    A row is numbered by the line it begins on, since a quoted value may hold line breaks.

    Args:
        stream: the file, opened in binary mode; read as the rows are asked for.
        layout: which columns are what.
        delimiter: between two cells.

    Raises:
        BadRowError: the header lacks a column or names one twice, or at the first row that is not valid.
    """
    records = _csv_records(stream, delimiter)
    number, header = next(records, (1, []))
    if not header:
        raise BadRowError(1, None, "is empty; the first line must name the columns")
    layout.require(number, header)
    for number, cells in records:
        if len(cells) != len(header):
            quotes = f"put double quotes around values with {delimiter!r} or line breaks"
            problem = f"has {len(cells)} cells where the header has {len(header)}; {quotes}"
            raise BadRowError(number, None, problem)
        yield layout.row(number, dict(zip(header, cells, strict=True)))


def _csv_records(stream: BinaryIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line for _, line in _lines(stream)), delimiter=delimiter, strict=True)
    number = 1
    try:
        for cells in reader:
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise BadRowError(number, None, f"is not valid CSV: {error}; check its quotes") from None


def _lines(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, with or without a byte order mark."""
    for number, raw in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), 1):
        if len(raw) > MAX_LINE_BYTES:
            raise BadRowError(number, None, f"is longer than {MAX_LINE_BYTES // 1024**2} MiB")
        try:
            yield number, raw.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode()
        except UnicodeDecodeError as error:
            raise BadRowError(number, None, f"is not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from None


def _unique_members(number: int, members: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(members)
    if len(record) != len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRowError(number, twice, "is given twice in one object; keep one")
    return record
