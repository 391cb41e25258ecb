"""Alerts: which are due, and that each is raised once, whoever looks."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from accounting.ledger.charges import Charged, Ledger
from accounting.plan import CalibratedPlan, load_plan
from service.plans import alerts
from service.plans.alerts import Alert, Thresholds, counted, due, raise_due, recent, thresholds
from service.plans.forecast import Forecast
from service.plans.signing import sign
from service.records.records import Records, open_records
from service.records.replaying import replay
from service.records.webhooks import Webhooks
from service.settings import Settings
from tests.conftest import Clock
from tests.service.conftest import embed, make_records, nearly_noiseless

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def opened(folder: Path, url: str, calibrated: CalibratedPlan) -> Records:
    records = make_records(folder, settings=settings(url))
    sign(records, calibrated, "test")
    return records


def settings(url: str) -> Settings:
    return Settings(database_url=url, witness_url="none", development=True, latency_unpadded=True)


@pytest.fixture
def either(tmp_path: Path, database_url: str, calibrated: CalibratedPlan) -> Records:
    """On either database, with a task of 20 answers."""
    return opened(tmp_path, database_url, calibrated)


def spend(records: Records, times: int, ledger: Ledger | None = None) -> None:
    ledger = ledger or records.ledger
    task = ledger.budgets.task("toys.colour")
    for _ in range(times):
        spent = task.answers - ledger.answers_left(task)
        assert isinstance(ledger.charge(task, b"%d" % spent, key_id="ana"), Charged)


def hooks(records: Records) -> Webhooks:
    return Webhooks(records.database, records.digest_key)


def look(records: Records, now: datetime | None = None) -> list[tuple[str, int]]:
    raised = raise_due(records, hooks(records), now or datetime.now(UTC), unlisted=True)
    return [(one.rule, one.threshold) for one in raised]


@pytest.mark.parametrize(
    ("answers", "spent", "reached"),
    [
        (100, 74, []),
        (100, 75, [75]),
        (100, 99, [90, 75]),
        (100, 100, [100, 90, 75]),
        (7, 5, []),
        (7, 6, [75]),  # 90 % of 7 is more than 6 answers
        (1, 1, [100, 90, 75]),
        (10**9, 75 * 10**7 - 1, []),
    ],
)
def test_a_percentage_is_reached_by_whole_answers(answers: int, spent: int, reached: list[int]):
    found = due([Forecast("kb.topic@1", answers, answers - spent)], Thresholds(days=None), NOW)
    assert [(one.rule, one.threshold) for one in found] == [("percent", percent) for percent in reached]


@pytest.mark.parametrize(
    ("left", "ends_in_days", "days", "is_due"),
    [(50, 14, 14, True), (50, 14.1, 14, False), (50, 3, None, False), (50, None, 14, False), (0, 3, 14, False)],
)
def test_a_forecast_is_due_while_answers_are_left(left: int, ends_in_days, days, is_due: bool):
    ends = None if ends_in_days is None else NOW + timedelta(days=ends_in_days)
    found = due([Forecast("kb.topic@1", 100, left, 1.0, ends)], Thresholds((), days), NOW)
    assert found == ([Alert(Forecast("kb.topic@1", 100, left, 1.0, ends), "days", 14)] if is_due else [])


@pytest.mark.parametrize(
    ("percents", "days", "says"),
    [
        ((0,), None, "percents: at most 10 whole numbers from 1 to 100"),
        ((101,), None, "percents: at most 10"),
        (tuple(range(1, 12)), None, "percents: at most 10"),
        ((90, 75), None, "percents: name each once, in ascending order"),
        ((75, 75), None, "percents: name each once"),
        ((), 0, "days: a whole number from 1 to 365"),
        ((), 366, "days: a whole number from 1 to 365"),
    ],
)
def test_thresholds_that_cannot_be(percents: tuple[int, ...], days: int | None, says: str):
    with pytest.raises(ValueError, match=says):
        Thresholds(percents, days)


def test_each_alert_is_raised_once(either: Records, tmp_path: Path):
    spend(either, 14)
    assert look(either) == []
    spend(either, 1)
    assert look(either) == [("percent", 75)]
    assert look(either) == []
    spend(either, 5)
    again = open_records(either.settings)  # after a restart
    assert look(again) == [("percent", 100)]  # and 90 is not worth a message of its own
    assert look(either) == []
    assert [one.text.partition(" % ")[0] for one in recent(either.database)] == [
        "toys.colour@1 has given 100",
        "toys.colour@1 has given 75",
    ]
    assert len(hooks(either).claim(unlisted=True)) == 2


def test_of_two_that_look_at_the_same_time_one_raises(either: Records):
    hooks(either).add("one", "https://example.org/1", by="test")
    hooks(either).add("two", "https://example.org/2", by="test")
    spend(either, 19)
    together, raised = threading.Barrier(2), []

    def replica() -> None:
        records = open_records(either.settings)
        together.wait()
        raised.extend(look(records))

    threads = [threading.Thread(target=replica) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == [("percent", 90)]
    assert sorted(str(one.name) for one in hooks(either).claim(unlisted=True)) == ["None", "one", "two"]


def test_the_forecast_is_that_of_the_days_before(either: Records):
    clock = Clock()
    clock.now = NOW - timedelta(days=4)
    ledger = Ledger(either.database, lease_s=60, clock=clock)
    for _ in range(4):
        spend(either, 2, ledger)
        clock.advance(24 * 3600)
    (task,) = counted(either, NOW)
    assert (task.task, task.left) == ("toys.colour@1", 12)
    assert task.per_day == pytest.approx(8 / 4.5)  # since the first day began
    assert look(either, NOW) == [("days", 14)]
    assert look(either, NOW) == []
    (raised,) = recent(either.database)
    assert raised.text == "At this rate the answers of toys.colour@1 last until 8 January 2030: 12 of 20 are left"


def test_thresholds_are_remembered_and_audited(either: Records):
    assert thresholds(either.database) == Thresholds((75, 90, 100), 14)
    for to in (Thresholds((50,), None), Thresholds((), 30)):
        alerts.change(either.database, to, NOW, by="root")
        assert thresholds(either.database) == to
    changed = [event.particulars for event in either.audit.events(kinds=["alerts.changed"])]
    assert [(one.percents, one.days, one.by) for one in changed] == [((50,), None, "root"), ((), 30, "root")]
    assert replay(either, recompute=False).problems == []
    spend(either, 20)
    assert look(either) == []


def test_a_lower_threshold_that_was_passed_before_is_not_raised_after_a_higher_one(records: Records):
    spend(records, 16)
    assert look(records) == [("percent", 75)]
    alerts.change(records.database, Thresholds((50, 75), None), NOW, by="root")
    assert look(records) == []
    alerts.change(records.database, Thresholds((50, 75, 80), None), NOW, by="root")
    assert look(records) == [("percent", 80)]


def test_a_release_that_is_made_once_is_never_spent(tmp_path: Path):
    written = """
