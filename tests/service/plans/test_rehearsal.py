"""Rehearsals from the plan to the interval, with a real ledger and store."""

import asyncio
import json
import math
import re
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
import sqlalchemy as sa

from accounting.ledger.errors import BudgetExceededError
from accounting.ledger.tables import charges
from accounting.plan import CalibratedPlan, PlanError, calibrate_plan, load_plan, parse_plan
from aggregation.rehearsal import Counts
from service.api.openai.surface import _models
from service.pipeline.answering import BusyError
from service.pipeline.making import ONE_RELEASE, NotMadeError, charge_once
from service.pipeline.queries import InvalidQueryError
from service.pipeline.stages import Stages
from service.plans import rehearsing
from service.plans.budget_report import budget_report
from service.plans.preview import preview
from service.plans.rehearsing import Rehearsals, begin, finish, written
from service.plans.signing import check_fits, release
from service.records.records import Records
from service.records.replaying import replay
from service.services import open_services
from tests.service.conftest import (
    EMBEDDER,
    PLAN,
    MajorityEngine,
    client_of,
    make_records,
    nearly_noiseless,
    rows,
    states,
    upload,
)
from tests.service.dashboard.dashboard_browser import Browser
from tests.service.shell import Shell

LARGE = PLAN.replace("epsilon: 4", "epsilon: 20")
EPSILON = 12.0
PUBLIC = 600


@pytest.fixture(scope="module")
def rehearsal() -> CalibratedPlan:
    """Of a plan with little noise, at a price that leaves little noise on the counts."""
    return calibrate_plan(written(nearly_noiseless_plan(), "colour", EPSILON, 1e-5, 100), PUBLIC)


@pytest.fixture(scope="module")
def brief() -> CalibratedPlan:
    """The same with a fifth of the questions, for tests that do not look at what it finds."""
    return calibrate_plan(written(nearly_noiseless_plan(), "colour", EPSILON, 1e-5, 20), PUBLIC)


def nearly_noiseless_plan() -> CalibratedPlan:
    return calibrate_plan(load_plan(LARGE), PUBLIC)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """600 toys, three of four of them red."""
    records = make_records(tmp_path, epsilon=50)
    upload(records, [(f"v{i}", f"toy {i}", "red" if i % 4 else "blue") for i in range(60, PUBLIC)])
    return records


def run(
    records: Records, calibrated: CalibratedPlan, engine: MajorityEngine | None = None, *, padded: bool = False
) -> Counts:
    async def both() -> Counts:
        stages = Stages(engine or MajorityEngine(), EMBEDDER, 60.0)
        return await finish(records, stages, await begin(records, calibrated, "ana", stages), padded=padded)

    return asyncio.run(both())


@pytest.mark.slow
def test_it_finds_how_often_answers_are_right_and_is_a_charge_like_any_other(records, rehearsal) -> None:
    """The majority is red, so three of four questions are answered rightly; zero-shot says red always, too."""
    counts = run(records, rehearsal)
    choice = counts.questions * 0.75 * 0.25
    for right, sigma in ((counts.right, counts.sigma), (counts.zero_shot, counts.sigma_others)):
        error = 6.2 * math.sqrt(sigma**2 + (0.75 * counts.sigma_others) ** 2 + choice)  # exceeded once in 1e9
        assert error < 0.5 * counts.questions  # answers of the minority's label would be found
        assert abs(right - 0.75 * counts.answered) < error
    low, high = counts.accuracy
    assert high - low < 0.5
    assert states(records) == {"released": 1}
    (status,) = records.ledger.budgets.statuses()
    assert float(status.tightest.promised_epsilon) == EPSILON
    report = replay(records, recompute=True)
    assert report.problems == []
    assert report.plans["toys@1"]["pld"].upper == pytest.approx(EPSILON, rel=0.003)


