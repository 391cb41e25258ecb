"""Rows of a file that somebody sends: its whole content, in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from exemplar_store import BadRowError, Layout, Row
from exemplar_store.errors import NotUtf8Error
from exemplar_store.rows import csv_records, json_records
from service.sources.compressed import not_text
from service.sources.encodings import UTF8, as_utf8, encoding_of, unmarked_utf16
from service.sources.files import SAMPLE_BYTES, delimiter_of


def rows_of(
    body: bytes, *, json_lines: bool, encoding: str | None = None, advice: str
) -> Callable[[Layout], Iterator[Row]]:
    """Read an upload as :func:`service.sources.files.open_file` reads a file of text.

    Args:
        body: its content.
        json_lines: whether it is JSON Lines rather than CSV.
        encoding: that the sender names.
        advice: what a sender is to do whose text is neither UTF-8 nor marked.

    Returns:
        Gives the rows, given what is in which column; raises :class:`BadRowError` for one that is not valid.

    Raises:
        ValueError: it is not text, or not in the encoding that is named.
    """
    if what := not_text(body):
        raise ValueError(f"it is not text but {what[0]}: send JSON Lines or CSV")
    encoding = encoding_of(body[:4], encoding)
    if json_lines and not encoding.startswith("utf-"):
        raise ValueError("JSON Lines are UTF-8")
    if encoding == UTF8 and (guess := unmarked_utf16(body[:SAMPLE_BYTES])):
        raise ValueError(f"it looks like {guess} without a mark: {advice}")

    def read(layout: Layout) -> Iterator[Row]:
        lines = as_utf8(io.BytesIO(body), encoding)
        sample = body[:SAMPLE_BYTES].decode(encoding, "replace")
        try:
            records = json_records(lines) if json_lines else csv_records(lines, delimiter_of(sample))
            yield from layout.rows(records)
        except NotUtf8Error as error:
            raise BadRowError(error.row, None, f"is not UTF-8 at byte {error.byte}: {advice}") from None

    return read
