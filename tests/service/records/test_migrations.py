"""Migrations: an empty database becomes what the tables say, once, however many start at the same time."""

from __future__ import annotations

import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import exemplar_store.tables
from accounting.ledger import tables as ledger_tables
from accounting.ledger import trail
from accounting.ledger.compatibility import OLDEST, SchemaError
from accounting.ledger.events import BudgetOpened
from accounting.ledger.trail import AuditTrail
from accounting.replay.trail import verify
from exemplar_store import ExemplarStore, Row, Slot, UnrecognisedUnitsError
from service.cli import main
from service.records import tables
from service.records.database import open_database
from service.records.schema import VERSIONS, migrate, revision
from service.telemetry import responses  # noqa: F401  (two tables among the keys')
from tests.processes import FRESH

METADATA = [exemplar_store.tables.metadata, ledger_tables.metadata, tables.metadata]

KB = ("fits", "letters", "tickets")


def migrate_together(url: str, together: threading.Barrier) -> None:
    database = open_database(url)
    together.wait()
    migrate(database)


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


@pytest.mark.slow
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
        connection.exec_driver_sql("CREATE TABLE releases (n INTEGER)")  # in the way of the ledger's
    with pytest.raises(sa.exc.DBAPIError, match="releases"):
        migrate(engine)
    assert sa.inspect(engine).get_table_names() == ["releases"]


@contextmanager
def with_later_columns(engine: sa.Engine) -> Iterator[ExemplarStore]:
    """This version's store on a database before revision 0003, which lacks columns; what is stored is the same."""
    later = {"response_field": "VARCHAR(64)", "later_cohorts": "JSON"}
    with engine.begin() as connection:
        for name, written in later.items():
            connection.exec_driver_sql(f"ALTER TABLE knowledge_bases ADD COLUMN {name} {written}")
    yield ExemplarStore(engine, bytes(range(32)))
    with engine.begin() as connection:
        for name in later:
            connection.exec_driver_sql(f"ALTER TABLE knowledge_bases DROP COLUMN {name}")


def before_unit_sizes(engine: sa.Engine, folder: Path) -> list[str]:
    """A database as the version before stored it, with its audit trail, and units larger than they may be now."""
    shutil.copy(VERSIONS / "0001_initial.py", folder)
    assert migrate(engine, [folder]) == (None, "0001")
    with with_later_columns(engine) as store:
        return fill(engine, store)


def fill(engine: sa.Engine, store: ExemplarStore) -> list[str]:
    """What is left of the units in one of the knowledge bases."""
    fields = {"fields": ["text", "label"], "embedded_field": "text", "public_size": 9}
    with engine.begin() as connection:
        for name in KB:
            store.create(connection, name, **fields)
            opened = {"knowledge_base": name, "epsilon": Decimal(1), "delta": Decimal("0.00001")}
            connection.execute(sa.insert(ledger_tables.budgets).values({**opened, "opened_at": datetime.now(UTC)}))
            told = {field: str(value) for field, value in opened.items()}
            trail.append(connection, datetime.now(UTC), BudgetOpened.model_validate(told))

    def rows(unit: str, size: int, each: int) -> list[Row]:
        return [Row(n, unit, {"text": f"{unit}-{n}".ljust(size, "x"), "label": "l"}) for n in range(1, each + 1)]

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.full((len(texts), 64), 0.125)

    for name in KB:
        store.ingest(name, [*rows("small", 10, 3), *rows("full", 16_000, 16), *rows("many", 1, 1000)], embed)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("ingest", "rows", "oversized"):
            patch.setattr(f"exemplar_store.{module}.MAX_EXEMPLAR_BYTES", 10**9, raising=False)
            patch.setattr(f"exemplar_store.{module}.MAX_UNIT_BYTES", 10**9, raising=False)
        store.ingest("letters", rows("one long", 16_400, 1), embed)
        store.ingest("tickets", [*rows("long", 20_000, 1), *rows("much", 15_000, 18)], embed)
        store.ingest("tickets", rows("full", 8_000, 1), embed)
    return sorted(one.fields["text"].split("-")[0] for one in all_of(store, "tickets"))


def all_of(store: ExemplarStore, name: str) -> Slot:
    return store.sample_slots(name, probability=1, ensemble=1, max_exemplars=10_000)[0]


def test_units_larger_than_this_version_allows_are_not_migrated(engine: sa.Engine, tmp_path: Path):
    units = before_unit_sizes(engine, tmp_path)
    said = r"'letters', 'tickets'\. Nothing was changed\. .* `dpicl migrate --forget-oversized`"
    with pytest.raises(SchemaError, match=said):
        migrate(engine)
    assert revision(engine) == "0001"
    with engine.connect() as connection:
        assert connection.execute(OLDEST).scalar() is None  # the version before goes on
    with with_later_columns(engine) as store:
        assert sorted(one.fields["text"].split("-")[0] for one in all_of(store, "tickets")) == units
        for name, unit in (("letters", "one long"), ("tickets", "long"), ("tickets", "much"), ("tickets", "full")):
            store.forget(name, unit)
        before = sorted((one.fields["text"], one.embedding.tobytes()) for one in all_of(store, "tickets"))
    assert migrate(engine) == ("0001", "0011")
    with engine.connect() as connection:
        assert connection.execute(OLDEST).scalar() == "0008"
    store = ExemplarStore(engine, bytes(range(32)))
    assert store.get("tickets").response_field is None
    after = all_of(store, "tickets")
    assert sorted((one.fields["text"], one.embedding.tobytes()) for one in after) == before
    assert {one.response_embedding for one in after} == {None}


def test_larger_units_are_deleted_if_somebody_says_so(
    engine: sa.Engine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    before_unit_sizes(engine, tmp_path)
    monkeypatch.setenv("DPICL_DATABASE_URL", database_url)
    monkeypatch.setenv("DPICL_WITNESS_URL", "none")

    def dpicl(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["dpicl", "migrate", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), " ".join((out + err).split())

    code, said = dpicl()
    assert code == 1
    assert "stored in 'letters', 'tickets'." in said
    assert dpicl("--forget-oversized") == (
        0,
        "Forgot 1 unit of letters, with all its exemplars Forgot 3 units of tickets, with all their exemplars "
        "Migrated from revision 0001 to 0011",
    )
    assert dpicl("--forget-oversized") == (0, "Revision 0011: nothing to do")
    store = ExemplarStore(engine, bytes(range(32)))
    left = {name: Counter(one.fields["text"].split("-")[0] for one in all_of(store, name)) for name in KB}
    assert left["fits"] == left["letters"] == {"small": 3, "full": 16, "many": 1000}
    assert left["tickets"] == {"small": 3, "many": 1000}
    with pytest.raises(UnrecognisedUnitsError):  # whoever was deleted and comes back would be taken for new
        store.open_cohort("tickets", 9, lambda _connection, _number: None)
    assert store.open_cohort("fits", 9, lambda _connection, _number: None) == 2
    events = AuditTrail(engine).events(kinds=["unit.forgotten"])
    assert [event.particulars.knowledge_base for event in events] == ["letters", *["tickets"] * 3]
    assert verify(AuditTrail(engine).export(), recompute=False).problems == []


def test_an_empty_database_has_nothing_to_forget(database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DPICL_DATABASE_URL", database_url)
    monkeypatch.setenv("DPICL_WITNESS_URL", "none")
    monkeypatch.setattr(sys, "argv", ["dpicl", "migrate", "--forget-oversized"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