@pytest.mark.slow
def test_what_is_stored_and_shown_says_the_same_again(records, brief) -> None:
    found = run(records, brief)
    signed = records.ledger.budgets.task("toys.colour-rehearsal@1")
    stored = records.ledger.stored_release(signed, ONE_RELEASE)
    assert stored.answer["right"] == found.right
    assert set(stored.answer) == {"made_once", "right", "answered", "without_exemplars"}
    services = open_services(records, MajorityEngine(), EMBEDDER)
    with pytest.raises(InvalidQueryError, match="gives none"):
        asyncio.run(services.answering.answer("toys.colour-rehearsal", "a toy", key_id="k"))
    assert states(records) == {"released": 1}
    (listed,) = client_of(services, "admin").get("/v1/releases").json()["data"]
    assert (listed["id"], listed["made_once"]) == (stored.id, "rehearsal")
    (budget,) = budget_report(records)
    (task,) = budget.plans[0].tasks
    assert (task.answers, task.one_release) == (None, "made")
    assert task.rehearsal.accuracy == found.accuracy
    assert task.rehearsal.zero_shot_accuracy == found.zero_shot_accuracy
    with pytest.raises(ValueError, match="never made again"):
        release(records, task.task)
    assert _models(records) == []


def test_one_that_dies_is_spent_and_never_run_again(records, brief, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*_args) -> None:
        assert states(records) == {"charged": 1}  # durable before anything is counted
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsing, "count", die)
    with pytest.raises(KeyboardInterrupt):
        run(records, brief)
    (status,) = records.ledger.budgets.statuses()
    assert float(status.tightest.promised_epsilon) == EPSILON
    with pytest.raises(NotMadeError):
        charge_once(records.ledger, records.ledger.budgets.task("toys.colour-rehearsal@1"))


def test_nothing_is_signed_where_it_cannot_be_run(records, brief) -> None:
    remote, down = MajorityEngine(), MajorityEngine()
    remote.describe = AsyncMock(return_value=replace(asyncio.run(remote.describe()), remote=True))
    down.down = True
    for engine, says in ((remote, "does not allow"), (down, "down|does not answer")):
        with pytest.raises(RuntimeError, match=says):
            run(records, brief, engine)
    budget = brief.plan.budget.model_copy(update={"epsilon": 60.0})
    dear = brief.model_copy(update={"plan": brief.plan.model_copy(update={"budget": budget})})
    with pytest.raises(BudgetExceededError):
        run(records, dear)
    assert states(records) == {}
    assert records.ledger.budgets.plans("toys") == []


@pytest.mark.slow
def test_it_ends_after_a_whole_number_of_grains(records, brief, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = AsyncMock()
    monkeypatch.setattr(rehearsing, "longest_question_s", AsyncMock(return_value=0.5))
    monkeypatch.setattr(rehearsing, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))  # and nobody else's
    for took, outcome in ((20.0, nullcontext()), (60.0, nullcontext()), (60.0, pytest.raises(RuntimeError))):
        if not isinstance(outcome, nullcontext):
            monkeypatch.setattr(rehearsing, "count", AsyncMock(side_effect=RuntimeError("a red toy")))
        clock = iter((1000.0, 1000.0 + took))
        monkeypatch.setattr(rehearsing, "time", SimpleNamespace(monotonic=lambda clock=clock: next(clock)))
        with outcome:
            run(records, brief, padded=True)
        # 20 questions of half a second, and a second to read
        (slept,) = sleep.await_args.args
        assert (took + slept) % 11 == pytest.approx(0)
        assert 0 < slept < 11


