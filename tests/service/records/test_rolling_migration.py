"""Rolling migrations: this code beside a database that the version after it has migrated."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from fastapi.testclient import TestClient

from accounting.ledger import compatibility
from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import Charged, Ledger
from accounting.ledger.compatibility import REVISION, SchemaError
from accounting.ledger.tables import breaking_revisions
from accounting.replay.books import violations
from service.api.app import create_app
from service.cli import main
from service.records import schema
from service.records.database import open_database
from service.records.migrations.rules import not_additive
from service.records.records import open_records
from service.records.schema import VERSIONS, migrate, require, revision
from service.services import Services
from service.settings import Settings

ADDS = """
    op.create_table("notes", sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.Text, unique=True))
    op.create_index("ix_notes_text", "notes", ["text"], unique=True)
    op.add_column("charges", sa.Column("note", sa.Text))
    op.add_column("tasks", sa.Column("weight", sa.Integer, nullable=False, server_default="1"))
    op.create_index("ix_charges_note", "charges", ["note"], if_not_exists=True)
"""
BREAKS = """
    op.rename_table("quotas", "shares")
"""


NEXT = f"{int(REVISION) + 1:04}"


def next_version(folder: Path, upgrade: str, *, breaking: bool = False) -> list[Path]:
    """The migrations of a version after this one."""
    versions = folder / "versions"
    versions.mkdir(exist_ok=True)
    (versions / f"{NEXT}_next.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {NEXT!r}\ndown_revision = {REVISION!r}\n"
        f"breaking = {breaking}\n\ndef upgrade():{upgrade}"
    )
    return [VERSIONS, versions]


@pytest.fixture
def ledger(engine: sa.Engine) -> Iterator[Ledger]:
    migrate(engine)
    ledger = Ledger(engine)
    with engine.begin() as connection:
        ledger.budgets.open(connection, "kb", 3, 1e-4)
    ledger.budgets.sign(
        "kb", epsilon=1, delta=1e-5, accountant="pld", document="{}", tasks=[("topic", 100_000)], signed_by="ana"
    )
    yield ledger
    with engine.connect() as connection:
        assert violations(connection) == []


@pytest.fixture
def task(ledger: Ledger) -> SignedTask:
    return ledger.budgets.task("kb.topic")


def answer(ledger: Ledger, task: SignedTask, query: str) -> None:
    charged = ledger.charge(task, query.encode(), key_id="k")
    assert isinstance(charged, Charged)
    ledger.release(charged.id, {"label": "red"})


def test_this_code_knows_its_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(VERSIONS.parent))
    scripts = ScriptDirectory.from_config(config)
    in_order = [script.revision for script in scripts.walk_revisions()][::-1]
    assert in_order == [f"{number:04}" for number in range(1, len(in_order) + 1)]
    assert scripts.get_current_head() == REVISION


def test_this_code_answers_before_during_and_after_a_migration_that_adds(
    database_url: str, engine: sa.Engine, ledger: Ledger, task: SignedTask, tmp_path: Path
) -> None:
    answered = 0
    enough = threading.Event()

    def keep_answering() -> int:
        nonlocal answered
        while not enough.is_set():
            answer(ledger, task, f"query {answered}")
            answered += 1
        return answered

    newer = open_database(database_url)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(keep_answering)
        while answered < 20 and not asking.done():
            enough.wait(0.01)
        assert migrate(newer, next_version(tmp_path, ADDS)) == (REVISION, NEXT)
        before = answered
        while answered < before + 20 and not asking.done():
            enough.wait(0.01)
        enough.set()
        assert asking.result() >= 40
    newer.dispose()

    again = open_database(database_url)  # started again, or rolled back to
    assert migrate(again) == (NEXT, NEXT)
    require(again)
    answer(Ledger(again), Ledger(again).budgets.task("kb.topic"), "after")
    again.dispose()
    assert "note" in {column["name"] for column in sa.inspect(engine).get_columns("charges")}


def test_code_that_does_not_know_a_breaking_revision_charges_nothing_more(
    engine: sa.Engine, ledger: Ledger, task: SignedTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_charge = ledger.charge(task, b"in flight", key_id="k")
    assert isinstance(open_charge, Charged)
    drops_nothing = '\n    op.execute(sa.text("UPDATE tasks SET charged = charged WHERE id < 0"))\n'
    versions = next_version(tmp_path, drops_nothing, breaking=True)
    migrate(engine, versions)

    refused = f"migrated to revision {NEXT}, which this version"
    with pytest.raises(SchemaError, match=refused):
        ledger.charge(task, b"new", key_id="k")
    with pytest.raises(SchemaError, match=refused):
        ledger.release(open_charge.id, {"label": "red"})
    with pytest.raises(SchemaError, match=refused):
        require(engine)
    with pytest.raises(SchemaError, match=refused):
        migrate(engine)
    assert ledger.answers_left(task) == 99_999

    monkeypatch.setattr(compatibility, "REVISION", NEXT)  # the version after this one
    assert migrate(engine, versions) == (NEXT, NEXT)
    ledger.release(open_charge.id, {"label": "red"})
    answer(ledger, task, "new")


def test_a_charge_under_way_is_committed_before_a_breaking_migration_begins(
    database_url: str, ledger: Ledger, task: SignedTask, tmp_path: Path
) -> None:
    """The migration copies what it finds: a charge committed after that would be missed."""
    copies = "\n    op.execute(sa.text('CREATE TABLE seen AS SELECT id FROM charges'))\n"
    versions = next_version(tmp_path, copies, breaking=True)
    newer = open_database(database_url)
    charged = 0

    def keep_charging() -> None:
        nonlocal charged
        while True:
            ledger.charge(task, str(charged).encode(), key_id="k")
            charged += 1

    with ThreadPoolExecutor(3) as pool:
        asking = pool.submit(keep_charging)
        while charged < 20 and not asking.done():
            threading.Event().wait(0.01)
        migrate(newer, versions)
        with pytest.raises(SchemaError):
            asking.result()
    with newer.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM seen")).scalar() == charged
    newer.dispose()


def test_a_new_database_tells_old_code_too(engine: sa.Engine, tmp_path: Path) -> None:
    migrate(engine, next_version(tmp_path, BREAKS, breaking=True))
    with pytest.raises(SchemaError, match="run the version that migrated"):
        migrate(engine)


def test_a_breaking_migration_that_fails_leaves_old_code_at_work(
    engine: sa.Engine, ledger: Ledger, task: SignedTask, tmp_path: Path
) -> None:
    fails = f"{BREAKS}\n    op.drop_table('nonesuch')\n"
    with pytest.raises(sa.exc.DBAPIError):
        migrate(engine, next_version(tmp_path, fails, breaking=True))
    answer(ledger, task, "after")
    assert revision(engine) == REVISION


@pytest.mark.parametrize(
    "upgrade",
    [
        BREAKS,
        "\n    op.drop_table('rate_limits')\n",
        "\n    op.create_index('ix_charges_state', 'charges', ['state'])\n",
        "\n    op.create_index('uq', 'charges', ['task_id'], unique=True, if_not_exists=True)\n",
        "\n    op.add_column('rate_limits', sa.Column('more', sa.Text, nullable=False))\n",
        '\n    op.execute(sa.text("UPDATE rate_limits SET free_at = 0"))\n',
        "\n    op.execute(sa.text('DROP TRIGGER charges_no_delete' + (' ON charges' if op.get_bind().dialect.name"
        " == 'postgresql' else '')))\n",
    ],
)
def test_what_old_code_may_not_survive_must_be_declared(engine: sa.Engine, tmp_path: Path, upgrade: str) -> None:
    migrate(engine)
    with pytest.raises(ValueError, match=rf"migration {NEXT} .* declare it `breaking = True`"):
        migrate(engine, next_version(tmp_path, upgrade))
    assert revision(engine) == REVISION
    assert migrate(engine, next_version(tmp_path, upgrade, breaking=True)) == (REVISION, NEXT)


def test_what_belongs_to_a_new_table_adds() -> None:
    whole = [
        "\nCREATE TABLE notes (\n\tid INTEGER NOT NULL, \n\tPRIMARY KEY (id)\n)\n",
        "CREATE TRIGGER notes_no_delete BEFORE DELETE ON notes FOR EACH ROW EXECUTE FUNCTION ledger_refuse('no')",
        "INSERT INTO notes (id) SELECT id FROM tasks",
    ]
    assert not_additive(whole) == []
    assert not_additive(whole[1:]) == whole[1:]
    assert not_additive(["ALTER TABLE tasks ADD COLUMN a TEXT DEFAULT 'x' NOT NULL"]) == []
    assert not_additive(["ALTER TABLE tasks ADD COLUMN a INTEGER CHECK (a > 0)"]) != []


def test_a_migration_gives_way_before_postgresql_ends_a_charge_in_its_place(new_postgres: Callable[[], str]) -> None:
    engine = open_database(new_postgres())
    with engine.connect() as connection:
        looks_after = sa.text("SELECT extract(epoch FROM current_setting('deadlock_timeout')::interval)")
        assert connection.scalar(looks_after) > schema._LOCK_TIMEOUT_S
    engine.dispose()


@pytest.mark.slow
def test_a_migration_gives_way_to_charges_while_a_table_is_in_use(
    new_postgres: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads `charges` and does not end: the migration waits, and who waits behind it must go on."""
    monkeypatch.setattr(schema, "_LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setattr(schema, "_PAUSE_S", 0.05)
    postgres_url = new_postgres()
    engine = open_database(postgres_url)
    migrate(engine)
    ledger = Ledger(engine)
    with engine.begin() as connection:
        ledger.budgets.open(connection, "kb", 3, 1e-4)
    ledger.budgets.sign(
        "kb", epsilon=1, delta=1e-5, accountant="pld", document="{}", tasks=[("topic", 999)], signed_by="ana"
    )
    task = ledger.budgets.task("kb.topic")
    versions = next_version(tmp_path, ADDS)
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as reader:
            reader.execute(sa.text("SELECT count(*) FROM charges"))
            migrating = pool.submit(migrate, open_database(postgres_url), versions)
            for number in range(30):
                answer(ledger, task, f"query {number}")
            assert revision(engine) == REVISION
        assert migrating.result(60) == (REVISION, NEXT)

    monkeypatch.setattr(schema, "_TRIES", 2)
    with engine.begin() as reader:
        reader.execute(sa.text("SELECT count(*) FROM charges"))
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "9999_more.py").write_text(
            f"import sqlalchemy as sa\nfrom alembic import op\nrevision = '9999'\ndown_revision = {NEXT!r}\n\n"
            "def upgrade():\n    op.add_column('charges', sa.Column('more', sa.Text))\n"
        )
        with pytest.raises(SchemaError, match="in use by a long transaction"):
            migrate(open_database(postgres_url), [*versions, tmp_path / "more"])
    assert revision(engine) == NEXT
    engine.dispose()


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["dpicl", "migrate", *args])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), " ".join((out + err).split())


