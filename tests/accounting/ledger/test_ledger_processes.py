"""The ledger under many processes, and under SIGKILL at every moment of a query, on both databases."""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from accounting.ledger.charges import Charged, Ledger, Release
from tests.accounting.books import opened, signed, wrong

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def run(url: str, scenario: str, **arguments: Any) -> list[Any]:
    program = Path(__file__).with_name("ledger_processes.py")
    done = subprocess.run(
        [sys.executable, program, url, scenario, json.dumps(arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ledger(engine: sa.Engine) -> Ledger:
    return opened(engine, 1, 1e-5)


def sign(ledger: Ledger, answers: int) -> None:
    signed(ledger, epsilon=0.3, delta=1e-6, tasks=[("topic", answers)])


def test_sixteen_processes_charge_exactly_what_is_left(database_url: str, ledger: Ledger, engine: sa.Engine):
    sign(ledger, 500)
    charged = run(database_url, "charge_many", processes=16, count=100)
    assert len(charged) == 16
    assert sum(charged) == 500
    status = ledger.budgets.statuses()[0].tasks[0]
    assert (status.charged, status.left, status.states["charged"]) == (500, 0, 500)
    assert wrong(engine) == []


def test_twins_share_one_charge_and_one_answer(database_url: str, ledger: Ledger, engine: sa.Engine):
    sign(ledger, 500)
    seen = run(database_url, "twins", processes=8, count=10)
    assert len(seen) == 8
    assert all(answers == seen[0] for answers in seen)
    assert len(set(seen[0])) == 10
    assert ledger.budgets.statuses()[0].tasks[0].states == {"charged": 0, "released": 10, "voided": 0, "lost": 0}
    assert wrong(engine) == []


def test_signers_racing_cannot_exceed_the_lifetime_budget(database_url: str, ledger: Ledger, engine: sa.Engine):
    plans = run(database_url, "sign_many", processes=8, count=3)
    assert sum(plans) == 10  # 10 × 0.1 in 1
    status = ledger.budgets.statuses()[0]
    assert (status.tightest.free_epsilon, [task.version for task in status.tasks]) == (0, list(range(1, 11)))
    assert wrong(engine) == []


@pytest.mark.parametrize("ending", ["release", "void"])
def test_a_process_killed_at_any_moment_leaves_what_it_spent(
    database_url: str, ledger: Ledger, engine: sa.Engine, ending: str
):
    sign(ledger, 500)
    runs = run(database_url, "killed", ending=ending)
    assert [one["died"] for one in runs] == [True] * (len(runs) - 1) + [False]
    assert len(runs) > 15  # statements, commits and calls, before and after each
    assert wrong(engine) == []

    # Whatever the moment, the charge was written or not; what was written is open, or settled as it should be.
    before = Counter(ledger.budgets.statuses()[0].tasks[0].states)
    settled = {"release": "released", "void": "voided"}[ending]
    assert before["charged"] >= 1, "no process died between its charge and its end"
    assert before[settled] >= 2, "no process died after settling"
    assert sum(before.values()) < len(runs), "no process died before its charge"
    assert set(+before) == {"charged", settled}

    # Later every query can be asked: answered ones are, the others need a new charge, the dead ones stay spent.
    later = Ledger(engine, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    task = later.budgets.task("kb.topic")
    outcomes = [later.charge(task, one["query"].encode(), key_id="k") for one in runs]
    after = Counter(ledger.budgets.statuses()[0].tasks[0].states)
    assert after["lost"] == before["charged"]
    assert after[settled] == before[settled]
    answered = sum(isinstance(outcome, Release) for outcome in outcomes)
    assert answered == before["released"]
    assert after["charged"] == sum(isinstance(outcome, Charged) for outcome in outcomes) == len(runs) - answered
    assert ledger.answers_left(task) == 500 - after["lost"] - after["charged"] - after["released"]
    assert wrong(engine) == []
