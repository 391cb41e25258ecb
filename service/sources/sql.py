"""Rows of an SQL query, read in portions from any database that SQLAlchemy has a driver for.

A driver's errors quote values, so none is repeated where it may be about one. What cannot be read in a column that is
not needed does not matter where the driver can be asked to go on: SQLite's and psycopg.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from exemplar_store.rows import SourceRecords, Unreadable
from service.database_urls import read_url
from service.sources.cursor import PARAMETER, Cursor
from service.sources.files import Source, SourcePart
from service.sources.reading import AS_IT_IS, SentRows
from service.sources.tables import table_records, wanted

T = TypeVar("T", bound=sa.Connection | sa.CursorResult[Any])
_PORTION = 1000
_NAMED = "the database to read from"
_PARAMETER = re.compile(r"(?<![:\w\\\[]):([A-Za-z_]\w*)(?!\w)")
_QUOTED = r""""(?:[^"]|"")*"|`[^`]*`|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/"""
_LITERALS = {
    False: re.compile(rf"[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|{_QUOTED}", re.DOTALL),
    True: re.compile(rf"'(?:[^'\\]|\\.|'')*'|{_QUOTED}", re.DOTALL),
}
"""Literals, names in quotes and comments; by whether a backslash escapes a quote."""
_PLAIN_CLASSES = ("08", "0A", "25", "26", "28", "3D", "3F", "42", "53", "54", "55", "57", "58")
"""Classes of SQLSTATE whose messages are about the query, the server or the connection, never about a value."""
_NOT_UTF8 = Unreadable("is text that is not UTF-8; convert it in --query, or leave the column out")


@contextmanager
def open_query(url: str, query: str, cursor: Cursor | None = None, reading: SentRows = AS_IT_IS) -> Iterator[Source]:
    """Run a query. Its transaction is rolled back once its last row is read, before anything is done with the rows.

    Args:
        url: a URL of SQLAlchemy, such as ``postgresql+psycopg://user@host/database``. Errors do not repeat it.
        query: one statement that returns rows; with a cursor, those after ``:since``.
        cursor: the last value read; it is advanced, but not saved.
        reading: options of reading.

    Raises:
        ValueError: the URL is not valid, its driver is not installed, the database refuses, or query and cursor do not
            fit each other.
    """
    reading.check_fits("a query")
    try:
        engine = sa.create_engine(read_url(url, _NAMED))
    except (sa.exc.ArgumentError, ImportError) as error:
        raise ValueError(f"{_NAMED}: its driver is not installed ({error})") from None
    file = engine.url.database
    if engine.dialect.name == "sqlite" and file and not file.startswith((":", "file:")) and not Path(file).is_file():
        raise ValueError(f"{_NAMED}: there is no file {file}")  # SQLite would create it
    statement, parameters = _statement(query, backslashes=engine.dialect.name in ("mysql", "mariadb"))
    values = {} if cursor is None else {PARAMETER: cursor.since}
    if parameters != values.keys():
        raise ValueError(
            f"a query that begins after :{PARAMETER} needs --cursor, which needs such a query and no other"
        )
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        with _connecting():
            connection = stack.enter_context(_closing(_connected(engine, query)))
        with _querying():
            streamed = connection.execution_options(stream_results=True, yield_per=_PORTION)
            result = streamed.execute(statement, values)
        stack.enter_context(_closing(result))
        if not result.returns_rows:
            raise ValueError("the query returns no rows: it must be a SELECT")
        names = [str(name) for name in result.keys()]  # noqa: SIM118 (a result has no other way to name them)
        if cursor is not None:
            cursor.check(names)

        def read(needed: Collection[str] | None) -> SourceRecords:
            if needed is not None and cursor is not None:
                needed = {*needed, cursor.column}
            records = _records(connection, result, names, needed)
            return table_records(names, needed, records if cursor is None else cursor.noting(records))

        yield Source("SQL", lambda: iter([SourcePart(read)]), reading)


def _statement(query: str, *, backslashes: bool) -> tuple[sa.TextClause, set[str]]:
    """The query, and the names of its parameters. A colon in a literal or a comment begins none."""
    names, written, end = set(), [], 0

    def keep(match: re.Match[str]) -> str:
        names.add(match[1])
        return f"\0{match[1]}"

    for literal in [*_LITERALS[backslashes].finditer(query), None]:
        begin = len(query) if literal is None else literal.start()
        written.append(_PARAMETER.sub(keep, query[end:begin]))
        if literal is not None:
            written.append(literal[0])
            end = literal.end()
    # SQLAlchemy takes a backslash before a colon away, and the colon for itself.
    return sa.text("".join(written).replace(":", r"\:").replace("\0", ":")), names


def _connected(engine: sa.Engine, query: str) -> sa.Connection:
    """A connection that goes on where a value cannot be read, if its driver can."""
    if engine.driver == "psycopg" and "client_encoding" not in engine.url.query:  # that of SQL_ASCII gives bytes
        sa.event.listen(engine, "do_connect", lambda *event: event[3].update(client_encoding="utf8"))
    connection = engine.connect()
    driver: Any = connection.connection.driver_connection
    if engine.driver == "pysqlite":
        driver.text_factory = _sqlite_text
    elif engine.driver == "psycopg":
        from service.sources.postgres import read_on

        read_on(driver, query)
    return connection


def _sqlite_text(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8


@contextmanager
def _closing(opened: T) -> Iterator[T]:
    try:
        yield opened
    finally:
        with _connecting():
            opened.close()


def _records(
    connection: sa.Connection,
    result: sa.CursorResult[tuple[object, ...]],
    names: Sequence[str],
    needed: Collection[str] | None,
) -> Iterator[Mapping[str, object]]:
    read = [(names.index(name), name) for name in wanted(names, needed)]
    with _querying():
        for record in result:
            yield {name: record[place] for place, name in read}
        connection.close()  # servers end transactions that are idle, and embedding may take an hour


@contextmanager
def _connecting() -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise ValueError(f"{_NAMED} refuses: {_one_line(error)}") from None


@contextmanager
def _querying() -> Iterator[None]:
    """Raise errors of the query and of reading its rows in words that hold no value."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise ValueError(f"{_NAMED} refuses: {_plain(error)}") from None
    except sa.exc.StatementError as error:  # before the database was asked
        raise ValueError(f"{_NAMED} refuses: {_kind(error.orig)}; write it otherwise in --query or --since") from None
    except Exception as error:  # a driver that cannot convert a value, whose words may quote it
        raise ValueError(f"{_NAMED} holds a value that cannot be read ({_kind(error)}); {_LEAVE_OUT}") from None


_LEAVE_OUT = "leave columns that nobody needs out of --query, and cast the others to text"


def _plain(error: sa.exc.DBAPIError) -> str:
    """The words of an error, unless they may be about a value."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        plain = state.startswith(_PLAIN_CLASSES)
    else:
        plain = isinstance(error, (sa.exc.ProgrammingError, sa.exc.OperationalError, sa.exc.NotSupportedError))
    if plain:
        return _one_line(error)
    code = f"{_kind(error.orig)}, SQLSTATE {state}" if state else _kind(error.orig)
    return f"a value does not fit what the query does with it ({code}); look at its casts, and at --since; {_LEAVE_OUT}"


def _one_line(error: sa.exc.DBAPIError) -> str:
    return " ".join(str(error.orig).split())


def _kind(error: BaseException | None) -> str:
    return type(error).__name__
