"""Migrations: an empty database becomes what the tables say, once, however many start at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import exemplar_store.tables
from accounting import tables as ledger_tables
from service import engine_record, keys, rate_limits, responses  # noqa: F401  (two tables among the keys')
from service.dashboard import sessions as _admin_sessions  # noqa: F401  (a table of the keys' metadata)
from service.database import open_database
from service.schema import migrate

ROOT = Path(__file__).parents[2]
METADATA = [exemplar_store.tables.metadata, ledger_tables.metadata, keys.metadata, engine_record.metadata]

MIGRATING = """
import sys
from service.database import open_database
from service.schema import migrate
sys.stdin.readline()
migrate(open_database(sys.argv[1]))
"""


def definitions(engine: sa.Engine) -> list[tuple[str, list[str]]]:
    """What Alembic's comparison leaves out, in the database's own words: CHECKs, partial indexes, storage, triggers."""
    if engine.dialect.name == "sqlite":
        queries = ["SELECT name, sql FROM sqlite_master"]
    else:
        queries = [
            "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid <> 0"
            " AND connamespace = 'public'::regnamespace",
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        ]
    with engine.connect() as connection:
        rows = [row for query in queries for row in connection.exec_driver_sql(query)]
    # A table's parts in any order: the migration names its constraints in another one.
    return sorted((name, sorted(_parts(str(sql)))) for name, sql in rows if "alembic" not in name)


def _parts(sql: str) -> list[str]:
    return [part.strip() for part in " ".join(sql.split()).replace(" )", ", )").split(", ")]


def differences(engine: sa.Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return [*compare_metadata(context, METADATA)]


def test_the_migrated_schema_is_what_the_tables_say(engine: sa.Engine):
    migrate(engine)
    assert differences(engine) == []
    migrated = definitions(engine)

    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    if engine.dialect.name == "sqlite":
        engine = open_database(f"{engine.url}.created")
    for metadata in METADATA:
        metadata.create_all(engine)
    assert definitions(engine) == migrated
    engine.dispose()


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
    with pytest.raises(sa.exc.IntegrityError, match="cannot be deleted"), engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM budgets")


def test_migrating_again_changes_nothing(engine: sa.Engine):
    migrate(engine)
    before = definitions(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO budgets VALUES ('kb', '1', '0', '2030-01-01')")
    migrate(engine)
    assert definitions(engine) == before
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM budgets").scalar_one() == 1


def test_processes_that_start_together_may_all_migrate(database_url: str, engine: sa.Engine):
    engine.dispose()
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATING, database_url],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(4)
    ]
    for process in starting:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    errors = [process.communicate(timeout=120)[1] for process in starting]
    assert [process.returncode for process in starting] == [0] * 4, errors
    assert differences(engine) == []


def test_a_migration_that_fails_leaves_nothing(engine: sa.Engine):
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE releases (n INTEGER)")  # in the way of the ledger's
    with pytest.raises(sa.exc.DBAPIError, match="releases"):
        migrate(engine)
    assert sa.inspect(engine).get_table_names() == ["releases"]
