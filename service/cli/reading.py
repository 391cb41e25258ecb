"""Reading people's files: rows in any format that ``dpicl kb ingest`` takes, in the encoding that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.cli.gathering import Options


class TextFormat(Options):
    """Options for reading a file of text."""

    encoding: str | None = None
    """Encoding of CSV that is neither UTF-8 nor marked as UTF-16 or UTF-32, such as cp1252 or shift_jis."""
    delimiter: str | None = None
    """Delimiter between cells of CSV. [default: detected]"""

    def read(self, file: Path) -> list[dict[str, Any]]:
        """A file's rows, with all their columns.

        Raises:
            ValueError: the file cannot be read.
        """
        from service.sources.files import read_records  # not every command needs it

        return read_records(str(file), **self.model_dump())
