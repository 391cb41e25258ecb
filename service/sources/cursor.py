"""A cursor: the place up to which a table was read, so that the next read begins there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Value = str | int | float

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
            ValueError: the file does not exist and no start is given, or it is not the file of a cursor on this column.
        """
        if not file.exists():
            if start is None:
                raise ValueError(f"{file} does not exist yet: name with --since the {column} to begin after")
            return cls(column, file, start)
        try:
            value = json.loads(file.read_text())[column]
            if isinstance(value, bool) or not isinstance(value, Value):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{file} does not hold the last {column} read; remove it, or name another file") from None
        return cls(column, file, value)

    def noting(self, records: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The same records; the largest value among them is where :meth:`save` leaves off.

        Raises:
            ValueError: a record lacks the column.
        """
        newest = None
        for record in records:
            if self.column not in record:
                raise ValueError(f"the query returns no column {self.column!r}, which --cursor names")
            value = record[self.column]
            if value is not None and (newest is None or value > newest):
                newest = value
            yield record
        if newest is not None:
            self.since = newest if isinstance(newest, int | float) else str(newest)

    def save(self) -> None:
        """Write the last cursor value; a crash leaves the old file or the new one."""
        new = self.file.with_name(f".{self.file.name}.new")
        new.write_text(json.dumps({self.column: self.since}) + "\n")
        os.replace(new, self.file)
