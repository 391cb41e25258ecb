"""The schema: an empty database becomes what the tables define, once, and no code works on another version's."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from accounting.ledger.tables import TRIGGERS
from service.records.database import open_database
from service.records.records import open_records
from service.records.schema import METADATA, SchemaError, migrate, newest, require, revision
from tests.processes import FRESH
from tests.service.conftest import unwitnessed
from tests.service.shell import Shell


def migrate_together(url: str, together: threading.Barrier) -> None:
    database = open_database(url)
    together.wait()
    migrate(database)


def triggers(engine: sa.Engine) -> set[str]:
    query = (
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        if engine.dialect.name == "sqlite"
        else "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    )
    with engine.connect() as connection:
        return set(connection.exec_driver_sql(query).scalars())


def differences(engine: sa.Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return [*compare_metadata(context, METADATA)]


def at_revision(engine: sa.Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_the_migrated_schema_is_what_the_tables_define(engine: sa.Engine):
    assert migrate(engine) == (None, newest())
    assert differences(engine) == []
    assert triggers(engine) == {trigger.name for trigger in TRIGGERS}


def test_what_the_ledger_leans_on_is_there(engine: sa.Engine):
    migrate(engine)
    inspector = sa.inspect(engine)
    checks = {check["name"] for table in ("tasks", "charges") for check in inspector.get_check_constraints(table)}
    assert {"ck_tasks_charged_within_answers", "ck_charges_state_known"} <= checks
    index = next(index for index in inspector.get_indexes("charges") if index["name"] == "uq_charges_open_query")
    assert index["unique"]
    assert "charged" in str(index["dialect_options"][f"{engine.dialect.name}_where"])
    with engine.begin() as connection:
        insert = "INSERT INTO budgets VALUES ('kb', '1', '0', '2030-01-01')"
        connection.exec_driver_sql(insert)
        values = "1, 'kb', 1, '1', '0', 'pld', '{}', '', 'root', '2030-01-01', '1'"
        connection.exec_driver_sql(f"INSERT INTO plans VALUES ({values})")  # noqa: S608
    with pytest.raises(sa.exc.IntegrityError, match="deleted"), engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM budgets")


def test_processes_that_start_together_may_all_migrate(database_url: str, engine: sa.Engine):
    engine.dispose()
    together = FRESH.Barrier(4)
    processes = [FRESH.Process(target=migrate_together, args=(database_url, together)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert differences(engine) == []


def test_a_migration_that_fails_leaves_nothing(engine: sa.Engine):
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE VIEW releases AS SELECT 1 AS n")  # in the way of the ledger's table
    with pytest.raises(sa.exc.DBAPIError, match="releases"):
        migrate(engine)
    assert sa.inspect(engine).get_table_names() == []


def test_another_programs_database_is_left_as_it_is(engine: sa.Engine):
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE patients (n INTEGER)")
    with pytest.raises(SchemaError, match=r"other tables, such as patients: name an empty one"):
        migrate(engine)
    assert sa.inspect(engine).get_table_names() == ["patients"]
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('first_tables')")
    for act in (migrate, require):
        with pytest.raises(SchemaError, match=r"another program: name an empty one"):
            act(engine)
    assert sorted(sa.inspect(engine).get_table_names()) == ["alembic_version", "patients"]


@pytest.mark.parametrize(("found", "advice"), [("0000", "dpicl migrate"), ("9999", "newer version")])
def test_neither_an_older_nor_a_newer_schema_is_worked_on(database_url, engine: sa.Engine, found: str, advice: str):
    settings = unwitnessed(database_url)
    open_records(settings).database.dispose()
    at_revision(engine, found)
    with pytest.raises(SchemaError, match=rf"{found}.*{advice}"):
        open_records(settings)
    with pytest.raises(SchemaError, match=rf"{found}.*{advice}"):
        require(engine)
    assert revision(engine) == found


def test_a_start_may_leave_an_empty_database_to_the_command(database_url: str, engine: sa.Engine):
    settings = unwitnessed(database_url, migrate="never")
    with pytest.raises(SchemaError, match=r"is empty, .* `dpicl migrate`"):
        open_records(settings)
    migrate(engine)
    open_records(settings).database.dispose()


@pytest.mark.slow
def test_a_database_that_starts_later_is_waited_for_and_a_refusal_is_not(
    new_postgres: Callable[[], str], tmp_path: Path, dpicl: Shell, monkeypatch
):
    url = sa.make_url(new_postgres())
    later = url.update_query_dict({"host": str(tmp_path / "sockets")})
    monkeypatch.setenv("DPICL_WITNESS_URL", f"sqlite:///{tmp_path}/witness.sqlite")
    for wrong, reason in ((later.set(database="nothing"), "does not exist"), (later.set(username="nobody"), "role")):
        (tmp_path / "sockets").symlink_to(url.query["host"])
        monkeypatch.setenv("DPICL_DATABASE_URL", wrong.render_as_string(hide_password=False))
        _, out, said = dpicl("migrate", "--wait", "600")
        assert (out, reason in said, "Waiting" in said) == ("", True, False)
        (tmp_path / "sockets").unlink()
    monkeypatch.setenv("DPICL_DATABASE_URL", later.render_as_string(hide_password=False))
    code, _, said = dpicl("migrate", "--wait", "0.1")
    assert (code, said.splitlines()[0]) == (1, "Waiting up to 0.1 s for the database")
    assert said.splitlines()[-1].startswith("error: the database cannot be used: ")
    started = threading.Timer(2, lambda: (tmp_path / "sockets").symlink_to(url.query["host"]))
    started.start()
    code, out, _ = dpicl("migrate", "--wait", "600")
    assert (code, out) == (0, f"Migrated from an empty database to {newest()}\n")
    started.join()


@pytest.mark.slow
def test_the_command_reports_what_it_did(
    database_url: str, engine: sa.Engine, tmp_path: Path, dpicl: Shell, monkeypatch
):
    def run(*arguments: str) -> tuple[int, str]:
        code, out, err = dpicl(*arguments)
        return code, " ".join((out + err).split())

    monkeypatch.setenv("DPICL_DATABASE_URL", database_url)
    monkeypatch.setenv("DPICL_WITNESS_URL", f"sqlite:///{tmp_path}/witness.sqlite")
    behind = f"revision {newest()}: run `dpicl migrate`"
    for command in (["migrate", "--check"], ["migrate", "--check", "--wait", "0.1"]):
        code, said = run(*command)
        assert code == 1
        assert ("no database at" if database_url.startswith("sqlite") else behind) in said
    assert run("migrate") == (0, f"Migrated from an empty database to {newest()}")
    done = 0, f"Revision {newest()}: nothing to do"
    assert run("migrate") == run("migrate", "--check") == run("migrate", "--wait", "9") == done
    witness = open_database(f"sqlite:///{tmp_path}/witness.sqlite")
    assert sa.inspect(witness).has_table("witnessed_events")
    witness.dispose()
    at_revision(engine, "9999")
    for command in (["migrate"], ["migrate", "--check"], ["kb", "list"]):
        code, said = run(*command)
        assert code == 1
        assert "newer version" in said
