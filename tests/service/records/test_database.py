"""Opening the database: durability, isolation, transactions that wait for each other."""

import multiprocessing
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from service.records import database
from service.records.database import (
    MissingDatabaseError,
    UnsuitableDatabaseError,
    advice_on,
    open_database,
    parse_url,
    require_there,
)
from service.records.witness import check_witness, open_witness
from service.settings import Settings
from tests.processes import FRESH
from tests.service.shell import Shell


def setting(engine: sa.Engine, name: str) -> object:
    with engine.connect() as connection:
        ask = "PRAGMA" if engine.dialect.name == "sqlite" else "SHOW"
        return connection.exec_driver_sql(f"{ask} {name}").scalar_one()


def test_a_committed_charge_survives_a_power_cut(engine: sa.Engine):
    if engine.dialect.name == "sqlite":
        assert setting(engine, "journal_mode") == "wal"
        assert setting(engine, "synchronous") == 2  # FULL
        assert setting(engine, "foreign_keys") == 1
        assert setting(engine, "busy_timeout") == 60_000
    else:
        assert setting(engine, "synchronous_commit") == "on"
        assert setting(engine, "transaction_isolation") == "read committed"


def test_a_servers_weaker_defaults_are_not_taken_over(engine: sa.Engine, database_url: str):
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:  # WAL stays in the file, synchronous has to be set on each connection
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA synchronous=OFF")
    else:
        with engine.begin() as connection:
            name = connection.engine.url.database
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    again = open_database(database_url)
    test_a_committed_charge_survives_a_power_cut(again)
    again.dispose()


COUNTER = sa.Table("counter", sa.MetaData(), sa.Column("n", sa.Integer))


def test_two_writers_wait_for_each_other(engine: sa.Engine):
    """Read, think, write: without a lock at the start the second writer would overwrite the first."""
    COUNTER.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(COUNTER).values(n=0))

    def add(_number: int) -> None:
        with engine.begin() as connection:
            n = connection.execute(sa.select(COUNTER.c.n).with_for_update()).scalar_one()
            connection.execute(sa.update(COUNTER).values(n=n + 1))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(80)))
    with engine.connect() as connection:
        assert connection.execute(sa.select(COUNTER.c.n)).scalar_one() == 80


def test_a_reader_does_not_wait_for_a_writer(engine: sa.Engine):
    COUNTER.metadata.create_all(engine)
    with engine.begin() as writer:
        writer.execute(sa.insert(COUNTER).values(n=1))
        with engine.execution_options(read_only=True).begin() as reader:
            assert reader.execute(sa.select(COUNTER.c.n)).all() == []


def test_schema_changes_are_rolled_back_with_their_transaction(engine: sa.Engine):
    with engine.connect() as connection, connection.begin() as transaction:
        connection.exec_driver_sql("CREATE TABLE half (n INTEGER)")
        transaction.rollback()
    assert sa.inspect(engine).get_table_names() == []


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_has_the_installed_driver_and_needs_a_witness_however_it_is_written(scheme: str, monkeypatch):
    url = f"{scheme}://u@localhost/x"
    assert open_database(url).url.drivername == "postgresql+psycopg"
    with pytest.raises(ValueError, match="DPICL_WITNESS_URL=none"):
        check_witness(Settings(database_url=url, witness_url=None))
    with pytest.raises(ValueError, match="own database"):
        open_witness(
            Settings(database_url="postgresql://u@localhost/x", witness_url=url), sa.create_engine("sqlite://")
        )
    opened = Mock(side_effect=ConnectionError)
    monkeypatch.setattr("service.records.witness.open_database", opened)
    with pytest.raises(ConnectionError):
        open_witness(Settings(witness_url=url), sa.create_engine("sqlite://"))
    assert "connect_timeout=5" in opened.call_args.args[0]


