"""One database for the exemplar store, the ledger and the API keys: opening it."""

import os
import re
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa

from service.database_urls import HOW_TO_WRITE, read_url

BUSY_TIMEOUT_S = 60
UNAVAILABLE = (sa.exc.TimeoutError, sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError)
"""All connections are in use; the database does not answer; the connection is gone; it is a standby, not promoted."""
_HINTS = {
    "25006": "It is a standby, or default_transaction_read_only is on: name the primary, or turn that off "
    "(ALTER DATABASE ... SET default_transaction_read_only = off)",
    "42501": "Its role lacks this right: grant it, or run `dpicl migrate` as the owner",
    "42P05": "A connection pooler mixes sessions up: let it pool transactions, or name the server itself",
    "26000": "A connection pooler mixes sessions up: let it pool transactions, or name the server itself",
    "3D000": "Create it (createdb -T template0 -E UTF8), or correct DPICL_DATABASE_URL",
    "3F000": "Its search_path names no schema that exists: create the schema, or correct search_path",
    "57014": "Raise statement_timeout for this database and role",
    sqlite3.SQLITE_NOTADB: "Another file is there: correct DPICL_DATABASE_URL",
    sqlite3.SQLITE_CANTOPEN: "Is it a folder, or may this user not open it? Correct DPICL_DATABASE_URL",
    sqlite3.SQLITE_READONLY: "Its file or folder is read-only for this user: allow writing, or name another file",
}
"""Advice by PostgreSQL's SQLSTATE and SQLite's error code."""
_NO_DATABASE = re.compile(r'FATAL:\s+database ".*" does not exist')
_SOON = re.compile("starting up|shutting down|recovery|not yet accepting|too many|remaining connection slots")
_LIBPQ = (
    "PGPORT", "PGSERVICE", "PGSERVICEFILE", "PGPASSFILE", "PGOPTIONS", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS",
    "PGREQUIREAUTH", "PGCHANNELBINDING", "PGGSSENCMODE", "PGSSLMODE", "PGSSLNEGOTIATION", "PGSSLROOTCERT", "PGSSLCERT",
    "PGSSLKEY", "PGSSLCRL",
)  # fmt: skip
"""Variables that decide how PostgreSQL is reached, where a URL does not."""


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


class UnsuitableDatabaseError(ValueError):
    """The database cannot hold every text."""


def advice_on(cause: object) -> str:
    """What to do about an error of the database's driver: a sentence without its end."""
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        state = getattr(cause, "sqlstate", None) or ""
        if _NO_DATABASE.search(str(cause)):  # as a connection begins, there are words alone
            state = "3D000"
        if known := _HINTS.get(state):
            return known
        named = ", ".join(name for name in _LIBPQ if name in os.environ)
        return (
            f"Is it running, and is DPICL_DATABASE_URL right?{f' {named} in the environment counts, too' * bool(named)}"
        )
    return _HINTS.get(code & 0xFF) or "Is its disk full or read-only, and is DPICL_DATABASE_URL right?"


def may_pass(error: sa.exc.OperationalError) -> bool:
    """Whether a database may soon answer where it does not now: it refuses neither the user nor the database's name."""
    said = str(error.orig)
    return "FATAL" not in said or _SOON.search(said) is not None


class MissingDatabaseError(ValueError):
    """There is no database at the URL in the settings."""


def require_kept(url: str) -> None:
    """Refuse a database in memory: it would be gone at a command's end, and other processes would not see it.

    Args:
        url: address of the database (:func:`parse_url`).

    Raises:
        ValueError: it is in memory, or the URL is not that of a database.
    """
    if parse_url(url).get_backend_name() == "sqlite" and sqlite_file(url) is None:
        raise ValueError(f"DPICL_DATABASE_URL names a database in memory, which would not be kept; {HOW_TO_WRITE}")


