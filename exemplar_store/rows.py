"""Rows of an upload, and reading them from JSON Lines and CSV, with errors that name the row, the field and what to do.

Nothing of a row's text is repeated in an error message: those end up in logs and terminals. Columns that are not needed
never decide: what cannot be read in them is :class:`Unreadable`, which is an error only where it is needed.
"""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import BinaryIO, TypeVar
from uuid import UUID

from exemplar_store import unit_ids
from exemplar_store.errors import BadRowError, IncompleteRowError, MissingColumnError, NotUtf8Error
from exemplar_store.exemplar import MAX_EXEMPLAR_BYTES, content

T = TypeVar("T")

MAX_LINE_CHARACTERS = 4 * 1024 * 1024
_SURELY_SMALL = MAX_EXEMPLAR_BYTES // 8  # characters: JSON has at most six bytes for one, and a few for each field

# Python refuses cells of more than 128 Ki characters, also in columns that are ignored. There is no limit for one
# reader alone.
csv.field_size_limit(MAX_LINE_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Row:
    """One exemplar of an upload."""

    number: int
    """The row's number, as of :class:`exemplar_store.errors.BadRowError`."""
    unit_id: str
    """Id of its unit: the person, customer or document that is protected as a whole."""
    fields: Mapping[str, str]
    """Exactly the knowledge base's fields, none empty."""
    ignored: tuple[str, ...] = ()
    """Names of the columns that the knowledge base has no field for."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that cannot be read."""

    problem: str
    """What is wrong with it, and what to do."""
    error: BadRowError | None = None
    """The error to raise where the value is needed; None: one of the problem."""

    def needed(self, number: int, name: str) -> BadRowError:
        """The error of a row that needs the value in a column of this name."""
        return self.error or BadRowError(number, name, self.problem)


NAMED_TWICE = Unreadable("is named twice; rename or remove one of the columns")


@dataclass(frozen=True, slots=True)
class SourceRecords:
    """The records of a source, before it is known which columns are needed."""

    numbered: Iterator[tuple[int, Mapping[str, object]]]
    """Each record with its number, as of :class:`exemplar_store.errors.BadRowError`. Columns that share a name are
    :data:`NAMED_TWICE`."""
    names: Sequence[str] | None = None
    """All columns, where the source names them apart from its records."""
    header: int = 1
    """The line that names them."""
    typed: bool = True
    """Whether the names are known to be names, as a table's are: the first line of a text may be a row."""
    not_utf8: BadRowError | None = None
    """The error of that line, if it is not UTF-8."""

    def check(self, needed: Collection[str], unit_id: str | None = None) -> None:
        """Check that each needed column is there, and there once.

        Args:
            needed: names of the columns.
            unit_id: the one with the unit's id; None: none of them.

        Raises:
            BadRowError: one is not.
        """
        if self.names is None:
            return
        for name in needed:
            if name not in self.names and not (self.typed and within(name, self.names)):
                if self.not_utf8 is not None:
                    raise self.not_utf8
                raise MissingColumnError(self.header, name, self._where(needed), needed, is_unit_id=name == unit_id)
            if self.names.count(name) > 1:
                raise NAMED_TWICE.needed(self.header, name)

    def _where(self, needed: Collection[str]) -> str:
        names = self.names or ()
        known = {name.strip().casefold() for name in names}
        if self.typed or any(name.strip().casefold() in known for name in needed):
            return f"is not among the columns, which are {', '.join(map(repr, names))}"
        return f"is not among the {len(names)} cells of this row, which must name the columns"


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
    skip_incomplete: bool = False
    """Leave out rows in which a needed column holds nothing; otherwise they are refused."""
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)
    """The number of rows left out so far, by the first column that holds nothing, and by the reason."""

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
        try:
            records.check(self.needed, self.unit_id)
        except MissingColumnError as error:
            field = str(error.field)
            if field in self.fields and field not in self.columns:
                error.propose_column(field)
            raise
        return self._taken(self._first_checked(), records)

    def _first_checked(self) -> Callable[[int, Mapping[str, object]], Row]:
        """:meth:`row`, which takes a column that the first record does not have for a wrong name."""
        first = True

        def take(number: int, record: Mapping[str, object]) -> Row:
            nonlocal first
            if first:
                first = False
                self._check_named(number, record)
            return self.row(number, record)

        return take

    def _check_named(self, number: int, record: Mapping[str, object]) -> None:
        """Check that a record has the unit's id, and each field that is not mapped to a column.

        Raises:
            MissingColumnError: it lacks one.
        """
        for name in self.needed:
            if within(name, record) is None and (name == self.unit_id or name in self.fields):
                named = ", ".join(repr(printed(one)) for one in islice(record, _NAMES))
                more = ", …" if len(record) > _NAMES else ""
                problem = f"is not in this row, which has {named or 'nothing'}{more}"
                error = MissingColumnError(number, name, problem, self.needed, is_unit_id=name == self.unit_id)
                error.propose_column(name)
                raise error

    def texts(self, needed: Collection[str], records: SourceRecords) -> Iterator[tuple[int, dict[str, object]]]:
        """The records of a source with their numbers. Needed columns hold text; the others are as they were read.

        Raises:
            BadRowError: a needed column is missing, or at the first row where it holds no text.
        """

        def take(number: int, record: Mapping[str, object]) -> tuple[int, dict[str, object]]:
            return number, {**record, **{name: self._text(number, name, value_in(record, name)) for name in needed}}

        records.check(needed)
        return self._taken(take, records)

    def _taken(self, take: Callable[[int, Mapping[str, object]], T], records: SourceRecords) -> Iterator[T]:
        for number, record in records.numbered:
            try:
                taken = take(number, record)
            except IncompleteRowError as error:
                if not self.skip_incomplete:
                    raise
                self.left_out[str(error.field), error.reason] += 1
            else:
                yield taken

    def row(self, number: int, record: Mapping[str, object]) -> Row:
        """Check a record and take from it what the knowledge base keeps.

        Raises:
            BadRowError: a column is missing, empty, or holds no text that can be stored.
        """
        try:
            unit = unit_ids.as_text(value_in(record, self.unit_id))
        except ValueError as error:
            raise BadRowError(number, self.unit_id, str(error)) from None
        unit_id = unit_ids.canonical(self._text(number, self.unit_id, unit))
        if why := unit_ids.problem(unit_id):
            raise BadRowError(number, self.unit_id, why)
        columns = [self.columns.get(name, name) for name in self.fields]
        texts = [self._text(number, column, value_in(record, column)) for column in columns]
        fields = dict(zip(self.fields, texts, strict=True))
        if sum(map(len, fields.values())) > _SURELY_SMALL:
            row_content(number, fields, self.fields)
        used = {within(name, record) or name for name in (self.unit_id, *columns)}
        ignored = tuple([printed(name) for name in record if name not in used])
        return Row(number, unit_id, fields, ignored)

    def _text(self, number: int, name: str, found: object) -> str:
        return text(number, name, found, numbers_as_text=self.numbers_as_text)


