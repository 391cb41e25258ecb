"""Rows of an SQL query, read in portions from any database that SQLAlchemy has a driver for."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from exemplar_store.rows import SourceRecords
from service.sources.cursor import PARAMETER, Cursor
from service.sources.files import Source, SourcePart
from service.sources.tables import table_records

_PORTION = 1000


@contextmanager
def open_query(url: str, query: str, cursor: Cursor | None = None) -> Iterator[Source]:
    """Run a query. Its transaction is rolled back once its last row is read, before anything is done with the rows.

    Args:
        url: a URL of SQLAlchemy, such as ``postgresql+psycopg://user@host/database``. Errors do not repeat it.
        query: one statement that returns rows; with a cursor, those after ``:since``.
        cursor: the last value read; it is advanced, but not saved.

    Raises:
        ValueError: the URL is not valid, its driver is not installed, the database refuses, or query and cursor do not
            fit each other.
    """
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise ValueError(f"the database to read from: {error}") from None
    file = engine.url.database
    if engine.dialect.name == "sqlite" and file and not file.startswith((":", "file:")) and not Path(file).is_file():
        raise ValueError(f"the database to read from: there is no file {file}")  # SQLite would create it
    statement = sa.text(query)
    values = {} if cursor is None else {PARAMETER: cursor.since}
    if statement.compile().params.keys() != values.keys():
        raise ValueError(
            f"a query that begins after :{PARAMETER} needs --cursor, which needs such a query and no other"
        )
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        with _in_words():
            connection = stack.enter_context(_closing(engine.connect()))
            result = connection.execution_options(stream_results=True, yield_per=_PORTION).execute(statement, values)
        if not result.returns_rows:
            raise ValueError("the query returns no rows: it must be a SELECT")
        names = list(result.keys())

        def read(needed: Collection[str] | None) -> SourceRecords:
            records = _records(connection, result)
            return table_records(names, needed, records if cursor is None else cursor.noting(records))

        yield Source("SQL", lambda: iter([SourcePart(read)]))


@contextmanager
def _closing(connection: sa.Connection) -> Iterator[sa.Connection]:
    try:
        yield connection
    finally:
        with _in_words():
            connection.close()


def _records(connection: sa.Connection, result: sa.CursorResult[tuple[object, ...]]) -> Iterator[Mapping[str, object]]:
    with _in_words():
        for record in result.mappings():
            yield {str(name): value for name, value in record.items()}
        connection.close()  # servers end transactions that are idle, and embedding may take an hour


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise ValueError(f"the database to read from refuses: {said}") from None
