"""The counts that reports read: they are those of the ledger, and reading them does not grow with it."""

import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.charges import Charged, Ledger
from accounting.ledger.history import History
from accounting.ledger.trail import AuditTrail
from accounting.replay.books import violations
from service.records.database import open_database
from tests.accounting.books import opened, signed, wrong
from tests.conftest import Clock

TODAY = date(2030, 1, 1)


@pytest.fixture
def ledger(engine: sa.Engine, clock: Clock) -> Ledger:
    ledger = opened(engine, 3, 1e-4, lease_s=60, clock=clock)
    signed(ledger, tasks=[("topic", 10_000), ("reply", 10_000)])
    return ledger


_queries = itertools.count()


def charge(ledger: Ledger, task: str = "kb.topic", key: str = "k") -> str:
    charged = ledger.charge(ledger.budgets.task(task), b"%d" % next(_queries), key_id=key)
    assert isinstance(charged, Charged)
    return charged.id


def release(ledger: Ledger, task: str = "kb.topic", key: str = "k", **answer: object) -> None:
    ledger.release(charge(ledger, task, key), answer)


def states(ledger: Ledger) -> dict[str, dict[str, int]]:
    return {
        task.name: {state: n for state, n in task.states.items() if n} for task in ledger.budgets.status("kb").tasks
    }


def test_a_charge_is_counted_in_each_of_its_states(ledger: Ledger, engine: sa.Engine, clock: Clock) -> None:
    assert states(ledger) == {"topic": {}, "reply": {}}
    slow = charge(ledger)
    charge(ledger)
    ledger.void(charge(ledger))
    release(ledger)
    release(ledger, "kb.reply")
    assert states(ledger) == {"topic": {"charged": 2, "voided": 1, "released": 1}, "reply": {"released": 1}}
    clock.advance(61)
    assert ledger.expire_leases() == 2
    assert states(ledger)["topic"] == {"lost": 2, "voided": 1, "released": 1}
    ledger.release(slow, {})  # its holder was only slow
    assert states(ledger)["topic"] == {"lost": 1, "voided": 1, "released": 2}
    assert ledger.budgets.statuses() == [ledger.budgets.status("kb")]
    assert wrong(engine) == []


def test_a_transaction_that_is_rolled_back_counts_nothing(ledger: Ledger, engine: sa.Engine) -> None:
    release(ledger)
    with engine.connect() as connection:
        before = counts(connection)
        row = connection.execute(sa.select(tables.charges)).one()._mapping
        connection.execute(sa.insert(tables.charges).values({**row, "id": "another"}))
        assert all(one != other for one, other in zip(before, counts(connection), strict=True))
        connection.rollback()
        assert counts(connection) == before


def counts(connection: sa.Connection) -> list[list[tuple[object, ...]]]:
    kept = (
        sa.select(tables.tasks).where(tables.tasks.c.made > 0),
        sa.select(tables.charges_by_day),
        sa.select(tables.charges_by_minute),
    )
    return [[tuple(row) for row in connection.execute(rows)] for rows in kept]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tasks SET made = made + 1",
        "UPDATE tasks SET voided = voided + 1",
        "UPDATE tasks SET fell_back = fell_back - 1",
        "UPDATE tasks SET shown = 0, fell_back = 0",
        "UPDATE charges_by_day SET answers = 1 WHERE key_id = 'k'",
        "UPDATE charges_by_day SET day = '2029-12-31' WHERE key_id = 'k'",
        "UPDATE charges_by_minute SET answers = answers + 1",
        "UPDATE tasks SET made = 0, voided = 0",
        "DELETE FROM charges_by_day WHERE key_id = 'other'",
        "DELETE FROM charges_by_minute",
    ],
)
def test_a_replay_finds_counts_that_are_wrong(ledger: Ledger, engine: sa.Engine, damage: str) -> None:
    release(ledger, fallback=True)
    release(ledger, fallback=False)
    release(ledger, key="other")
    ledger.void(charge(ledger))
    with engine.connect() as connection:
        assert violations(connection) == []
        connection.exec_driver_sql(damage)
        found = violations(connection)
        assert found
        assert all("counted for reports" in one for one in found)


