"""Reading people's files: rows in any format that ``dpicl kb ingest`` takes, as options name it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer

from service.sources.reading import Reading


def read_texts(file: Path, needed: Collection[str], reading: Reading) -> list[dict[str, Any]]:
    """The needed columns of a file's rows, each a text.

    Raises:
        ValueError: the file cannot be read, or a row lacks a text.
    """
    return [row for _, row in _read(file, needed, reading, whole=False)]


def read_whole(file: Path, needed: Collection[str], reading: Reading) -> list[tuple[int, dict[str, Any]]]:
    """All columns of a file's rows, each row with its number; those needed are texts.

    Raises:
        ValueError: the file cannot be read, or a row lacks a text.
    """
    return _read(file, needed, reading, whole=True)


def _read(file: Path, needed: Collection[str], reading: Reading, *, whole: bool) -> list[tuple[int, dict[str, Any]]]:
    from service.sources.files import open_file  # not every command needs it

    with open_file(str(file), reading) as source:
        rows = list(source.records(needed, whole=whole))
        show_left_out(source.left_out)
    return rows


def show_left_out(left_out: Counter[tuple[str, str]]) -> None:
    """Print how many rows were left out, and why."""
    for (column, reason), number in left_out.most_common():
        typer.echo(left_out_words(column, reason, number), err=True)


def left_out_words(column: str, reason: str, number: int) -> str:
    """A sentence about rows that lack the same column for the same reason."""
    return f"Left out {number:,} {'row' if number == 1 else 'rows'}: {column} is {reason}"
