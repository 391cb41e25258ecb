"""Reading people's files: rows in any format that ``dpicl kb ingest`` takes, in the encoding that the user names."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from service.cli.gathering import Options


class TextFormat(Options):
    """Options for reading a file of text."""

    encoding: str | None = None
    """Encoding of CSV that is neither UTF-8 nor marked as UTF-16 or UTF-32, such as cp1252 or shift_jis."""
    delimiter: str | None = None
    """Delimiter between cells of CSV. [default: detected]"""

    def read(self, file: Path, needed: Collection[str]) -> list[dict[str, Any]]:
        """The needed columns of a file's rows, each a text.

        Raises:
            ValueError: the file cannot be read, or a row lacks a text.
        """
        from service.sources.files import read_records  # not every command needs it

        return read_records(str(file), needed, whole=False, **self.model_dump())

    def read_whole(
        self, file: Path, needed: Collection[str], *, numbers_as_text: bool = False
    ) -> list[tuple[int, dict[str, Any]]]:
        """All columns of a file's rows, each row with its number; those needed are texts.

        Raises:
            ValueError: the file cannot be read, or a row lacks a text.
        """
        from service.sources.files import open_file

        with open_file(str(file), **self.model_dump()) as source:
            return list(source.records(needed, whole=True, numbers_as_text=numbers_as_text))