def test_a_replay_finds_an_event_that_is_hidden_from_pages(ledger: Ledger, engine: sa.Engine) -> None:
    release(ledger)
    on = " ON audit_events" if engine.dialect.name == "postgresql" else ""
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP TRIGGER audit_events_no_update{on}")
        assert violations(connection) == []
        for column, other in (("key_id", "x"), ("knowledge_base", "x"), ("day", "2029-12-31")):
            moved = f"UPDATE audit_events SET {column} = '{other}' WHERE kind = 'charge'"  # noqa: S608
            with connection.begin_nested() as point:
                connection.exec_driver_sql(moved)
                (found,) = violations(connection)
                assert "is not found by" in found
                point.rollback()


@contextmanager
def steps(engine: sa.Engine) -> Iterator[Callable[[], int]]:
    """Counts what SQLite does: the instructions of its virtual machine, in tens."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    def watch(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(step, 10)

    sa.event.listen(engine, "checkout", watch)
    yield lambda: taken
    sa.event.remove(engine, "checkout", watch)


READS: dict[str, Callable[[Ledger, sa.Engine], object]] = {
    "statuses": lambda ledger, _: ledger.budgets.statuses(),
    "status": lambda ledger, _: ledger.budgets.status("kb"),
    "days": lambda _, engine: History(engine).charges_per_day(),
    "minutes of today": lambda _, engine: History(engine).charges_per_minute(since=TODAY),
    "use": lambda _, engine: History(engine).usage(since=TODAY - timedelta(days=1)),
    "fallbacks": lambda _, engine: History(engine).fallbacks(),
    "releases": lambda _, engine: History(engine).releases(limit=5),
    "releases of a knowledge base": lambda _, engine: History(engine).releases(knowledge_base="kb", limit=5),
    "releases of a task": lambda _, engine: History(engine).releases(task="kb.reply", limit=5),
    "a charge": lambda ledger, _: release(ledger, fallback=False),
    "leases": lambda ledger, _: ledger.expire_leases(),
    "a key's events": lambda _, engine: AuditTrail(engine).events(by=["rare"], newest_first=True, limit=5),
    "an actor's events": lambda _, engine: AuditTrail(engine).events(by=["root"], newest_first=True, limit=5),
    "a busy key's events": lambda _, engine: AuditTrail(engine).events(by=["k"], limit=5),
    "a knowledge base's events": lambda _, engine: AuditTrail(engine).events(knowledge_base="other", limit=5),
    "a day's events": lambda _, engine: AuditTrail(engine).events(day=TODAY - timedelta(days=2), limit=5),
    "rare events of a busy knowledge base": lambda _, engine: AuditTrail(engine).events(
        kinds=["exemplars.ingested", "plan.signed"], knowledge_base="kb", newest_first=True, limit=5
    ),
    "kinds of events": lambda _, engine: AuditTrail(engine).events(
        kinds=["charge", "void"], newest_first=True, limit=5
    ),
}


def test_reading_does_not_grow_with_the_ledger(tmp_path: Path, clock: Clock) -> None:
    """Ten times the releases, and as many steps, give or take a level of an index."""
    engine = open_database(f"sqlite:///{tmp_path}/ledger.sqlite")
    ledger = opened(engine, 3, 1e-4, lease_s=60, clock=clock)
    signed(ledger, tasks=[("topic", 10_000), ("reply", 10_000)])
    clock.now -= timedelta(days=1)
    release(ledger, key="rare")
    taken: dict[str, list[int]] = defaultdict(list)
    for more in (40, 360):
        for place in range(more):
            clock.advance(60)
            release(ledger, ("kb.topic", "kb.reply")[place % 2], fallback=place % 3 == 0)
        for name, read in READS.items():
            with steps(engine) as so_far:
                read(ledger, engine)
                taken[name].append(so_far())
    engine.dispose()
    assert {name: steps for name, steps in taken.items() if not 0 < steps[1] <= 1.2 * steps[0] + 2} == {}