def require_there(url: str) -> None:
    """Refuse a SQLite file that does not exist: opening it would make an empty one. So is one in memory refused.

    Args:
        url: address of the database (:func:`parse_url`).

    Raises:
        MissingDatabaseError: there is no such file.
        ValueError: the URL is not that of a database, or of one in memory.
    """
    require_kept(url)
    if (file := sqlite_file(url)) is not None and not file.is_file():
        raise nothing_at(url)


def nothing_at(url: str) -> MissingDatabaseError:
    """The error for a database that is missing or lacks the service's tables; it names the place and the remedy.

    Args:
        url: address of the database (:func:`parse_url`).
    """
    file = sqlite_file(url)
    if file is not None and file.is_dir():
        found = f"{file.absolute()} is a folder"
    elif file is not None and not file.is_file():
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
    """The parts of a database's URL. PostgreSQL's has the same driver however it is written, and so has SQLite's.

    White space around it, such as a secret's last line break, does not count.

    Args:
        url: a URL such as ``sqlite:///FILE``, ``postgresql://...`` or ``postgres://...``.
        name: the setting that errors name. They do not repeat the URL, since it may hold a password.

    Raises:
        ValueError: it is not a URL, or another kind of database.
    """
    parsed = read_url(url, name)
    kind = parsed.drivername.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        if parsed.port is not None and not 0 < parsed.port < 65536:
            raise ValueError(f"{name} has the port {parsed.port}; {HOW_TO_WRITE}")
        if (parsed.host or "").lower().startswith("%2f"):  # the folder of a socket, as libpq writes it
            parsed = parsed.set(host=unquote(parsed.host or ""))
        if not parsed.database and not {"service", "dbname"} & set(parsed.query):
            raise ValueError(f"{name} names no database; {HOW_TO_WRITE}")
        return parsed.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise ValueError(f"{name}: {kind!r} is not supported; {HOW_TO_WRITE}")
    if "?" in url:
        raise ValueError(f"{name}: write the path of a file alone; it cannot have a ? or options after it")
    return _file_alone(parsed, name).set(drivername="sqlite")


def _file_alone(parsed: sa.URL, name: str) -> sa.URL:
    """The URL of a SQLite database, if it is a file's path and nothing else, or one in memory.

    Raises:
        ValueError: it is not.
    """
    if parsed.host or parsed.username or parsed.port:
        raise ValueError(
            f"{name} needs three slashes before a path, and four before one that begins with a slash: "
            "sqlite:///dpicl.sqlite, sqlite:////var/lib/dpicl.sqlite"
        )
    if "\0" in (parsed.database or ""):
        raise ValueError(f"{name}: no file's path can have %00 in it")
    if (parsed.database or "").startswith("file:"):
        raise ValueError(f"{name}: write the path of a file alone, without file:")
    if (parsed.database or "").startswith("~"):
        raise ValueError(f"{name}: ~ does not stand for your home here; write the whole path, sqlite:////home/...")
    return parsed


def _open_postgresql(url: sa.URL, statement_timeout_s: float | None) -> sa.Engine:
    if "PGHOSTADDR" in os.environ and "hostaddr" not in url.query:
        raise ValueError("PGHOSTADDR would lead away from the host that the database's URL names: unset it")
    # libpq sends it as a connection begins, which outweighs defaults of the server; psycopg reads no other.
    os.environ["PGDATESTYLE"] = "ISO"
    database = sa.create_engine(
        url,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=8,
        # A statement that was prepared in one session is unknown in the pooler's next one.
        connect_args={"prepare_threshold": None, "client_encoding": "utf8"},
    )

    @sa.event.listens_for(database, "connect", insert=True)
    def require_every_text(connection: Any, _record: Any) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in (None, "UTF8", "SQL_ASCII"):
            found, connection_name = encoding, connection.info.dbname
            connection.close()
            raise UnsuitableDatabaseError(
                f"the database {connection_name!r} has the encoding {found}, which cannot hold every text: create "
                "another one (createdb -T template0 -E UTF8 NAME), and name it in the URL"
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
        folder = Path(url.database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ValueError(
                f"the database's folder {folder} cannot be made ({error.strerror}): correct the database's URL"
            ) from None
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