@pytest.mark.parametrize(
    ("url", "driver", "database", "query"),
    [
        ("postgresql+psycopg2://u@h/db", "postgresql+psycopg", "db", {}),
        ("postgresql+asyncpg://u:p%40w@h/db", "postgresql+psycopg", "db", {}),  # pragma: allowlist secret
        (" postgres://u@h/db\n", "postgresql+psycopg", "db", {}),
        ("postgresql://u:p#x%25@h/db?sslmode=require", "postgresql+psycopg", "db", {"sslmode": "require"}),
        ("postgresql:///db?host=/var/run/postgresql", "postgresql+psycopg", "db", {"host": "/var/run/postgresql"}),
        ("postgresql://u:p@one:1,two/db", "postgresql+psycopg", "db", {"host": "one,two", "port": "1,5432"}),
        (
            "postgresql://one:1,two:2/db?target_session_attrs=read-write",
            "postgresql+psycopg",
            "db",
            {"host": "one,two", "port": "1,2", "target_session_attrs": "read-write"},
        ),
        ("postgresql://u@%2Fvar%2Frun/db", "postgresql+psycopg", "db", {}),
        ("postgresql://?service=dp", "postgresql+psycopg", None, {"service": "dp"}),
        ("sqlite:///dp.sqlite\n", "sqlite", "dp.sqlite", {}),
        ("sqlite+aiosqlite:////var/dp.sqlite", "sqlite", "/var/dp.sqlite", {}),
    ],
)
def test_a_url_is_read_as_people_write_it(url, driver, database, query):
    parsed = parse_url(url)
    assert (parsed.drivername, parsed.database, dict(parsed.query)) == (driver, database, query)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://var/dp.sqlite", "three slashes"),
        ("sqlite:///~/dp.sqlite", "home"),
        ("sqlite:///what? #1/dp.sqlite", "path of a file"),
        ("sqlite:///file:dp.sqlite?mode=ro&uri=true", "path of a file"),
        ("postgresql://u:secret@h", "names no database"),
        ("postgresql://u:secret@h/", "names no database"),
        ("postgresql://u:secret@h:0/db", "port 0"),
        ("postgresql://u:secret@h:99999/db", "port 99999"),
        ("sqlite:////var/a%00b", "%00"),
        ("mysql://u:secret@h/db", "'mysql' is not supported"),
        ("'postgresql://u:secret@h/db'", "quot"),
        ("host=h dbname=db password=secret", "is not a URL"),
        ("postgresql://u:sec@ret@h/db", "more than one @"),  # pragma: allowlist secret
        ("", "is not a URL"),
    ],
)
def test_an_odd_url_is_refused_without_its_password(url, said):
    with pytest.raises(ValueError, match=said) as caught:
        parse_url(url)
    assert "sec" not in str(caught.value)
    assert "DPICL_DATABASE_URL" in str(caught.value)


@pytest.fixture
def encoded(engine: sa.Engine) -> Callable[[str], str]:
    """Creates a PostgreSQL database with an encoding; returns its URL."""
    if engine.dialect.name != "postgresql":
        pytest.skip("SQLite has no encodings to choose from")

    def create(encoding: str) -> str:
        name = f"{encoding.lower()}_{os.getpid()}"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}")
            connection.exec_driver_sql(
                f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
            )
        return engine.url.set(database=name).render_as_string(hide_password=False)

    return create


def test_texts_are_utf_8_where_a_database_has_no_encoding(encoded):
    database = open_database(encoded("SQL_ASCII"))
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE texts (text TEXT)")
        connection.execute(sa.text("INSERT INTO texts VALUES (:text)"), {"text": "éva 山"})
        assert connection.exec_driver_sql("SELECT text FROM texts").scalar() == "éva 山"
    database.dispose()


def test_a_database_that_cannot_hold_every_text_is_refused(encoded):
    with pytest.raises(UnsuitableDatabaseError, match=r"encoding LATIN1.*createdb -T template0 -E UTF8"):
        open_database(encoded("LATIN1")).connect()


@pytest.mark.parametrize("style", ["SQL, DMY", "German"])
def test_times_are_read_whatever_the_environments_and_the_servers_style_of_dates(style: str, database_url, engine):
    if engine.dialect.name != "postgresql":
        pytest.skip("SQLite has no styles of dates")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {engine.url.database} SET datestyle = '{style}'")
    os.environ["PGDATESTYLE"] = style
    again = open_database(database_url)
    with again.connect() as connection:
        assert connection.exec_driver_sql("SELECT TIMESTAMPTZ '2026-12-01 00:00Z'").scalar_one().year == 2026
    again.dispose()


def test_what_the_environment_adds_to_a_url_is_named_or_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGSSLMODE", "require")
    assert advice_on(ConnectionError("no answer")).endswith("? PGSSLMODE in the environment counts, too")
    assert "createdb" in advice_on(ConnectionError('FATAL:  database "dpicl" does not exist'))
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    with pytest.raises(ValueError, match="PGHOSTADDR would lead away from the host"):
        open_database("postgresql://u@localhost/x")


