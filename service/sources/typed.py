"""A few rows that people paste: JSON Lines or CSV."""

import io
from typing import Any


def read_rows(rows: str) -> list[dict[str, Any]]:
    """A few rows as pasted: JSON Lines, or CSV with a header.

    Raises:
        exemplar_store.BadRowError: a row is neither.
    """
    from exemplar_store.rows import csv_records, json_records  # an analyst's commands do without

    lines = io.BytesIO(rows.encode(errors="surrogatepass"))
    records = json_records(lines) if rows.lstrip().startswith("{") else csv_records(lines)
    return [dict(record) for _, record in records.numbered]