@pytest.mark.slow
def test_the_command_tells_what_it_did(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPICL_DATABASE_URL", database_url)
    monkeypatch.setenv("DPICL_WITNESS_URL", f"sqlite:///{tmp_path}/witness.sqlite")
    behind = f"error: the database is empty, and this version needs revision {REVISION}: run `dpicl migrate`"
    assert run(capsys, monkeypatch, "--check") == (1, behind)
    assert run(capsys, monkeypatch, "--wait", "0.1") == (1, behind)
    assert run(capsys, monkeypatch) == (0, f"Migrated from an empty database to {REVISION}")
    assert run(capsys, monkeypatch) == (0, f"Revision {REVISION}: nothing to do")
    assert run(capsys, monkeypatch, "--check") == (0, f"Revision {REVISION}: nothing to do")
    assert sa.inspect(open_database(f"sqlite:///{tmp_path}/witness.sqlite")).has_table("witnessed_events")
    engine = open_database(database_url)
    migrate(engine, next_version(tmp_path, ADDS))
    assert run(capsys, monkeypatch) == (0, f"Revision {NEXT}: nothing to do")
    assert run(capsys, monkeypatch, "--wait", "9") == (0, f"Revision {NEXT}: nothing to do")
    engine.dispose()


def test_a_replica_that_is_too_old_says_so(services: Services) -> None:
    _, token = services.records.keys.create("ana", "analyst")
    client = TestClient(create_app(services))
    asyncio.run(services.heartbeat.beat())
    assert client.get("/readyz").status_code == 200
    with services.records.database.begin() as connection:
        connection.execute(sa.insert(breaking_revisions).values(revision=NEXT))
    asyncio.run(services.heartbeat.beat())
    for refused in (
        client.get("/readyz"),
        client.post(
            "/v1/tasks/toys.colour/answers", json={"query": "toy"}, headers={"Authorization": f"Bearer {token}"}
        ),
    ):
        assert (refused.status_code, refused.json()["title"]) == (503, "Schema too new")
    assert client.get("/healthz").status_code == 200


def test_a_start_may_leave_migrating_to_the_command(database_url: str) -> None:
    settings = Settings(database_url=database_url, development=True, migrate="never", witness_url="none")
    with pytest.raises(SchemaError, match=r"the database is empty, and this version needs .* run `dpicl migrate`"):
        open_records(settings)
    engine = open_database(database_url)
    migrate(engine)
    engine.dispose()
    open_records(settings).database.dispose()
