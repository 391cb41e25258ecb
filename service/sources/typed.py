"""What people type or paste: a question, and a few rows as JSON Lines or CSV."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def read_fields(query: str) -> str | dict[str, str]:
    """A question as typed: a text, or an object of texts in JSON."""
    if query.lstrip().startswith("{"):
        try:
            value = json.loads(query)
        except (ValueError, RecursionError):
            return query
        if isinstance(value, dict) and all(isinstance(field, str) for field in value.values()):
            return value
    return query


def read_file(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file: CSV if its name ends in .csv, JSON Lines otherwise.

    Raises:
        ValueError: as :func:`read_lines` says.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        yield from read_lines(lines, str(file), table=file.suffix.lower() == ".csv")


def read_lines(lines: Iterable[str], source: str, *, table: bool) -> Iterator[dict[str, Any]]:
    """The rows that lines hold.

    Args:
        lines: with their ends.
        source: what errors call it.
        table: whether it is CSV with a header rather than JSON Lines.

    Raises:
        ValueError: a line is no JSON object, or a row not as long as the header.
    """
    if table:
        reader = csv.DictReader(lines, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"{source}, line {reader.line_num}: not as many cells as the header has")
                yield row
        except csv.Error as error:
            raise ValueError(f"{source}, line {reader.reader.line_num}: not CSV: {error}") from None
        return
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{source}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{source}, line {number}: not a JSON object")
            yield row
