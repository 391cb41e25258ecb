"""Rows of an upload, and reading them from JSON Lines and CSV, with errors that name the row, the field and what to do.

Nothing of a row's text is repeated in an error message: those end up in logs and terminals.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from functools import partial
from typing import BinaryIO
from uuid import UUID

from exemplar_store import unit_ids
from exemplar_store.errors import BadRowError, NotUtf8Error
from exemplar_store.exemplar import MAX_EXEMPLAR_BYTES, content

MAX_LINE_CHARACTERS = 4 * 1024 * 1024

# Python refuses cells of more than 128 Ki characters, also in columns that are ignored. There is no limit for one
# reader alone.
csv.field_size_limit(MAX_LINE_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Row:
    """One exemplar of an upload."""

    number: int
    """Line of the upload, as an editor counts lines."""
    unit_id: str
    """Id of its unit: the person, customer or document that is protected as a whole."""
    fields: Mapping[str, str]
    """Exactly the knowledge base's fields, none empty."""
    ignored: tuple[str, ...] = ()
    """Names of the columns that the knowledge base has no field for."""


@dataclass(frozen=True, slots=True)
class SourceRecords:
    """The records of a source, before it is known which columns are needed."""

    numbered: Iterator[tuple[int, Mapping[str, object]]]
    """Each record with its number in the source, as an editor counts lines."""
    names: Sequence[str] | None = None
    """All columns, where the source names them apart from its records."""
    header: int = 1
    """The line that names them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The meaning of an upload's columns."""

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

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read: the unit's id, and one for each field."""
        return (self.unit_id, *map(self.column, self.fields))

    def rows(self, records: SourceRecords) -> Iterator[Row]:
        """The rows of a source, checked one by one.

        Raises:
            BadRowError: a column is missing, or at the first row that is not valid.
        """
        if records.names is not None:
            check_names(records.header, records.names)
            for name in self.needed:
                if name not in records.names:
                    known = ", ".join(map(repr, records.names))
                    advice = (
                        "; set unit_id (--unit-id) to the one that names the person" if name == self.unit_id else ""
                    )
                    raise BadRowError(records.header, name, f"is not among the columns, which are {known}{advice}")
        for number, record in records.numbered:
            yield self.row(number, record)

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


def check_names(number: int, names: Sequence[str]) -> None:
    """Check the names of all columns of a source that has them apart from its records.

    Args:
        number: number of the line that names them.
        names: names of the columns, as written in the source.

    Raises:
        BadRowError: one is named twice, or cannot be stored as text.
    """
    for position, name in enumerate(names):
        _check_name(number, name)
        if name in names[:position]:
            raise BadRowError(number, name, "is named twice; rename or remove one of the columns")


def _check_name(number: int, name: str) -> None:
    if problem := _not_text(name):
        raise BadRowError(number, name, f"the name {problem}")


def _not_text(value: str) -> str | None:
    """Why a string cannot be stored or sent as text, if it cannot."""
    if "\x00" in value:
        return "contains a NUL character; remove it"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "contains half of a surrogate pair, which is not a character; remove it"
    return None


_PRINTED = (int, float, Decimal, UUID, date, time)
_TYPES = {dict: "an object", list: "a list", bool: "true or false", bytes: "bytes"}


def read_json_lines(stream: BinaryIO, layout: Layout) -> Iterator[Row]:
    """Rows of :func:`json_records`.

    Raises:
        BadRowError: at the first line that is not a valid row.
    """
    yield from layout.rows(json_records(stream))


def read_csv(stream: BinaryIO, layout: Layout, delimiter: str = ",") -> Iterator[Row]:
    """Rows of :func:`csv_records`.

    Raises:
        BadRowError: the header lacks a column or names one twice, or at the first row that is not valid.
    """
    yield from layout.rows(csv_records(stream, delimiter))


def json_records(stream: BinaryIO) -> SourceRecords:
    """The objects of a JSON Lines file: one per line, UTF-8; blank lines are skipped.

    Args:
        stream: the file, opened in binary mode; read as the records are asked for.

    Returns:
        Records; reading them raises :class:`BadRowError` at the first line that is not an object.
    """
    return SourceRecords(_json_objects(stream))


def csv_records(stream: BinaryIO, delimiter: str = ",") -> SourceRecords:
    """The records of a CSV file: double quotes, UTF-8, a header row; blank lines are skipped.

    Lines end in LF, CRLF or CR. A record is numbered by the line it begins on, since a quoted value may hold line
    breaks.

    Args:
        stream: the file, opened in binary mode; its header is read now, the rest as the records are asked for.
        delimiter: between two cells.

    Returns:
        Records; reading them raises :class:`BadRowError` at the first line that is not as long as the header.

    Raises:
        BadRowError: there is no header, or it names a column twice.
    """
    lines = _csv_lines(stream, delimiter)
    number, names = next(lines, (1, []))
    if not names:
        raise BadRowError(1, None, "is empty; the first line must name the columns")
    check_names(number, names)
    return SourceRecords(_csv_objects(lines, names, delimiter), names, number)


def _json_objects(stream: BinaryIO) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in _lines(stream, "\n"):
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
        yield number, record


def _csv_objects(
    lines: Iterator[tuple[int, list[str]]], names: Sequence[str], delimiter: str
) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, cells in lines:
        if len(cells) != len(names):
            quotes = f"put double quotes around values with {delimiter!r} or line breaks"
            problem = f"has {len(cells)} cells where the header has {len(names)}; {quotes}"
            raise BadRowError(number, None, problem)
        yield number, dict(zip(names, cells, strict=True))


def _csv_lines(stream: BinaryIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line for _, line in _lines(stream, "")), delimiter=delimiter, strict=True)
    number = 1
    try:
        for cells in reader:
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise BadRowError(number, None, f"is not valid CSV: {error}; check its quotes") from None


def _lines(stream: BinaryIO, newline: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, with their ends, with or without a byte order mark.

    Args:
        stream: stays open.
        newline: line terminator, as :func:`open` takes it.
    """
    # Wrong bytes become surrogates, so that an error can name the line that they are in.
    text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline)
    try:
        for number, line in enumerate(iter(lambda: text.readline(MAX_LINE_CHARACTERS + 1), ""), 1):
            if len(line) > MAX_LINE_CHARACTERS:
                raise BadRowError(number, None, f"is longer than {MAX_LINE_CHARACTERS:,} characters")
            if not line.isascii():
                try:
                    (raw := line.encode(errors="surrogateescape")).decode()
                except UnicodeDecodeError as error:
                    raise NotUtf8Error(number, error.start + 1, raw) from None
            yield number, line.removeprefix("\ufeff") if number == 1 else line
    finally:
        with suppress(ValueError):  # it was closed before
            text.detach()


def _unique_members(number: int, members: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(members)
    if len(record) != len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRowError(number, twice, "is given twice in one object; keep one")
    return record
