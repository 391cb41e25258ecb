"""A few rows that people paste: JSON Lines, CSV, or cells of a spreadsheet."""

import io
from typing import Any


def read_rows(rows: str) -> list[dict[str, Any]]:
    """A few rows as pasted: JSON Lines, or CSV with a header, with any of the usual delimiters.

    Raises:
        exemplar_store.BadRowError: a row is neither.
    """
    from exemplar_store.rows import csv_records, json_records  # an analyst's commands do without
    from service.sources.files import delimiter_of

    lines = io.BytesIO(rows.encode(errors="surrogatepass"))
    as_json = rows.lstrip("\ufeff \t\r\n").startswith(("{", "["))
    records = json_records(lines) if as_json else csv_records(lines, delimiter_of(rows))
    return [dict(record) for _, record in records.numbered]
