"""Plans that are retired: their tasks answer no more on any door, and their budget stays taken."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest

from accounting.ledger import trail
from accounting.ledger.budgets import retire
from accounting.ledger.errors import PlanRetiredError
from accounting.ledger.events import PlanRetired
from accounting.plans.plan import CalibratedPlan, load_plan
from service.answering.plans.signing import prepare, sign
from service.operations import plans, tasks
from service.operations.command import Confirmation, UnconfirmedError
from service.operations.roles import Actor
from service.operations.services import Services
from service.records.records import Records
from service.records.replaying import replay
from tests.accounting.books import wrong
from tests.service.conftest import PLAN, client_of, development, make_records
from tests.service.gateway.dashboard.dashboard_browser import signed_in, words
from tests.service.shell import Shell

ROOT = Actor("root", "root", "account", "admin")
SURE = {Confirmation.PERMANENT}
SMALL = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "5.0e-5")


def by_command_line(services: Services, dpicl: Shell) -> None:
    assert dpicl("plan", "retire", "toys", 10**20, "--yes")[0] == 2
    assert dpicl("plan", "retire", "toys", 1)[0] == 1  # the confirmation is refused
    assert services.records.ledger.budgets.retired("toys") == {}
    assert "Retired plan 1 of toys" in dpicl.ok("plan", "retire", "toys", 1, "--yes")
    assert "retired" in dpicl.ok("plan", "list", "toys")


def by_rest(services: Services, _dpicl: Shell) -> None:
    admin = client_of(services, "admin", "chief of REST")
    assert admin.post("/v1/knowledge-bases/toys/plans/9/retire").status_code == 404
    assert admin.post(f"/v1/knowledge-bases/toys/cohorts/{10**20}/close").status_code == 422
    assert admin.post("/v1/knowledge-bases/toys/plans/1/retire").json()["retired_at"]
    assert admin.post("/v1/knowledge-bases/toys/plans/1/retire").status_code == 410
    assert admin.get("/v1/knowledge-bases/toys/plans").json()["data"][0]["retired_at"]


def by_dashboard(services: Services, _dpicl: Shell) -> None:
    browser, path = signed_in(services), "/knowledge-bases/toys/plans/1"
    asked = words(browser.post(f"{path}/retire").text)
    assert "Plan 1 of toys answers no more, permanently: colour. The (ε = 4, δ = 0.0001) that it took" in asked
    assert services.records.ledger.budgets.retired("toys") == {}
    assert browser.done(f"{path}/retire") == path
    assert "Plan 1 retired" in browser.read(path)
    assert "Retire plan" not in browser.read(path)
    assert "colour" not in browser.read("/").partition("What was done")[0].partition("Answers left")[2]
    assert browser.confirm(browser.post(f"{path}/retire")).status_code == 410


@pytest.fixture
def over_the_command_line(services: Services, monkeypatch: pytest.MonkeyPatch, dpicl: Shell) -> Shell:
    monkeypatch.setenv("DPICL_DATABASE_URL", services.records.settings.database_url)
    return dpicl


@pytest.mark.parametrize("retire", [by_command_line, by_rest, by_dashboard])
def test_the_tasks_of_a_retired_plan_are_gone_on_every_door(
    services: Services, over_the_command_line: Shell, retire: Callable[[Services, Shell], None]
) -> None:
    analyst = client_of(services)
    asked = {"query": "a toy"}
    assert analyst.post("/v1/tasks/toys.colour/answers", json=asked).status_code == 200
    free = services.records.ledger.budgets.status("toys").tightest.free_epsilon
    retire(services, over_the_command_line)
    for task in ("toys.colour", "toys.colour@1"):
        for query in ("a toy", "another toy"):  # answered before, and new
            gone = analyst.post(f"/v1/tasks/{task}/answers", json={"query": query})
            assert (gone.status_code, gone.json()["error"]["code"]) == (410, "plan_retired")
        chat = {"model": task, "messages": [{"role": "user", "content": "a toy"}]}
        assert analyst.post("/v1/chat/completions", json=chat).status_code == 410
        assert analyst.post("/v1/responses", json={"model": task, "input": "a toy"}).status_code == 410
        assert analyst.get(f"/v1/tasks/{task}").status_code == 410
        rows = [{"text": "a toy", "label": "red"}]
        tried = analyst.post(f"/v1/tasks/{task}/preview", json=asked | {"exemplars": rows})
        assert tried.status_code == 410
    assert analyst.get("/v1/tasks").json()["tasks"] == []
    assert analyst.get("/v1/models").json()["data"] == []
    (plan,) = analyst.get("/v1/budgets").json()["knowledge_bases"][0]["plans"]
    assert (plan["tasks"][0]["left"], plan["tasks"][0]["spent"], plan["promised"]["epsilon"]) == (0, 1, 4)
    assert plan["retired_at"]
    assert services.records.ledger.budgets.status("toys").tightest.free_epsilon == free
    assert wrong(services.records.database) == []
    assert replay(services.records, recompute=False).problems == []


def test_a_name_is_free_for_another_plan(records: Records) -> None:
    budgets = records.ledger.budgets
    sign(records, prepare(records, load_plan(SMALL)), "test")
    plans.retire(ROOT, records, "toys", 2, SURE)
    assert budgets.task("toys.colour").version == 1  # the newest that answers
    plans.retire(ROOT, records, "toys", 1, SURE)
    with pytest.raises(PlanRetiredError, match="plan 2 of 'toys' is retired"):
        budgets.task("toys.colour")
    assert tasks.list_(ROOT, records) == []
    again = SMALL.replace("epsilon: 2", "epsilon: 1").replace("5.0e-5", "1.0e-5")
    assert sign(records, prepare(records, load_plan(again)), "test").version == 3
    assert [task.name for task in tasks.list_(ROOT, records)] == ["toys.colour"]
    assert budgets.task("toys.colour").version == 3


@pytest.fixture
def on_any_database(database_url: str, tmp_path: Path, calibrated: CalibratedPlan) -> Records:
    records = make_records(tmp_path, settings=development(tmp_path, database_url=database_url, witness_url="none"))
    sign(records, calibrated, "test")
    return records


def test_a_charge_waits_for_a_retirement_that_began_and_is_refused(on_any_database: Records) -> None:
    records = on_any_database
    task = records.ledger.budgets.task("toys.colour")
    with ThreadPoolExecutor(1) as other:
        with records.database.begin() as connection:
            retire(connection, "toys", 1, datetime.now(UTC))
            trail.append(connection, datetime.now(UTC), PlanRetired(knowledge_base="toys", version=1, by="test"))
            charging = other.submit(records.ledger.charge, task, b"1", key_id="k")
            assert wait([charging], 0.3).not_done
        with pytest.raises(PlanRetiredError):
            charging.result(30)
    assert wrong(records.database) == []


def test_a_retirement_among_charges_divides_them(on_any_database: Records) -> None:
    """The trail, which is in the order of the transactions, has no charge behind it; replay would find one."""
    records, ready = on_any_database, Barrier(5)
    key = records.keys.create("ana", "analyst")[0].id
    task = records.ledger.budgets.task("toys.colour")

    def charge(number: int) -> list[str]:
        ready.wait()
        made = []
        for turn in range(4):
            try:
                records.ledger.charge(task, b"%d %d" % (number, turn), key_id=key)
            except PlanRetiredError:
                return [*made, "retired"]
            made.append("charged")
        return made

    with ThreadPoolExecutor(4) as threads:
        charging = [threads.submit(charge, number) for number in range(4)]
        ready.wait()
        records.ledger.budgets.retire("toys", 1, by="test")
        done = [one for thread in charging for one in thread.result(60)]
    kinds = [event.kind for event in records.audit.events(limit=100)]
    assert kinds.count("charge") == done.count("charged") == kinds[: kinds.index("plan.retired")].count("charge")
    assert replay(records, recompute=False).problems == []


def test_no_charge_follows_a_retirement(records: Records) -> None:
    task = records.ledger.budgets.task("toys.colour")
    with pytest.raises(UnconfirmedError):
        plans.retire(ROOT, records, "toys", 1)
    plans.retire(ROOT, records, "toys", 1, SURE)
    with pytest.raises(PlanRetiredError):
        records.ledger.charge(task, b"1", key_id="k")
    assert records.ledger.answers_left(task) == 20
    assert wrong(records.database) == []
