"""Backing up and restoring, as an operator does it: with the databases' own tools and ``dpicl ledger``."""

import asyncio
import base64
import inspect
import json
import re
import resource
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from accounting.ledger import restoring
from accounting.ledger.charges import AnswersExhaustedError
from accounting.ledger.errors import PlanRetiredError
from accounting.ledger.events import KINDS
from accounting.ledger.trail import every
from accounting.ledger.witness import LedgerRestoredError, WitnessUnavailableError
from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import Row
from service.answering.once.making import NotMadeError
from service.answering.plans.signing import promise, release, sign
from service.operations.services import Services, open_services
from service.records import witness
from service.records.database import open_database
from service.records.records import Records, open_records
from service.records.replaying import replay
from service.records.witness import bring_back, witness_url
from service.serving.web import create_app
from service.settings import Settings
from tests.private_file import private_file
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine, embed, make_records
from tests.service.gateway.dashboard.dashboard_browser import Browser
from tests.service.shell import Shell


class Database:
    """The service's database, backed up and restored with its own tools while no process uses it."""

    def __init__(self, url: str, witness: str, folder: Path) -> None:
        self.url, self.witness, self.backup = url, witness, folder / "backup"
        self.kind = sa.make_url(url).get_backend_name()

    def settings(self, **others: object) -> Settings:
        given = {"database_url": self.url, "witness_url": self.witness}
        return Settings.model_validate({**given, "latency_unpadded": True, "development": True, **others})

    def save(self, dpicl: Shell) -> None:
        if self.kind == "sqlite":
            dpicl.ok("ledger", "backup", self.backup)
        else:
            self._tool("pg_dump", "--format=custom", f"--file={self.backup}", self._plain())

    def restore(self) -> None:
        if self.kind == "sqlite":
            file = Path(sa.make_url(self.url).database or "")
            for old in file.parent.glob(f"{file.name}*"):
                old.unlink()
            shutil.copy(self.backup, file)
        else:
            self._tool("pg_restore", "--clean", "--exit-on-error", f"--dbname={self._plain()}", str(self.backup))

    def _plain(self) -> str:
        return sa.make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)

    def _tool(self, name: str, *args: str) -> None:
        server = open_database(self.url)
        with server.connect() as connection:
            tools = connection.exec_driver_sql("SELECT setting FROM pg_config WHERE name = 'BINDIR'").scalar_one()
        server.dispose()
        done = subprocess.run([f"{tools}/{name}", *args], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def database(
    database_url: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Database:
    on_postgresql = database_url.startswith("postgresql")
    witness = request.getfixturevalue("new_postgres")() if on_postgresql else f"sqlite:///{tmp_path}/witness.sqlite"
    monkeypatch.setenv("DPICL_DATABASE_URL", database_url)
    monkeypatch.setenv("DPICL_WITNESS_URL", witness)
    return Database(database_url, witness, tmp_path)


@pytest.fixture
def opened(dpicl: Shell, database: Database, tmp_path: Path, calibrated: CalibratedPlan) -> Services:
    """A service with a signed plan of 20 answers; ``dpicl`` works on its database in any order of fixtures."""
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", database.url)
    records = make_records(tmp_path, settings=database.settings())
    sign(records, calibrated, "test")
    records.keys.create("ana", "analyst")
    return open_services(records, MajorityEngine(), EMBEDDER)


def ask(services: Services, *queries: str) -> None:
    ana = next(key for key in services.records.keys.list() if key.name == "ana")

    async def all_of_them() -> None:
        for query in queries:
            await services.answering.answer("toys.colour", query, key_id=ana.id)

    asyncio.run(all_of_them())


def close(records: Records) -> None:
    records.database.dispose()
    records.witness._database.dispose()


@pytest.mark.slow
def test_a_restored_backup_is_refused_until_its_loss_is_charged(opened, database: Database, dpicl, tmp_path) -> None:
    spared, _ = opened.records.keys.create("spared", "analyst")
    stolen, _ = opened.records.keys.create("stolen", "analyst", quota=7)
    leaked, leaked_token = opened.records.keys.create("leaked", "analyst")
    ask(opened, "one", "two")
    opened.records.witness.catch_up()
    database.save(dpicl)

    ask(opened, "three", "four", "five")
    opened.records.forget("toys", "u7", by="root")
    opened.records.keys.revoke(stolen.id)
    _, safe_token = opened.records.keys.rotate(leaked, by="root")
    opened.records.keys.limit(spared.id, quota=3, rate_per_minute=None)
    opened.records.allow_remote_engine("toys", True, by="root")
    new_key = base64.b64encode(secrets.token_bytes(32)).decode()
    private_file(tmp_path / "next.key", new_key)
    dpicl.ok("encryption", "rewrap", "--new-key-file", tmp_path / "next.key", "--yes")
    opened.records.witness.catch_up()
    close(opened.records)
    database.restore()

    with pytest.raises(LedgerRestoredError):
        open_records(database.settings())
    assert "dpicl ledger status" in dpicl.fails("kb", "list")
    status, told, _ = dpicl("ledger", "status")
    assert status == 1
    assert "3 answers of toys.colour@1: " in told
    assert "a unit of toys was forgotten" in told
    assert "the encryption key was" in told
    status, told, _ = dpicl("ledger", "status", "--json")
    lost = json.loads(told)
    assert lost["restored"]
    assert (lost["lost"]["charge"], lost["lost"]["release"], lost["lost"]["unit.forgotten"]) == (3, 3, 1)

    assert "answers again" in dpicl.ok("ledger", "acknowledge", "--yes")
    assert "Nothing to acknowledge" in dpicl.ok("ledger", "acknowledge", "--yes")
    records = open_records(database.settings())
    assert records.ledger.budgets.statuses()[0].tasks[0].charged == 5
    keys = {key.name: key for key in records.keys.list()}
    assert keys["stolen"].revoked_at is not None
    assert records.keys.authenticate(leaked_token) is None
    assert records.keys.authenticate(safe_token) is not None
    assert (keys["spared"].revoked_at, keys["spared"].quota) == (None, 3)
    assert records.store.get("toys").remote_engine
    report = replay(records, recompute=False)
    assert (report.problems, report.charged) == ([], {"toys.colour@1": 5})
    again = open_services(records, MajorityEngine(), EMBEDDER)
    ask(again, "one", *(f"query {i}" for i in range(15)))  # the first is free
    with pytest.raises(AnswersExhaustedError):
        ask(again, "one too many")
    close(records)


@pytest.mark.parametrize(("signed", "mechanism"), [("before", "prototypes"), ("after", "softmax_regression")])
def test_a_one_time_release_is_not_made_again(opened, database: Database, dpicl, signed: str, mechanism: str) -> None:
    """The restored ledger has its charge, and no release, whether or not the backup knows its plan."""
    once = f"{PLAN[: PLAN.index('    shots')]}    release: once\n    mechanism: {{type: {mechanism}}}"
    calibrated = calibrate_plan(load_plan(once.replace("colour", "for-ever").replace("1.0e-4", "9.0e-5")), 60)
    if signed == "before":
        promise(opened.records, calibrated, "test")
    opened.records.witness.catch_up()
    database.save(dpicl)
    if signed == "after":
        sign(opened.records, calibrated, "test", embed=EMBEDDER.embed)
    made = release(opened.records, "toys.for-ever", EMBEDDER.embed)
    assert made.answer["made_once"] == mechanism
    opened.records.witness.catch_up()
    close(opened.records)
    database.restore()

    dpicl.ok("ledger", "acknowledge", "--yes")
    records = open_records(database.settings())
    with pytest.raises(NotMadeError):
        release(records, "toys.for-ever", EMBEDDER.embed)
    with pytest.raises(NotMadeError):
        asyncio.run(
            open_services(records, MajorityEngine(), EMBEDDER).answering.answer("toys.for-ever", "q", key_id="k")
        )
    assert replay(records, recompute=False).problems == []
    close(records)


@pytest.mark.parametrize("signed", ["before", "after"])
def test_a_retired_plan_is_retired_again(opened: Services, database: Database, dpicl: Shell, signed: str) -> None:
    """Whether or not the backup knows the plan; a task of another plan answers as before."""
    small = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "5.0e-5").replace("colour:", "other:")
    other, budgets = calibrate_plan(load_plan(small), 60), opened.records.ledger.budgets
    if signed == "before":
        promise(opened.records, other, "test")
    ask(opened, "one")
    opened.records.witness.catch_up()
    database.save(dpicl)
    if signed == "after":
        promise(opened.records, other, "test")
    budgets.retire("toys", 2, by="root")
    opened.records.witness.catch_up()
    close(opened.records)
    database.restore()

    assert "plan 2 of toys was retired: will be retired again" in dpicl("ledger", "status")[1]
    dpicl.ok("ledger", "acknowledge", "--yes")
    records = open_records(database.settings())
    assert [*records.ledger.budgets.retired("toys")] == [2]
    again = open_services(records, MajorityEngine(), EMBEDDER)
    with pytest.raises(PlanRetiredError):
        asyncio.run(again.answering.answer("toys.other", "q", key_id="k"))
    ask(again, "two")
    assert replay(records, recompute=False).problems == []
    close(records)


@pytest.mark.parametrize("opened_before", [True, False])
def test_a_lost_group_and_its_members_come_back(opened: Services, database: Database, dpicl, opened_before) -> None:
    groups = opened.records.ledger.groups
    if opened_before:
        groups.open("care", 9, 2e-4, by="root")
    opened.records.witness.catch_up()
    database.save(dpicl)
    if not opened_before:
        groups.open("care", 9, 2e-4, by="root")
    groups.join("care", "toys", by="root")
    opened.records.witness.catch_up()
    close(opened.records)
    database.restore()

    dpicl.ok("ledger", "acknowledge", "--yes")
    records = open_records(database.settings())
    status = records.ledger.groups.status("care")
    assert [*status.knowledge_bases] == ["toys"]
    assert (status.epsilon, status.promised_epsilon) == (9, 4)
    assert replay(records, recompute=False).problems == []
    close(records)


def test_a_restored_ledger_that_goes_on_ends_what_it_goes_on_with(opened: Services, database: Database, dpicl) -> None:
    def ended() -> list[str]:
        return json.loads(dpicl("ledger", "status", "--json")[1])["ended"]

    database.save(dpicl)
    ask(opened, "one")
    close(opened.records)
    database.restore()
    records = open_records(database.settings(), restored=True)
    before = records.audit.head()
    with pytest.raises(LedgerRestoredError):
        records.ingest("toys", [Row(1, "u1", {"text": "new", "label": "red"})], embed, by="root")
    assert records.audit.head() == before
    assert ended() == []
    alone = open_services(open_records(database.settings(witness_url="none")), MajorityEngine(), EMBEDDER)
    ask(alone, "two")
    assert ended() == ["toys"]
    dpicl.ok("ledger", "acknowledge", "--yes")
    with pytest.raises(AnswersExhaustedError):
        ask(alone, "three")
    close(records)
    alone.records.database.dispose()


def test_a_running_service_refuses_what_is_not_witnessed(opened: Services, database: Database, dpicl: Shell) -> None:
    _, token = opened.records.keys.create("bo", "analyst")
    database.save(dpicl)
    ask(opened, "one")
    close(opened.records)
    database.restore()
    with TestClient(create_app(opened)) as client:
        headers = {"Authorization": f"Bearer {token}"}
        for query in ("two", "three"):
            reply = client.post("/v1/tasks/toys.colour/answers", json={"query": query}, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "ledger_restored")
            assert reply.headers["x-should-retry"] == "false"
        admin = Browser(opened)
        admin.sign_in()
        assert "New questions are not answered" in admin.get("/").text
        assert dpicl.ok("ledger", "acknowledge", "--yes")
        reply = client.post("/v1/tasks/toys.colour/answers", json={"query": "two"}, headers=headers)
        assert reply.status_code == 200  # the same process goes on
        assert "No new question" not in admin.get("/").text
    assert opened.records.ledger.budgets.statuses()[0].tasks[0].charged == 2
    close(opened.records)


def test_what_admins_do_is_witnessed_when_the_command_ends(dpicl: Shell, database: Database) -> None:
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", database.url)
    dpicl.ok("keys", "create", "ana")
    records = open_records(database.settings(), restored=True)
    assert [event.kind for event in records.witness.events(0)] == ["key.created"]
    close(records)


@pytest.mark.parametrize(
    ("database", "told", "where"),
    [
        ("sqlite:////data/dpicl.sqlite", None, "sqlite:////data/dpicl.witness.sqlite"),
        ("sqlite:////data/dpicl.sqlite", "sqlite:////other/w.sqlite", "sqlite:////other/w.sqlite"),
        *(("sqlite:////data/dpicl.sqlite", "none", None), ("sqlite://", None, None)),
        ("postgresql://db/dpicl", None, None),
    ],
)
def test_the_witness_lies_beside_a_sqlite_database_unless_its_url_is_set(
    database: str, told: str | None, where: str | None
):
    assert witness_url(Settings(database_url=database, witness_url=told)) == where


@pytest.mark.slow
def test_a_postgresql_database_wants_to_know_where_its_witness_is(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    records = open_records(Settings(database_url=url, development=True, latency_unpadded=True))
    with pytest.raises(ValueError, match="DPICL_WITNESS_URL"):
        open_services(records, MajorityEngine(), EMBEDDER)
    records.database.dispose()
    nowhere = sa.make_url(url).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(WitnessUnavailableError):
        open_records(Settings(database_url=url, witness_url=nowhere, development=True))


def test_backing_up_reports_what_it_cannot_do(dpicl: Shell, tmp_path: Path) -> None:
    assert "no database at" in dpicl.fails("ledger", "backup", tmp_path / "copy")
    dpicl.ok("keys", "create", "ana")
    dpicl.ok("ledger", "backup", tmp_path / "copy")
    assert "new file" in dpicl.fails("ledger", "backup", tmp_path / "copy")
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", "postgresql://localhost/dpicl")
    assert "pg_dump" in dpicl.fails("ledger", "backup", tmp_path / "other")
    for other in ("not a database " * 100, ""):
        (tmp_path / "other").write_text(other)
        dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/other")
        dpicl.fails("ledger", "backup", tmp_path / "of_other")
        assert not (tmp_path / "of_other").exists()


def test_a_backup_that_a_full_disk_interrupts_leaves_no_file(dpicl: Shell, tmp_path: Path) -> None:
    dpicl.ok("keys", "create", "ana")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        said = dpicl.fails("ledger", "backup", tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "is its disk full?" in said
    assert not (tmp_path / "copy").exists()


def test_without_a_witness_nothing_is_compared(dpicl: Shell) -> None:
    dpicl.ok("keys", "create", "ana")
    dpicl.monkeypatch.setenv("DPICL_WITNESS_URL", "none")
    assert "without a witness" in dpicl.fails("ledger", "status")


def test_events_that_changed_nothing_outside_the_ledger_bring_nothing_back(opened: Services) -> None:
    events = opened.records.audit.events()
    with opened.records.database.begin() as connection:
        assert [bring_back(connection, event) for event in events] == [[] for _ in events]
    close(opened.records)


def test_what_is_promised_to_be_done_again_is_done() -> None:
    """An event whose loss "will be" made good has a case where lost events are repeated."""
    repeated = {
        match[1]
        for module in (restoring, witness)
        for match in re.finditer(r"(?:case |\| )(?:events\.)?(\w+)\(", inspect.getsource(module))
    }
    promised = {kind.__name__ for kind in KINDS.values() if re.search(r": will .*again", kind.lost or "")}
    assert promised <= repeated
    assert len(promised) > 8


def test_every_event_is_read_in_batches(opened: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a restore lost is found by reading both trails to their ends."""
    for number in range(9):
        opened.records.keys.create(f"key {number}", "analyst")
    opened.records.witness.catch_up()
    whole = opened.records.audit.events(limit=1000)
    for batch in (1, 2, 3, len(whole)):
        monkeypatch.setattr("accounting.ledger.trail.BATCH", batch)
        for after in (0, 4):
            assert list(every(opened.records.audit.events, after)) == whole[after:]
            assert list(every(opened.records.witness.events, after)) == whole[after:]
    close(opened.records)
