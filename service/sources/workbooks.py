"""Rows of a spreadsheet program's workbook. Needs python-calamine."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

from exemplar_store import BadRowError
from exemplar_store.rows import NAMED_TWICE, SourceRecords, Unreadable
from service.sources.tables import repeated

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
BEGINNINGS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of workbooks, which other archives have, too."""

_MOST_DIGITS = 15
MOST_BYTES = 1 << 30
"""The most bytes of a workbook, unpacked, that a command reads."""
MOST_SENT_BYTES = 32 << 20
"""The same of one that is sent: it is read beside answers, which it holds up by about 4 ms a MiB."""
_TOO_LONG = Unreadable(
    f"is a number of more than {_MOST_DIGITS} digits, of which a workbook keeps {_MOST_DIGITS}; make the column text, "
    "and write it anew"
)


def read_sheet(stream: BinaryIO, named: str | None, most_bytes: int = MOST_BYTES) -> list[list[object]]:
    """The rows of a sheet; the first is row 1.

    Args:
        stream: the workbook; it is read whole.
        named: name of the sheet; None: it is the only one with a value.
        most_bytes: the most bytes that it may have, unpacked.

    Raises:
        ValueError: it is not a workbook, it is locked or too large, or has several sheets of which none is named.
    """
    if (size := _unpacked(stream)) > most_bytes:
        raise ValueError(f"unpacked, it has {size:,} bytes, of which {most_bytes:,} can be read: save it as CSV")
    with _calamine() as calamine:
        book = calamine.CalamineWorkbook.from_filelike(stream)
        rows: list[list[object]] = book.get_sheet_by_name(_chosen(book, named)).to_python(skip_empty_area=False)
    return rows


def sheet_records(rows: Sequence[Sequence[object]], skip_lines: int) -> SourceRecords:
    """Records of a sheet, whose first row that is not empty names the columns. Columns without a name are left out.

    Empty rows are skipped; numbers without a fraction are integers, as spreadsheet programs show them.

    Args:
        rows: all rows of the sheet.
        skip_lines: number of rows before the one that names the columns.

    Raises:
        BadRowError: no row names the columns.
    """
    numbered = ((number, row) for number, row in enumerate(rows, 1) if number > skip_lines and _is_filled(row))
    header, first = next(numbered, (0, ()))
    if not header:
        raise BadRowError(skip_lines + 1, None, "is empty, or not there; it must name the columns")
    columns = [(place, str(name).strip()) for place, name in enumerate(first) if str(name).strip()]
    names = [name for _, name in columns]
    twice = dict.fromkeys(repeated(names), NAMED_TWICE)
    records = ((number, {**{name: _value(row[place]) for place, name in columns}, **twice}) for number, row in numbered)
    return SourceRecords(records, names, header, typed=False)


def _unpacked(stream: BinaryIO) -> int:
    """The size of a workbook's parts; of one that is not packed, its own."""
    try:
        with zipfile.ZipFile(stream) as parts:
            return sum(part.file_size for part in parts.infolist())
    except zipfile.BadZipFile:
        return stream.seek(0, os.SEEK_END)
    finally:
        stream.seek(0)


def _chosen(book: CalamineWorkbook, named: str | None) -> str:
    sheets = book.sheet_names
    if named is not None:
        if named not in sheets:
            raise ValueError(f"it has no sheet {named!r}; its sheets are {', '.join(map(repr, sheets))}")
        return named
    filled = [name for name in sheets if book.get_sheet_by_name(name).start is not None]
    if len(filled) > 1:
        raise ValueError(f"it has several sheets: {', '.join(map(repr, filled))}; name one of them as the sheet")
    return (filled or sheets)[0]


def _is_filled(row: Sequence[object]) -> bool:
    return any(cell != "" for cell in row)


def _value(cell: object) -> object:
    if cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer():
        return int(cell) if abs(cell) < 10**_MOST_DIGITS else _TOO_LONG
    return cell


@contextmanager
def _calamine() -> Iterator[Any]:
    try:
        calamine = import_module("python_calamine")
    except ImportError:
        raise ValueError("workbooks need python-calamine: pip install 'dp-icl[tables]'") from None
    try:
        yield calamine
    except calamine.PasswordError:
        raise ValueError("it is locked with a password: save it without one, or as CSV") from None
    except calamine.CalamineError:
        raise ValueError(
            "it is not a workbook, or it is cut off or damaged; copy it again, or save it as CSV"
        ) from None
