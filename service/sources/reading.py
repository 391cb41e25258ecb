"""How rows are read from people's files: options that all faces have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import ConfigDict, Field

from accounting.plans.described import Described
from accounting.plans.written_numbers import WrittenWhole


def column_by_field(pairs: Iterable[str]) -> dict[str, str]:
    """Names of columns, by field, from pairs of the form ``FIELD=COLUMN``.

    Raises:
        ValueError: one of them is not such a pair.
    """
    columns = dict(pair.partition("=")[::2] for pair in pairs)
    if not all(columns.values()):
        raise ValueError("write FIELD=COLUMN")
    return columns


class MeaninglessOptionError(ValueError):
    """An option that means nothing for a kind of source.

    Attributes:
        option: name of the option.
    """

    def __init__(self, option: str, kind: str) -> None:
        super().__init__(f"{option} means nothing for {kind}: leave it out")
        self.option = option


class SentRows(Described):
    """How the rows of a file are read that a caller sends."""

    model_config = ConfigDict(frozen=True)

    delimiter: str | None = None
    """Delimiter between cells of CSV. [default: detected]"""
    skip_lines: Annotated[WrittenWhole, Field(ge=0, le=1000)] = 0
    """Lines of CSV, or rows of a sheet, before the one that names the columns."""
    sheet: str | None = None
    """Sheet of a workbook that has several."""
    numbers_as_text: bool = False
    """Take numbers, dates and times as text; else they are errors."""
    skip_incomplete: bool = False
    """Leave out rows without a value in a needed column, and count them; else they are errors."""

    def check_fits(self, kind: str) -> None:
        """Refuse options that mean nothing for a kind of source, rather than ignore them.

        Raises:
            MeaninglessOptionError: one of them is set.
        """
        for name in ("delimiter", "skip_lines", "sheet"):
            if getattr(self, name) and name not in _MEANING.get(kind, ()):
                raise MeaninglessOptionError(name, kind)


_MEANING = {"CSV": ("delimiter", "skip_lines"), "a workbook": ("sheet", "skip_lines")}
"""The options that mean something, by kind of source; those of no other kind do."""


class Reading(SentRows):
    """How the rows of a file or an address are read."""

    encoding: str | None = None
    """Encoding of CSV that is neither UTF-8 nor marked as UTF-16 or UTF-32, such as cp1252 or shift_jis."""


AS_IT_IS = Reading()
"""Nothing is named, so all is detected or an error."""
