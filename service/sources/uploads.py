"""Rows of a file that a client uploads: its whole content, in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence

from exemplar_store import BadRowError, Layout, Row
from exemplar_store.errors import MissingColumnError, NotUtf8Error
from exemplar_store.rows import SourceRecords, csv_records, json_records
from service.sources.compressed import not_text
from service.sources.encodings import UTF8, as_utf8, encoding_of, likely_encodings, unmarked_utf
from service.sources.files import SAMPLE_BYTES, as_read, cells, delimiter_by, propose_header
from service.sources.reading import AS_IT_IS, SentRows
from service.sources.workbooks import BEGINNINGS, MOST_SENT_BYTES, read_sheet, sheet_records


def rows_of(
    body: bytes, *, json_lines: bool, encoding: str | None = None, reading: SentRows = AS_IT_IS, advice: str
) -> Callable[[Layout], Iterator[Row]]:
    """Read an upload as :func:`service.sources.files.open_file` reads a file.

    Args:
        body: content of the file; it may be a workbook, whatever it is called.
        json_lines: whether it is JSON Lines rather than CSV.
        encoding: the encoding that the sender names; None: none is named.
        reading: options of reading.
        advice: advice to a sender whose text is neither UTF-8 nor marked.

    Returns:
        A function from the layout of the columns to the rows; it raises :class:`BadRowError` for an invalid row.

    Raises:
        ValueError: the file is not text, or the encoding is unknown, does not fit it, or is missing for UTF-16.
    """
    workbook = body.startswith(BEGINNINGS)
    reading.check_fits("a workbook" if workbook else "JSON Lines" if json_lines else "CSV")
    if workbook:
        sheet = read_sheet(io.BytesIO(body), reading.sheet, MOST_SENT_BYTES)
        return lambda layout: _rows(layout, reading, lambda: sheet_records(sheet, reading.skip_lines), lambda: sheet)
    if what := not_text(body):
        raise ValueError(f"it is not text but {what[0]}: send JSON Lines, CSV or a workbook")
    encoding = encoding_of(body[:4], encoding)
    if json_lines and not encoding.startswith("utf-"):
        raise ValueError("JSON Lines are UTF-8")
    if encoding == UTF8 and (guess := unmarked_utf(body[:SAMPLE_BYTES])):
        raise ValueError(f"it looks like {guess} without a mark: {advice}")

    sample = body[:SAMPLE_BYTES].decode(encoding, "replace")
    mark = "" if json_lines else delimiter_by(reading, sample)

    def records() -> SourceRecords:
        lines = as_utf8(io.BytesIO(body), encoding)
        return json_records(lines) if json_lines else csv_records(lines, mark, reading.skip_lines)

    def read(layout: Layout) -> Iterator[Row]:
        try:
            yield from _rows(layout, reading, records, lambda: () if json_lines else cells(sample))
        except NotUtf8Error as error:
            likely = likely_encodings(body[:SAMPLE_BYTES], error.line)
            looks = f"; it looks like {' or '.join(likely)}" if likely else ""
            raise BadRowError(error.row, None, f"is not UTF-8 at byte {error.byte}{looks}: {advice}") from None

    return read


def _rows(
    layout: Layout,
    reading: SentRows,
    records: Callable[[], SourceRecords],
    beginning: Callable[[], Iterable[Sequence[object]]],
) -> Iterator[Row]:
    try:
        yield from as_read(layout, reading).rows(records())
    except MissingColumnError as error:
        propose_header(error, beginning())
        raise