def test_one_that_takes_long_is_not_shown_as_lost(records, brief, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slots that may take hours it is given hours, before it is taken for dead."""

    async def work(*_args) -> float:
        return 100.0

    monkeypatch.setattr(rehearsing, "longest_question_s", work)
    asyncio.run(begin(records, brief, "ana", Stages(MajorityEngine(), EMBEDDER, 60.0)))
    with records.database.connect() as connection:
        ((created, until),) = connection.execute(sa.select(charges.c.created_at, charges.c.lease_until))
    assert (until - created).total_seconds() == pytest.approx(2 * 20 * 100, rel=0.01)


def test_what_is_expected_is_said_before(rehearsal) -> None:
    (task,) = preview(rehearsal).tasks.values()
    assert "If 80 % are right, it will say: between" in task.summary
    assert task.answers is None
    assert task.warning is None
    cheap = calibrate_plan(written(nearly_noiseless_plan(), "colour", 0.1, 1e-5, 100), PUBLIC)
    (task,) = preview(cheap).tasks.values()
    assert task.warning == "The rehearsal is expected to say hardly anything."


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (LARGE, "shape", "there is no 'shape'; there is colour"),
        (LARGE.replace("shots: 2", "shots: 2\n    sampling: blocks"), "colour", "rehearse it with `sampling: units`"),
        (LARGE.replace("shots: 2", "shots: 59"), "colour", "leave too few exemplars for those who ask"),
    ],
)
def test_what_cannot_be_rehearsed_says_why(text: str, name: str, says: str) -> None:
    calibrated = nearly_noiseless(load_plan(text.replace("ensemble: 10", "ensemble: 1")))
    if "59" in text:
        calibrated = calibrated.model_copy(update={"public_size": 60})
    with pytest.raises(PlanError, match=says):
        written(calibrated, name, 1.0, None, 100)


def test_nobody_writes_one_by_hand(records, brief) -> None:
    plan = parse_plan(json.loads(brief.plan.model_dump_json()))
    with pytest.raises(PlanError, match="by hand"):
        check_fits(plan, records.store.get("toys"))


@pytest.mark.slow
def test_the_command_line(dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, toys = tmp_path / "plan.yaml", tmp_path / "toys.jsonl"
    plan.write_text(LARGE.replace("ensemble: 10", "ensemble: 5"))
    labels = enumerate(["red", "blue"] * 100)
    toys.write_bytes(rows([{"unit_id": f"u{i}", "text": f"a {one} toy {i}", "label": one} for i, one in labels]).read())
    monkeypatch.setenv("DPICL_LATENCY_UNPADDED", "true")
    dpicl.ok("kb", "create", "toys", "--epsilon", "40", "--delta", "2e-4", "--public-size", 200, "--yes")
    dpicl.ok("kb", "ingest", "toys", toys)
    common = ["plan", "rehearse", plan, "--epsilon", 15, "--questions", 15]
    monkeypatch.setattr("typer.confirm", lambda _question: False)
    assert dpicl(*common)[0] == 1
    assert json.loads(dpicl.ok("budget", "--json"))[0]["promised"]["epsilon"] == 0
    assert "With the plan: between" in dpicl.ok(*common, "--yes")
    found = json.loads(dpicl.ok(*common, "--yes", "--json"))
    assert found["task"] == "toys.colour-rehearsal@2"
    assert 0 <= found["accuracy"][0] <= found["accuracy"][1] <= 1


STUDIO = "/knowledge-bases/toys/plan"


@pytest.mark.slow
def test_the_button(records) -> None:
    """Nothing is taken before the price that was shown is accepted."""
    browser = Browser(open_services(records, MajorityEngine(), EMBEDDER))
    with browser.client:  # one event loop, on which it goes on after the answer
        browser.sign_in()
        form = {"text": LARGE, "task": "colour", "questions": "25", "epsilon": "12"}
        while not (
            shown := re.search('name="digest" value="([0-9a-f]+)"', browser.post(f"{STUDIO}/rehearse", form).text)
        ):
            time.sleep(0.2)
        form["digest"] = shown[1]
        for wrong in (
            {},  # not accepted
            {"epsilon": "13", "sure": "yes"},  # not the one that was shown
            {"epsilon": "much", "sure": "yes"},
            {"task": "shape", "sure": "yes"},
        ):
            assert browser.post(f"{STUDIO}/rehearse/start", form | wrong).status_code == 422
        assert records.ledger.budgets.plans("toys") == []
        browser.post(f"{STUDIO}/rehearse/start", form | {"sure": "yes"})
        while "A rehearsal: between" not in browser.get("/knowledge-bases/toys/plans").text:
            time.sleep(0.2)
    assert states(records) == {"released": 1}
    (plan,) = records.ledger.budgets.plans("toys")
    assert plan.signed_by == browser.key.id


async def test_one_at_a_time_and_a_failure_tells_nothing(records, brief, monkeypatch, capsys) -> None:
    async def fail(*_args) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a red toy")

    monkeypatch.setattr(rehearsing, "count", fail)
    rehearsals = Rehearsals(records, Stages(MajorityEngine(), EMBEDDER, 60.0), padded=False)
    first = asyncio.create_task(rehearsals.start(brief, "ana"))
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="another rehearsal is running"):
        await rehearsals.start(brief, "ana")
    assert await first == "toys.colour-rehearsal@1"
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert await rehearsals.start(brief, "ana") == "toys.colour-rehearsal@2"
    said = "".join(capsys.readouterr())
    assert "rehearsal_failed" in said
    assert "red toy" not in said
    assert "RuntimeError" not in said
