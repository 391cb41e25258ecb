"""A cursor: the place up to which a table was read, so that the next read begins there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from exemplar_store import BadRowError
from exemplar_store.rows import Unreadable

Value = str | int | float
_ORDERED = (str, int, float, Decimal, date, time, UUID)

PARAMETER = "since"
"""Name of a query's parameter for the value that it begins after."""


@dataclass
class Cursor:
    """A column whose values only grow, such as the time of the last change.

    Attributes:
        column: name of the column.
        file: the file with the largest value read; it is written once the rows are stored.
        since: the value to begin after.
    """

    column: str
    file: Path
    since: Value

    @classmethod
    def open(cls, column: str, file: Path, start: str | None) -> Cursor:
        """The cursor of a file.

        Args:
            column: name of the column.
            file: the cursor's file; it need not exist.
            start: the value to begin after where the file does not exist.

        Raises:
            ValueError: the file does not exist and no start is given, or it is not the file of a cursor on this column;
                or its folder does not exist; or the value is infinite or NaN.
        """
        if not file.exists():
            if not file.parent.is_dir():
                raise ValueError(f"{file}: its folder does not exist; create it, or name another file")
            if start is None:
                raise ValueError(f"{file} does not exist yet: name with --since the {column} to begin after")
            if _is_endless(start):
                raise ValueError(f"--since: {start} is infinite or NaN; name a time or a number")
            return cls(column, file, start)
        try:
            value = json.loads(file.read_text())[column]
            if isinstance(value, bool) or not isinstance(value, Value) or _is_endless(value):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{file} does not hold the last {column} read; remove it, or name another file") from None
        return cls(column, file, value)

    def check(self, names: Collection[str]) -> None:
        """Check that a query returns the column.

        Raises:
            ValueError: it does not, or returns it twice.
        """
        if (times := list(names).count(self.column)) != 1:
            found = "no column" if not times else "several columns"
            raise ValueError(f"the query returns {found} {self.column!r}, which --cursor names")

    def noting(self, records: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The same records; the largest value among them is where :meth:`save` leaves off, unless it began after that.

        Raises:
            BadRowError: a value has no order, none comes after it, or it cannot be compared with those before.
        """
        newest = None
        for number, record in enumerate(records, start=1):
            value = record[self.column]
            if value is not None:
                self._check(number, value)
                try:
                    if newest is None or value > newest:
                        newest = value
                except TypeError:
                    problem = "is of another type than in the rows before, so that neither is the later one"
                    raise BadRowError(number, self.column, f"{problem}; convert the column in --query") from None
            yield record
        if newest is not None and not self._is_before(newest):
            self.since = newest if isinstance(newest, int | float) else str(newest)

    def _is_before(self, newest: Any) -> bool:
        """Whether a value comes before the one to begin after: a query that overlaps may return earlier ones alone."""
        try:
            return bool(newest < _like(newest, self.since))
        except (ValueError, ArithmeticError, TypeError):  # it was written in another way, so only the database knows
            return False

    def _check(self, number: int, value: object) -> None:
        if isinstance(value, Unreadable):
            raise value.needed(number, self.column)
        if isinstance(value, bool) or not isinstance(value, _ORDERED):
            problem = (
                "is neither a number, a time nor a text, so that it has no order; name another column with --cursor"
            )
            raise BadRowError(number, self.column, problem)
        if _is_endless(value):
            problem = "is infinite or NaN, so that no row would ever be read after it; leave such rows out in --query"
            raise BadRowError(number, self.column, problem)

    def save(self) -> None:
        """Write the last cursor value; a crash leaves the old file or the new one."""
        new = self.file.with_name(f".{self.file.name}.new")
        new.write_text(json.dumps({self.column: self.since}) + "\n")
        os.replace(new, self.file)


def _like(value: Any, since: Value) -> Any:
    """A value to begin after, in the type of a column's value."""
    if isinstance(value, (int, float, Decimal)):
        return Decimal(since)
    if isinstance(value, (date, time)):
        return type(value).fromisoformat(str(since))
    return type(value)(str(since))


def _is_endless(value: object) -> bool:
    """Whether a value is infinite or not a number, perhaps as a text, so that nothing comes after it."""
    if not isinstance(value, (str, float, Decimal)):
        return False
    try:
        return not math.isfinite(float(value))
    except ValueError:  # a signalling NaN, or a text of something else
        return isinstance(value, Decimal)