def test_a_database_that_takes_no_changes_is_named_with_what_to_do(engine):
    if engine.dialect.name != "postgresql":
        pytest.skip("a file that cannot be written is another error")
    with engine.connect() as connection:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        with pytest.raises(sa.exc.InternalError) as caught:
            connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
    assert "default_transaction_read_only" in advice_on(caught.value.orig)


def test_a_file_that_is_not_a_database_is_named_with_what_to_do(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with pytest.raises(sa.exc.DatabaseError) as caught:
        open_database(f"sqlite:///{tmp_path}/notes.txt").connect()
    assert "Another file is there" in advice_on(caught.value.orig)
    with pytest.raises(sa.exc.OperationalError) as caught:
        open_database(f"sqlite:///{tmp_path}").connect()
    assert "a folder" in advice_on(caught.value.orig)


def test_a_missing_folder_is_made(tmp_path):
    open_database(f"sqlite:///{tmp_path / 'new' / 'folder' / 'x.sqlite'}").connect().close()


def test_only_a_busy_file_is_waited_for(tmp_path):
    """A disk that is full or cannot be written to stays so."""
    busy, full = sqlite3.OperationalError("locked"), sqlite3.OperationalError("full")
    busy.sqlite_errorcode, full.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_FULL
    cursor = Mock()
    cursor.execute.side_effect = [busy, busy, full]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        database._use_write_ahead_log(cursor)
    assert cursor.execute.call_count == 3


def test_a_file_that_is_not_there_is_not_made_by_looking(tmp_path):
    with pytest.raises(MissingDatabaseError, match="dpicl kb create"):
        require_there(f"sqlite:///{tmp_path / 'mistyped.sqlite'}")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MissingDatabaseError, match="is a folder"):
        require_there(f"sqlite:///{tmp_path}")
    require_there("postgresql://u@localhost/x")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_database_in_memory_is_not_kept(url: str, dpicl: Shell):
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", url)
    for command in (("kb", "list"), ("keys", "create", "ana"), ("migrate",), ("migrate", "--check"), ("serve",)):
        assert "in memory" in dpicl.fails(*command)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file cannot be made \(File exists\)"):
        open_database(f"sqlite:///{tmp_path}/file/dp.sqlite")


@pytest.mark.parametrize("way", ["link", "./dp.sqlite"])
def test_a_witness_in_the_ledgers_own_file_is_refused_however_it_is_named(way: str, tmp_path, dpicl: Shell):
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/dp.sqlite")
    dpicl.monkeypatch.setenv("DPICL_WITNESS_URL", f"sqlite:///{tmp_path}/{way}")
    if way == "link":
        (tmp_path / way).symlink_to(tmp_path / "dp.sqlite")
    assert "the witness needs its own database" in dpicl.fails("keys", "create", "ana")


def test_memory_is_one_database_for_all_threads():
    engine = open_database("sqlite://")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE shared (n INTEGER)")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: sa.inspect(engine).get_table_names()).result() == ["shared"]
    engine.dispose()


def _open_each(urls: list[str], together: threading.Barrier, failures: multiprocessing.Queue) -> None:
    failure = None
    for url in urls:
        together.wait()
        try:
            engine = open_database(url)
            with engine.begin() as connection:
                connection.execute(sa.text("CREATE TABLE IF NOT EXISTS t (x)"))
            engine.dispose()
        except Exception as error:
            failure = repr(error)
    failures.put(failure)


@pytest.mark.slow
def test_processes_may_open_a_new_file_at_the_same_moment(tmp_path: Path):
    """SQLite does not wait while another process switches the file to the write-ahead log.

    Without our waiting about one file in thirty fails for this reason, so the test opens 150.
    """
    together, failures = FRESH.Barrier(8), FRESH.Queue()
    urls = [f"sqlite:///{tmp_path}/{number}.sqlite" for number in range(150)]
    processes = [FRESH.Process(target=_open_each, args=(urls, together, failures)) for _ in range(8)]
    for process in processes:
        process.start()
    assert [failures.get(timeout=120) for _ in processes] == [None] * 8
    for process in processes:
        process.join(60)