_MISSING = object()
_NAMES = 20
"""The most names that an error lists."""


def within(name: str, names: Container[str]) -> str | None:
    """The column that holds what a name means: that of this name, else the one before its first dot, if there is one.

    ``employee.id`` is the member ``id`` of the objects in the column ``employee``.
    """
    if name in names:
        return name
    column, dot, _ = name.partition(".")
    return column if dot and column in names else None


def value_in(record: Mapping[str, object], name: str) -> object:
    """The value in a column of a record, or in a member of an object there, which a name with dots leads to."""
    if name in record:
        return record[name]
    found: object = record
    for member in name.split("."):
        if not isinstance(found, Mapping) or member not in found:
            return found if isinstance(found, Unreadable) else _MISSING
        found = _GIVEN_TWICE if member in getattr(found, "twice", ()) else found[member]
    return found


def text(number: int, name: str, value: object, *, numbers_as_text: bool = False) -> str:
    """The text in a needed column of a record.

    Args:
        number: number of the record.
        name: name of the column.
        value: value in it, as of :func:`value_in`; None: it is empty.
        numbers_as_text: whether numbers, dates and times are taken as the text that they print as.

    Raises:
        IncompleteRowError: it is missing or empty.
        BadRowError: it is not text, or cannot be stored as text.
    """
    if not isinstance(value, str):
        value = _printed_text(number, name, value, numbers_as_text=numbers_as_text)
    if not value.strip():
        raise IncompleteRowError(number, name, "empty")
    if problem := _not_text(value):
        raise BadRowError(number, name, problem)
    return value


