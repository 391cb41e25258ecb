"""A simulated year: a tenth of new people a month, quarterly cohorts, plans that draw on the newest four."""

import asyncio
from pathlib import Path

import pytest

from accounting.ledger.errors import BudgetExceededError
from accounting.plan import load_plan
from benchmarks.arrivals import MONTHS, QUARTERS, RETAIN, forecast, rolling, year
from service.plans.signing import check_free
from service.records.records import open_records
from service.records.replaying import replay
from service.services import open_services
from service.settings import Settings
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine

PEOPLE, ANSWERS = 400, 12


@pytest.mark.slow
def test_a_year_keeps_its_accuracy_and_its_forecast(tmp_path: Path) -> None:
    records = open_records(
        Settings(database_url=f"sqlite:///{tmp_path}/year.sqlite", development=True, latency_unpadded=True)
    )
    services = open_services(records, MajorityEngine(), EMBEDDER)
    plan = rolling(load_plan(PLAN.replace("ensemble: 10", "ensemble: 60")), ANSWERS)
    exemplars = [{"text": f"toy {i}", "label": "blue" if i % 40 == 0 else "red"} for i in range(2 * PEOPLE + 80)]
    questions = [{"text": f"question {i}", "label": "red"} for i in range(ANSWERS)]

    months = asyncio.run(year(services, plan, exemplars, questions, PEOPLE))

    # Some 50 of 60 slots lead for red, give or take 4; the noise of a lead is 4, so this fails once in 1e15 questions.
    assert max(month.noise for month in months) < 3
    assert [month.right for month in months] == [ANSWERS // MONTHS] * MONTHS * QUARTERS
    assert [month.cohorts for month in months[::MONTHS]] == [(1, 2), (1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5)]
    assert [month.public_size for month in months[::MONTHS]] == [520, 640, 760, 480]
    status = records.ledger.budgets.status("toys")
    assert [task.states["released"] for task in status.tasks] == [ANSWERS] * QUARTERS
    assert sum(task.charged for task in status.tasks) == forecast(plan) * len(months)
    assert [cohort.free_epsilon for cohort in status.cohorts] == [2, 0, 2, 4, 6]
    assert len(status.cohorts) == QUARTERS + 1 > RETAIN
    with pytest.raises(BudgetExceededError, match="cohort 2 of 'toys'"):
        check_free(records, plan)
    assert replay(records, recompute=False).problems == []
