"""One database for the exemplar store, the ledger and the API keys: opening it."""

import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

BUSY_TIMEOUT_S = 60
UNAVAILABLE = (sa.exc.TimeoutError, sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError)
"""All connections are in use; the database does not answer; the connection is gone; it is a standby, not promoted."""
_WRITE = "write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME, with %40 for @ in a password"


def open_database(url: str, *, statement_timeout_s: float | None = None) -> sa.Engine:
    """Open a SQLite or PostgreSQL database with the durability and isolation the ledger relies on.

    SQLite: write-ahead log, ``synchronous=FULL`` (a committed charge survives a power cut), foreign keys, and every
    transaction begins with ``BEGIN IMMEDIATE`` so that two writers wait for each other rather than fail half-way.
    PostgreSQL: READ COMMITTED whatever the server's default (the ledger takes the row locks it needs), and each
    transaction turns ``synchronous_commit`` on where it is off. Nothing is left to a session: behind a transaction
    pooler each transaction may meet another one.

    Args:
        url: address of the database (:func:`parse_url`).
        statement_timeout_s: seconds after which PostgreSQL ends a statement; None leaves that to the server.

    Raises:
        ValueError: the URL is not that of such a database.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed)
    return _open_postgresql(parsed, statement_timeout_s)


class MissingDatabaseError(ValueError):
    """There is no database at the URL in the settings."""


def require_there(url: str) -> None:
    """Refuse a SQLite file that does not exist: opening it would make an empty one.

    Args:
        url: address of the database (:func:`parse_url`).

    Raises:
        MissingDatabaseError: there is no such file.
        ValueError: the URL is not that of a database.
    """
    if (file := sqlite_file(url)) is not None and not file.is_file():
        raise nothing_at(url)


def nothing_at(url: str) -> MissingDatabaseError:
    """The error for a database that is missing or lacks the service's tables; it names the place and the remedy.

    Args:
        url: address of the database (:func:`parse_url`).
    """
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        found = f"there is no database at {file.absolute()}"
    else:
        found = f"the database {parse_url(url).render_as_string()} is empty, or another program's"
    return MissingDatabaseError(
        f"{found}: correct DPICL_DATABASE_URL, or create a knowledge base in a new database with `dpicl kb create`"
    )


def sqlite_file(url: str, name: str = "DPICL_DATABASE_URL") -> Path | None:
    """The file of a SQLite database; None for one in memory, and for PostgreSQL.

    Args:
        url: address of the database (:func:`parse_url`).
        name: the setting that errors name.
    """
    parsed = parse_url(url, name)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)


def parse_url(url: str, name: str = "DPICL_DATABASE_URL") -> sa.URL:
    """The parts of a database's URL. PostgreSQL's has the same driver however it is written.

    Args:
        url: a URL such as ``sqlite:///FILE``, ``postgresql://...`` or ``postgres://...``.
        name: the setting that errors name. They do not repeat the URL, since it may hold a password.

    Raises:
        ValueError: it is not a URL, or another kind of database.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # the latter repeats part of a password that is not encoded
        raise ValueError(f"{name} is not a URL; {_WRITE}") from None
    if "@" in (parsed.host or ""):  # the end of a password that is not encoded
        raise ValueError(f"{name} has more than one @; {_WRITE}")
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if (kind := parsed.get_backend_name()) not in ("sqlite", "postgresql"):
        raise ValueError(f"{name}: {kind!r} is not supported; {_WRITE}")
    return parsed


def _open_postgresql(url: sa.URL, statement_timeout_s: float | None) -> sa.Engine:
    database = sa.create_engine(
        url,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=8,
        # A statement that was prepared in one session is unknown in the pooler's next one.
        connect_args={"prepare_threshold": None},
    )
    # Stricter settings (a standby that must have applied it) stay as they are.
    durable = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"

    @sa.event.listens_for(database, "begin")
    def begin(connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("read_only", False):
            connection.exec_driver_sql(durable)
        if statement_timeout_s is not None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {round(1000 * statement_timeout_s)}")

    return database


def _open_sqlite(url: sa.URL) -> sa.Engine:
    pool = None
    if not url.database or url.database == ":memory:":
        pool = sa.StaticPool  # one connection, shared by all threads of this process: for tests
    else:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    shared = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    database = sa.create_engine(url, hide_parameters=True, poolclass=pool, connect_args=shared)

    @sa.event.listens_for(database, "do_connect")
    def create(_dialect: Any, _record: Any, _args: Any, _options: Any) -> None:
        file = Path(url.database or "")
        if pool is None and not file.exists():
            with suppress(OSError):  # SQLite has words for it
                file.touch(mode=0o600)  # the files beside it get the same rights

    @sa.event.listens_for(database, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy, not the driver, begins transactions (see below)
        cursor = connection.cursor()
        _use_write_ahead_log(cursor)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA cache_size=-16384")  # KiB: a draw reads hundreds of pages all over the file
        cursor.close()

    @sa.event.listens_for(database, "begin")
    def begin(connection: sa.Connection) -> None:
        # A reader marked so (`execution_options(read_only=True)`) takes no write lock.
        deferred = connection.get_execution_options().get("read_only", False)
        connection.exec_driver_sql("BEGIN DEFERRED" if deferred else "BEGIN IMMEDIATE")

    return database


def is_busy(error: BaseException | None) -> bool:
    """Whether SQLite refused since the file is locked elsewhere. Waiting helps, as it does not on a full disk."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Switch to the write-ahead log, once in a file's life.

    SQLite does not wait for processes that open the file at the same moment, whatever the busy timeout: so we do.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if (
                not is_busy(error) or time.monotonic() > deadline
            ):  # for instance a full disk, which waiting does not mend
                raise
            time.sleep(0.02)
