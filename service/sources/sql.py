"""Rows of an SQL query, read in portions from any database that SQLAlchemy has a driver for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import sqlalchemy as sa

from service.sources.files import Source
from service.sources.tables import numbered

_PORTION = 1000


@contextmanager
def open_query(url: str, query: str) -> Iterator[Source]:
    """Run a query; its transaction is rolled back at the end.

    Args:
        url: as SQLAlchemy takes it, such as ``postgresql+psycopg://user@host/database``. Errors do not repeat it.
        query: one statement that returns rows.

    Raises:
        ValueError: the URL is no URL, its driver is not installed, or the database refuses.
    """
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise ValueError(f"the database to read from: {error}") from None
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        with _in_words():
            connection = stack.enter_context(engine.connect())
            result = connection.execution_options(stream_results=True, yield_per=_PORTION).execute(sa.text(query))
        if not result.returns_rows:
            raise ValueError("the query returns no rows: it must be a SELECT")
        yield Source("SQL", lambda layout: numbered(list(result.keys()), _records(result), layout))


def _records(result: sa.CursorResult[tuple[object, ...]]) -> Iterator[dict[str, object]]:
    with _in_words():
        for record in result.mappings():
            yield {str(name): value for name, value in record.items()}


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise ValueError(f"the database to read from says: {error.orig}") from None
