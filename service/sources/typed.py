"""Input that people type or paste: a question, and a few rows as JSON Lines or CSV."""

import io
import json
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


def read_rows(rows: str) -> list[dict[str, Any]]:
    """A few rows as pasted: JSON Lines, or CSV with a header.

    Raises:
        exemplar_store.BadRowError: a row is neither.
    """
    from exemplar_store.rows import csv_records, json_records  # an analyst's commands do without

    lines = io.BytesIO(rows.encode(errors="surrogatepass"))
    records = json_records(lines) if rows.lstrip().startswith("{") else csv_records(lines)
    return [dict(record) for _, record in records.numbered]
