"""Rows of an SQL query, read in portions from any database that SQLAlchemy has a driver for."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import sqlalchemy as sa

from service.sources.cursor import PARAMETER, Cursor
from service.sources.files import Source
from service.sources.tables import numbered

_PORTION = 1000


@contextmanager
def open_query(url: str, query: str, cursor: Cursor | None = None) -> Iterator[Source]:
    """Run a query; its transaction is rolled back at the end.

    Args:
        url: as SQLAlchemy takes it, such as ``postgresql+psycopg://user@host/database``. Errors do not repeat it.
        query: one statement that returns rows; with a cursor, those after ``:since``.
        cursor: the last value read; it is moved on, and not saved.

    Raises:
        ValueError: the URL is no URL, its driver is not installed, the database refuses, or query and cursor do not
            fit each other.
    """
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise ValueError(f"the database to read from: {error}") from None
    statement = sa.text(query)
    values = {} if cursor is None else {PARAMETER: cursor.since}
    if statement.compile().params.keys() != values.keys():
        raise ValueError(
            f"a query that begins after :{PARAMETER} needs --cursor, which needs such a query and no other"
        )
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        with _in_words():
            connection = stack.enter_context(engine.connect())
            result = connection.execution_options(stream_results=True, yield_per=_PORTION).execute(statement, values)
        if not result.returns_rows:
            raise ValueError("the query returns no rows: it must be a SELECT")
        records = _records(result) if cursor is None else cursor.noting(_records(result))
        yield Source("SQL", lambda layout: numbered(list(result.keys()), records, layout))


def _records(result: sa.CursorResult[tuple[object, ...]]) -> Iterator[Mapping[str, object]]:
    with _in_words():
        for record in result.mappings():
            yield {str(name): value for name, value in record.items()}


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise ValueError(f"the database to read from says: {error.orig}") from None