knowledge_base: toys
budget: {epsilon: 90, delta: 1.0e-4}
tasks:
  for-ever:
    kind: classify
    release: once
    labels: [red, blue]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    mechanism: {type: prototypes}
"""
    records = make_records(tmp_path, epsilon=100)
    sign(records, nearly_noiseless(load_plan(written)), "test", embed=embed)
    (task,) = records.ledger.budgets.statuses()[0].tasks
    assert (task.answers, task.left) == (1, 0)
    assert counted(records, NOW) == []
    assert look(records) == []


def test_the_newest_version_counts_and_nothing_of_what_is_archived(records: Records, calibrated: CalibratedPlan):
    spend(records, 20)
    sign(records, calibrated, "test")
    assert [one.task for one in counted(records, NOW)] == ["toys.colour@2"]
    spend(records, 15)
    records.ledger.cohorts.archive("toys", by="root")
    assert look(records) == []


def test_what_is_sent():
    one = Forecast("kb.topic@1", 1000, 250)
    assert Alert(one, "percent", 75).message == {
        "event": "budget.alert",
        "task": "kb.topic@1",
        "knowledge_base": "kb",
        "percent": 75,
        "answers": 1000,
        "left": 250,
        "text": "kb.topic@1 has given 75 % of its answers: 250 of 1,000 are left",
    }
    told = Alert(replace(one, runs_out=NOW), "days", 14).message
    assert (told["event"], told["days"], told["runs_out"]) == ("budget.forecast", 14, "2030-01-01")
