"""Scenarios that need many processes, or one that dies: run by test_ledger_processes.py as a program.

    python ledger_processes.py DATABASE_URL SCENARIO '{"argument": value}'

It forks the processes, lets them start at one instant, and prints what each returned as a JSON list.
"""

import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from accounting.ledger.charges import AnswersExhaustedError, Charged, Ledger, Release
from accounting.ledger.errors import BudgetExceededError
from service.records.database import open_database
from tests.accounting.books import signed


def together(processes: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(index)`` in forked processes that wait for each other before they start."""
    gate_read, gate_write = os.pipe()
    children = []
    for index in range(processes):
        result_read, result_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            try:
                os.read(gate_read, 1)  # returns when the parent closes its end
                os.write(result_write, json.dumps(work(index)).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(result_write)
        children.append((pid, result_read))
    os.close(gate_write)
    results = []
    for pid, result_read in children:
        with os.fdopen(result_read) as result:
            text = result.read()
        if os.waitpid(pid, 0)[1] != 0:
            raise SystemExit("a process failed")
        results.append(json.loads(text))
    return results


def charge_many(url: str, processes: int, count: int) -> list[int]:
    """Each process charges ``count`` queries of its own; how many were charged, per process."""

    def work(index: int) -> int:
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

    return together(processes, work)


def twins(url: str, processes: int, count: int) -> list[list[str]]:
    """All processes ask the same ``count`` queries until each is answered; the releases each saw."""

    def work(index: int) -> list[str]:
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

    return together(processes, work)


def sign_many(url: str, processes: int, count: int) -> list[int]:
    """Each process signs ``count`` plans of (0.1, 1e-6); how many were signed, per process."""

    def work(index: int) -> int:
        ledger = Ledger(open_database(url))
        fitted = 0
        for _ in range(count):
            try:
                signed(ledger, epsilon=0.1, delta=1e-6, tasks=[("topic", 10)], by=str(index))
            except BudgetExceededError:
                continue
            fitted += 1
        return fitted

    return together(processes, work)


def killed(url: str, ending: str) -> list[dict[str, Any]]:
    """Charge a query and settle it (``ending``: release or void) in a process that kills itself with SIGKILL.

    One process per moment: before and after every statement and every commit, and between the calls; the last one
    lives to the end. Each asks a query named after its moment.
    """
    runs = []
    for moment in itertools.count():
        pid = os.fork()
        if pid == 0:
            try:
                _charge_and_settle(url, ending, moment)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        status = os.waitpid(pid, 0)[1]
        died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not died and status != 0:
            raise SystemExit("a process failed otherwise than by its own SIGKILL")
        runs.append({"query": f"{ending} {moment}", "died": died})
        if not died:
            return runs
    raise AssertionError


def _charge_and_settle(url: str, ending: str, dies_at: int) -> None:
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
    outcome = ledger.charge(task, f"{ending} {dies_at}".encode(), key_id="k")
    assert isinstance(outcome, Charged)
    moment()
    if ending == "release":
        ledger.release(outcome.id, {"label": "World"})
    else:
        ledger.void(outcome.id)
    moment()


SCENARIOS: dict[str, Callable[..., Any]] = {
    "charge_many": charge_many,
    "twins": twins,
    "sign_many": sign_many,
    "killed": killed,
}

if __name__ == "__main__":
    url, scenario, arguments = sys.argv[1:]
    print(json.dumps(SCENARIOS[scenario](url, **json.loads(arguments))))
