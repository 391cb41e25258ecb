"""The ledger under many processes, and under SIGKILL at every moment of a query, on both databases."""

import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from accounting.ledger.charges import AnswersExhaustedError, Charged, Ledger, Release
from accounting.ledger.errors import BudgetExceededError
from service.records.database import open_database
from tests.accounting.books import opened, signed, wrong
from tests.processes import FRESH

pytestmark = pytest.mark.slow
T = TypeVar("T")


def together(processes: int, work: Callable[[int], T]) -> list[T]:
    """``work(index)`` in processes that wait for each other before they start."""
    all_there = FRESH.Barrier(processes)
    with ProcessPoolExecutor(processes, FRESH, initializer=all_there.wait, initargs=(300,)) as pool:
        return list(pool.map(work, range(processes)))


def charge_many(url: str, count: int, index: int) -> int:
    """Ask ``count`` queries that no other process asks, and return how many were charged."""
    ledger = Ledger(open_database(url))
    task = ledger.budgets.task("kb.topic")
    charged = 0
    for number in range(count):
        try:
            outcome = ledger.charge(task, f"{index}/{number}".encode(), key_id="k")
        except AnswersExhaustedError:
            continue
        assert isinstance(outcome, Charged)
        charged += 1
    return charged


def ask_until_answered(url: str, count: int, index: int) -> list[str]:
    """Ask ``count`` queries that every process asks, and return the ids of their releases."""
    ledger = Ledger(open_database(url))
    task = ledger.budgets.task("kb.topic")
    seen = []
    for number in range(count):
        query = f"query {number}".encode()
        outcome = ledger.charge(task, query, key_id=f"key {index}")
        while not isinstance(outcome, Release):
            if isinstance(outcome, Charged):
                outcome = ledger.release(outcome.id, {"from": index})
            else:
                time.sleep(0.002)
                outcome = ledger.charge(task, query, key_id=f"key {index}")
        seen.append(outcome.id)
    return seen


def sign_many(url: str, count: int, index: int) -> int:
    """Try to sign ``count`` plans of (0.1, 1e-6), and return how many were signed."""
    ledger = Ledger(open_database(url))
    fitted = 0
    for number in range(count):
        document = json.dumps({"signer": index, "number": number})  # equal plans would have to be confirmed
        try:
            signed(ledger, epsilon=0.1, delta=1e-6, document=document, tasks=[("topic", 10)], by=str(index))
        except BudgetExceededError:
            continue
        fitted += 1
    return fitted


def charge_and_settle(url: str, query: str, dies_at: int) -> None:
    """Charge and settle a query in a process that is killed at the moment with the number ``dies_at``.

    Moments come before and after every statement and commit, and after every call.
    """
    moments = itertools.count()

    def moment(*_anything: object) -> None:
        if next(moments) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = open_database(url)
    ledger = Ledger(engine)
    task = ledger.budgets.task("kb.topic")
    for point in ("before_cursor_execute", "after_cursor_execute"):
        sa.event.listen(engine, point, moment)
    commit = engine.dialect.do_commit

    def do_commit(connection: Any) -> None:
        moment()
        commit(connection)
        moment()

    engine.dialect.do_commit = do_commit  # type: ignore[method-assign]
    outcome = ledger.charge(task, query.encode(), key_id="k")
    assert isinstance(outcome, Charged)
    moment()
    if query.startswith("release"):
        ledger.release(outcome.id, {"label": "World"})
    else:
        ledger.void(outcome.id)
    moment()


def killed_at_every_moment(url: str, ending: str) -> list[str]:
    """Queries of processes that die, one per moment, and of one that lives to the end."""
    queries, code = [], None
    while code != 0:
        queries.append(f"{ending} {len(queries)}")
        process = FRESH.Process(target=charge_and_settle, args=(url, queries[-1], len(queries) - 1))
        process.start()
        process.join()
        code = process.exitcode
        assert code in (-signal.SIGKILL, 0)
    return queries


@pytest.fixture
def ledger(engine: sa.Engine) -> Ledger:
    return opened(engine, 1, 1e-5)


def sign(ledger: Ledger, answers: int) -> None:
    signed(ledger, epsilon=0.3, delta=1e-6, tasks=[("topic", answers)])


def test_sixteen_processes_charge_exactly_what_is_left(database_url: str, ledger: Ledger, engine: sa.Engine):
    sign(ledger, 500)
    charged = together(16, partial(charge_many, database_url, 100))
    assert len(charged) == 16
    assert sum(charged) == 500
    status = ledger.budgets.statuses()[0].tasks[0]
    assert (status.charged, status.left, status.states["charged"]) == (500, 0, 500)
    assert wrong(engine) == []


def test_twins_share_one_charge_and_one_answer(database_url: str, ledger: Ledger, engine: sa.Engine):
    sign(ledger, 500)
    seen = together(8, partial(ask_until_answered, database_url, 10))
    assert len(seen) == 8
    assert all(answers == seen[0] for answers in seen)
    assert len(set(seen[0])) == 10
    assert ledger.budgets.statuses()[0].tasks[0].states == {"charged": 0, "released": 10, "voided": 0, "lost": 0}
    assert wrong(engine) == []


def test_signers_racing_cannot_exceed_the_lifetime_budget(database_url: str, ledger: Ledger, engine: sa.Engine):
    plans = together(8, partial(sign_many, database_url, 3))
    assert sum(plans) == 10  # 10 × 0.1 in 1
    status = ledger.budgets.statuses()[0]
    assert (status.tightest.free_epsilon, [task.version for task in status.tasks]) == (0, list(range(1, 11)))
    assert wrong(engine) == []


@pytest.mark.lengthy
@pytest.mark.parametrize("ending", ["release", "void"])
def test_a_process_killed_at_any_moment_leaves_what_it_spent(
    database_url: str, ledger: Ledger, engine: sa.Engine, ending: str
):
    sign(ledger, 500)
    runs = killed_at_every_moment(database_url, ending)
    assert len(runs) > 15  # statements, commits and calls, before and after each
    assert wrong(engine) == []

    # Each process wrote its charge or did not; a charge that was written is open, or settled as it should be.
    before = Counter(ledger.budgets.statuses()[0].tasks[0].states)
    settled = {"release": "released", "void": "voided"}[ending]
    assert before["charged"] >= 1, "no process died between its charge and its end"
    assert before[settled] >= 2, "no process died after settling"
    assert sum(before.values()) < len(runs), "no process died before its charge"
    assert set(+before) == {"charged", settled}

    # Later every query can be asked again: a released answer is repeated, and any other query needs a new charge. The
    # charges of dead processes stay spent.
    later = Ledger(engine, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    task = later.budgets.task("kb.topic")
    outcomes = [later.charge(task, query.encode(), key_id="k") for query in runs]
    after = Counter(ledger.budgets.statuses()[0].tasks[0].states)
    assert after["lost"] == before["charged"]
    assert after[settled] == before[settled]
    answered = sum(isinstance(outcome, Release) for outcome in outcomes)
    assert answered == before["released"]
    assert after["charged"] == sum(isinstance(outcome, Charged) for outcome in outcomes) == len(runs) - answered
    assert ledger.answers_left(task) == 500 - after["lost"] - after["charged"] - after["released"]
    assert wrong(engine) == []
