"""Rows of a file that a client uploads: its whole content, in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from exemplar_store import BadRowError, Layout, Row
from exemplar_store.errors import NotUtf8Error
from exemplar_store.rows import csv_records, json_records
from service.sources.compressed import not_text
from service.sources.encodings import UTF8, as_utf8, encoding_of, unmarked_utf
from service.sources.files import SAMPLE_BYTES, delimiter_of


def rows_of(
    body: bytes, *, json_lines: bool, encoding: str | None = None, advice: str
) -> Callable[[Layout], Iterator[Row]]:
    """Read an upload as :func:`service.sources.files.open_file` reads a file of text.

    Args:
        body: content of the file.
        json_lines: whether it is JSON Lines rather than CSV.
        encoding: the encoding that the sender names; None: none is named.
        advice: advice to a sender whose text is neither UTF-8 nor marked.

    Returns:
        A function from the layout of the columns to the rows; it raises :class:`BadRowError` for an invalid row.

    Raises:
        ValueError: the file is not text, or the encoding is unknown, does not fit it, or is missing for UTF-16.
    """
    if what := not_text(body):
        raise ValueError(f"it is not text but {what[0]}: send JSON Lines or CSV")
    encoding = encoding_of(body[:4], encoding)
    if json_lines and not encoding.startswith("utf-"):
        raise ValueError("JSON Lines are UTF-8")
    if encoding == UTF8 and (guess := unmarked_utf(body[:SAMPLE_BYTES])):
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