def _printed_text(number: int, name: str, value: object, *, numbers_as_text: bool) -> str:
    """What a value of another type prints as; arguments and errors as of :func:`text`."""
    if isinstance(value, Unreadable):
        raise value.needed(number, name)
    if value is _MISSING:
        raise IncompleteRowError(number, name, "missing")
    if value is None or unit_ids.is_nan(value):
        raise IncompleteRowError(number, name, "empty")
    if not _is_printed(value):
        raise BadRowError(number, name, f"must be a string, not {_kind(value)}{_advice(name, value)}")
    if not numbers_as_text:
        problem = f"must be a string, not {_kind(value)}; it can be taken as text"
        raise BadRowError(number, name, problem, ("numbers_as_text", True))
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        raise BadRowError(number, name, "is infinite, or too large a number to read; write it as text")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def row_content(number: int, fields: Mapping[str, str], names: Sequence[str], most: int = MAX_EXEMPLAR_BYTES) -> bytes:
    """A row's fields as :func:`exemplar_store.exemplar.content` packs them.

    Raises:
        BadRowError: they are larger than an exemplar may be.
    """
    packed = content(fields, names)
    if len(packed) > most:
        problem = (
            f"has {len(packed):,} bytes (its fields' values as JSON in UTF-8); at most {most:,} are "
            "allowed: shorten its texts, or make several rows of it"
        )
        if most < MAX_EXEMPLAR_BYTES:
            problem += f", or create another knowledge base whose max_exemplar_bytes is up to {MAX_EXEMPLAR_BYTES:,}"
        raise BadRowError(number, None, problem)
    return packed


def printed(name: str) -> str:
    """The name of a column that is not needed, which may be anything, as it can be stored and sent."""
    return ascii(name)[1:-1] if _not_text(name) else name


def _not_text(value: str) -> str | None:
    """Why a string cannot be stored or sent as text, if it cannot."""
    if "\x00" in value:
        return "contains a NUL character; remove it"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "contains half of a surrogate pair, which is not a character; remove it"
    return None


_PRINTED = (int, float, Decimal, UUID, date, time)
"""Types that are taken as text on request; bool, an int, is not."""
_TYPES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((dict,), "an object"),
    ((list, tuple, set), "a list"),
    ((bool,), "true or false"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((date, time, timedelta), "a date or a time"),
    ((int, float, Decimal, complex), "a number"),
    ((UUID,), "a UUID"),
)


def _is_printed(value: object) -> bool:
    return isinstance(value, _PRINTED) and not isinstance(value, bool)


def _kind(value: object) -> str:
    """The kind of a value other than text, in words."""
    return next((kind for types, kind in _TYPES if isinstance(value, types)), "a value of another type")


def _advice(name: str, value: object) -> str:
    """What to do about a value with parts; their names may be private, so none is repeated."""
    if isinstance(value, Mapping):
        return f"; to take one of its members, name it behind a dot, as in {name}.member"
    if isinstance(value, (list, tuple, set)):
        return "; make one text of it, or a row of each part, where the file is made"
    return ""


def read_json_lines(stream: BinaryIO, layout: Layout) -> Iterator[Row]:
    """Rows of :func:`json_records`.

    Raises:
        BadRowError: at the first line that is not a valid row.
    """
    yield from layout.rows(json_records(stream))


