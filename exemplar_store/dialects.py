"""The few things SQLite and PostgreSQL spell differently."""

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from exemplar_store.errors import DatabaseInUseError

_CHECKPOINT_WAIT_MS = 2000
"""Far longer than a sample takes to read."""
_LARGE_LOG_PAGES = 1 << 14
"""64 MiB."""
_SHORT_WAIT_MS = 100
_ENDED_S = 2.0
"""PostgreSQL takes a moment to end the session of a closed connection."""
_OTHERS = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()"
)
_IN_USE = (
    "Another process has the database open: stop all services and commands, and a connection pooler if there is one, "
    "then run this again. Nothing was changed."
)
_POOLED = (
    "The database is reached through a connection pooler, which hides who else uses it: stop all services and "
    "commands, and run this again with DPICL_DATABASE_URL naming the server itself. Nothing was changed."
)


def reading(database: sa.Engine) -> sa.Connection:
    """A connection that only reads; on SQLite it waits for no writer (``service.records.database``). Close it."""
    return database.connect().execution_options(read_only=True)


def insert_new(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that leaves rows alone whose key is there already; its ``rowcount`` is the number inserted."""
    insert = sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)
    return insert.on_conflict_do_nothing().execution_options(preserve_rowcount=True)


class _Numbers(sa.TypeDecorator[Sequence[int]]):
    """Whole numbers as a single parameter: JSON on SQLite, an array on PostgreSQL."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return dialect.type_descriptor(sa.Text() if dialect.name == "sqlite" else postgresql.ARRAY(sa.BigInteger))

    def process_bind_param(self, value: Sequence[int] | None, dialect: sa.Dialect) -> Any:
        return json.dumps(value) if dialect.name == "sqlite" else value


NUMBERS = _Numbers()


def among(dialect: str, column: sa.Column[int], numbers: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
    """``column`` is one of some :data:`NUMBERS`, a single parameter: one cached statement, one index seek each."""
    if dialect == "sqlite":
        return column.in_(sa.select(sa.func.json_each(numbers).table_valued("value").c.value))
    return column == sa.any_(numbers)


def listed(connection: sa.Connection, column: sa.Column[int]) -> sa.ColumnElement[list[int] | None]:
    """An aggregate: the column's values as a list; of no rows, an empty list or None."""
    aggregate = sa.func.json_group_array if connection.dialect.name == "sqlite" else sa.func.json_agg
    return aggregate(column, type_=sa.JSON)


def numbered(dialect: str, numbers: sa.BindParameter[Any]) -> tuple[sa.ColumnElement[int], sa.ColumnElement[int]]:
    """Two columns of a table with a row for each of some :data:`NUMBERS`: which it is, from 0, and itself."""
    value = sa.column("value", sa.BigInteger)
    if dialect == "sqlite":
        table = sa.func.json_each(numbers).table_valued(sa.column("key", sa.Integer), value)
        return table.c.key, table.c.value
    rows = sa.func.unnest(numbers).table_valued(value, with_ordinality="number", name="numbered").render_derived()
    return sa.cast(rows.c.number, sa.Integer) - 1, rows.c.value


def hexadecimal(dialect: str, column: sa.Column[bytes]) -> sa.ColumnElement[str]:
    """An aggregate: the column's bytes one after the other, in hexadecimal."""
    if dialect == "sqlite":
        return sa.func.group_concat(sa.func.hex(column), "")
    return sa.func.string_agg(sa.func.encode(column, "hex"), "")


def as_utc(at: datetime) -> datetime:
    """A stored instant. SQLite keeps no time zone (what was written is UTC), PostgreSQL answers in its own."""
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def overwrite_deleted(connection: sa.Connection) -> None:
    """On SQLite, overwrite what this connection deletes from now on, in the file itself."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete=ON")


def empty_write_ahead_log(database: sa.Engine) -> None:
    """On SQLite, leave nothing deleted in the log. A reader that stays long leaves that to the next checkpoint.

    While a checkpoint waits for readers, no connection can write: a release made of the whole knowledge base would
    otherwise hold up charges for as long as it reads.
    """
    if database.dialect.name != "sqlite":
        return
    # A checkpoint cannot run inside a transaction.
    with closing(database.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute(f"PRAGMA busy_timeout={_CHECKPOINT_WAIT_MS}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            cursor.execute(f"PRAGMA busy_timeout={patience}")


def bound_write_ahead_log(database: sa.Engine) -> None:
    """On SQLite, begin the log anew if it is large: while some reader reads, whichever, the file only grows.

    For a tenth of a second at most no connection can write.
    """
    if database.dialect.name != "sqlite":
        return
    with closing(database.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        (_busy, pages, _copied) = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages <= _LARGE_LOG_PAGES:
            return
        (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute(f"PRAGMA busy_timeout={_SHORT_WAIT_MS}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            cursor.execute(f"PRAGMA busy_timeout={patience}")


@contextmanager
def alone(database: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction while no other connection to the database is open. On SQLite none can be opened meanwhile, either.

    Raises:
        DatabaseInUseError: one is open, or a connection pooler hides whether one is.
    """
    database.dispose()  # this process's own that are idle
    with database.connect() as connection:
        connection.detach()  # it would keep others out for as long as it is in the pool
        if database.dialect.name == "sqlite":
            _lock_file(connection)
        with connection.begin():
            if database.dialect.name == "postgresql":
                _find_no_other(connection)
            yield connection


def _lock_file(connection: sa.Connection) -> None:
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute(f"PRAGMA busy_timeout={_CHECKPOINT_WAIT_MS}")
        try:
            cursor.execute("PRAGMA journal_mode=DELETE")  # only the last connection may leave the write-ahead log
            cursor.execute("PRAGMA locking_mode=EXCLUSIVE")
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            raise DatabaseInUseError(_IN_USE) from error


def _find_no_other(connection: sa.Connection) -> None:
    # A pooler's server sessions are shared: a client that is between two transactions has none. It gives its clients
    # process numbers of its own making.
    driver: Any = connection.connection.dbapi_connection
    if driver.info.backend_pid != connection.scalar(sa.select(sa.func.pg_backend_pid())):
        raise DatabaseInUseError(_POOLED)
    deadline = time.monotonic() + _ENDED_S
    while connection.scalar(_OTHERS):
        if time.monotonic() > deadline:
            raise DatabaseInUseError(_IN_USE)
        time.sleep(0.05)
        connection.execute(sa.select(sa.func.pg_stat_clear_snapshot()))