def read_csv(stream: BinaryIO, layout: Layout, delimiter: str = ",") -> Iterator[Row]:
    """Rows of :func:`csv_records`.

    Raises:
        BadRowError: the header lacks a needed column or names it twice, or at the first row that is not valid.
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


def csv_records(stream: BinaryIO, delimiter: str = ",", skip_lines: int = 0) -> SourceRecords:
    """The records of a CSV file: double quotes, UTF-8, a header row; blank lines are skipped.

    Lines end in LF, CRLF or CR. Records are numbered as a spreadsheet numbers rows: a blank line is one, and so are the
    lines of a quoted value together.

    Args:
        stream: the file, opened in binary mode; its header is read now, the rest as the records are asked for.
        delimiter: between two cells.
        skip_lines: number of lines before the header, which are not read.

    Returns:
        Records; reading them raises :class:`BadRowError` at the first line that is not as long as the header.

    Raises:
        BadRowError: there is no header.
    """
    lines = _csv_lines(stream, delimiter, skip_lines)
    first = skip_lines + 1
    number, names, not_utf8 = next(lines, nothing := (first, list[str](), None))
    if delimiter.join(names) == f"sep={delimiter}":  # the delimiter, for Excel
        number, names, not_utf8 = next(lines, nothing)
    if not names:
        raise BadRowError(first, None, "is empty, or not there; it must name the columns")
    records = _csv_objects(lines, names, delimiter)
    return SourceRecords(records, names, number, typed=False, not_utf8=not_utf8)


def _json_objects(stream: BinaryIO) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line, not_utf8 in _lines(stream, "\n"):
        if line.isspace() or not line:
            continue
        try:
            record = _json(line)
        except json.JSONDecodeError as error:
            if not_utf8 is not None:
                raise not_utf8 from None
            raise BadRowError(
                number, None, f"is not valid JSON: {error.msg} at character {error.colno}; write one object per line"
            ) from None
        except RecursionError:
            raise BadRowError(number, None, "is JSON with too many levels; simplify it") from None
        if not isinstance(record, dict):
            raise BadRowError(number, None, 'is not a JSON object; write one like {"unit_id": "...", ...} per line')
        twice = getattr(record, "twice", ())
        yield number, _marked({**record, **dict.fromkeys(twice, _GIVEN_TWICE)}, not_utf8)


_GIVEN_TWICE = Unreadable("is given twice in one object; keep one")


class _Repeating(dict[str, object]):
    """An object in which members share a name."""

    twice: Collection[str]


def _json(line: str) -> object:
    try:
        return _decoder.decode(line)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number of more digits than Python reads
        return json.loads(line, object_pairs_hook=_members, parse_int=_whole_number)


def _whole_number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:
        return math.inf


def _members(members: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(members)
    if len(record) == len(members):
        return record
    repeating = _Repeating(record)
    names = [name for name, _ in members]
    repeating.twice = {name for name in names if names.count(name) > 1}
    return repeating


_decoder = json.JSONDecoder(object_pairs_hook=_members)


def _marked(record: dict[str, object], not_utf8: BadRowError | None) -> dict[str, object]:
    """A record whose line may not be UTF-8: what such bytes are in cannot be read."""
    if not_utf8 is None:
        return record
    wrong = Unreadable("is not UTF-8", not_utf8)
    return {
        name: wrong if isinstance(value, str) and _has_wrong_bytes(value) else value for name, value in record.items()
    }


def _has_wrong_bytes(value: object) -> bool:
    return isinstance(value, str) and any("\udc80" <= character <= "\udcff" for character in value)


def _csv_objects(
    lines: Iterator[tuple[int, list[str], BadRowError | None]], names: Sequence[str], delimiter: str
) -> Iterator[tuple[int, Mapping[str, object]]]:
    twice = dict.fromkeys((name for name in names if names.count(name) > 1), NAMED_TWICE)
    for number, cells, not_utf8 in lines:
        if len(cells) != len(names):
            if not_utf8 is not None:  # in many encodings a letter may hold the delimiter's byte
                raise not_utf8
            quotes = f"put double quotes around values with {delimiter!r} or line breaks"
            problem = f"has {len(cells)} cell{'s' * (len(cells) > 1)} where the header has {len(names)}; {quotes}"
            raise BadRowError(number, None, problem)
        yield number, _marked({**dict(zip(names, cells, strict=True)), **twice}, not_utf8)


def _csv_lines(
    stream: BinaryIO, delimiter: str, skip_lines: int
) -> Iterator[tuple[int, list[str], BadRowError | None]]:
    """Rows of cells with their numbers, and the error of the first of a row's lines that is not UTF-8."""
    wrong: list[NotUtf8Error] = []

    def lines() -> Iterator[str]:
        for _, line, not_utf8 in islice(_lines(stream, ""), skip_lines, None):
            if not_utf8 is not None:
                wrong.append(not_utf8)
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    number, line = skip_lines + 1, 0
    try:
        for number, cells in enumerate(reader, skip_lines + 1):
            if cells:
                yield number, cells, wrong[0] if wrong else None
            wrong.clear()
            line = reader.line_num
    except csv.Error as error:
        if wrong:
            raise wrong[0] from None
        number += bool(line)  # the one after the last that was read
        where = f" from line {skip_lines + line + 1} on" if skip_lines + line + 1 != number else ""
        raise BadRowError(number, None, f"is not valid CSV{where}: {error}; check its quotes") from None


def _lines(stream: BinaryIO, newline: str) -> Iterator[tuple[int, str, NotUtf8Error | None]]:
    """Numbered lines of a UTF-8 file, with their ends, with or without a byte order mark.

    Args:
        stream: stays open.
        newline: line terminator, as :func:`open` takes it.

    Returns:
        Number, line, and the error for a line that is not UTF-8, whose wrong bytes are half surrogate pairs.
    """
    text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline)
    try:
        for number, line in enumerate(iter(lambda: text.readline(MAX_LINE_CHARACTERS + 1), ""), 1):
            if len(line) > MAX_LINE_CHARACTERS:
                raise BadRowError(number, None, f"is longer than {MAX_LINE_CHARACTERS:,} characters")
            not_utf8 = None
            if not line.isascii():
                try:
                    (raw := line.encode(errors="surrogateescape")).decode()
                except UnicodeDecodeError as error:
                    not_utf8 = NotUtf8Error(number, error.start + 1, raw)
            yield number, line.removeprefix("\ufeff") if number == 1 else line, not_utf8
    finally:
        with suppress(ValueError):  # it was closed before
            text.detach()
