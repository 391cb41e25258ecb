"""Charges and releases, one caller at a time; races and crashes are in test_ledger_processes.py."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from accounting.ledger import tables
from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import (
    AnswersExhaustedError,
    Charged,
    ChargeStateError,
    IdempotencyConflictError,
    InFlight,
    Ledger,
    Release,
    UnknownChargeError,
    UnknownReleaseError,
)
from tests.accounting.books import signed, wrong
from tests.conftest import Clock

ANSWERS = 3
YEARS_S = 10 * 365 * 86_400


@pytest.fixture
def ledger(engine: sa.Engine, clock: Clock) -> Iterator[Ledger]:
    tables.metadata.create_all(engine)
    yield Ledger(engine, lease_s=60, clock=clock)
    assert wrong(engine) == []


def sign(ledger: Ledger, engine: sa.Engine, knowledge_base: str = "kb", answers: int = ANSWERS) -> SignedTask:
    with engine.begin() as connection:
        ledger.budgets.open(connection, knowledge_base, 3, 1e-4)
    signed(ledger, knowledge_base, tasks=[("topic", answers), ("tone", answers)])
    return ledger.budgets.task(f"{knowledge_base}.topic")


@pytest.fixture
def task(ledger: Ledger, engine: sa.Engine) -> SignedTask:
    return sign(ledger, engine)


def ask(ledger: Ledger, task: SignedTask, query: bytes = b"query") -> Charged:
    outcome = ledger.charge(task, query, key_id="k")
    assert isinstance(outcome, Charged)
    return outcome


def states(ledger: Ledger) -> dict[str, int]:
    return {state: number for state, number in ledger.budgets.statuses()[0].tasks[0].states.items() if number}


def test_a_charge_becomes_a_release_that_answers_every_repeat(ledger: Ledger, task: SignedTask, clock: Clock):
    charged = ask(ledger, task)
    assert charged.answers_left == ledger.answers_left(task) == ANSWERS - 1
    assert charged.lease_until == clock.now + timedelta(seconds=60)
    released = ledger.release(charged.id, {"label": "Wörld", "parts": ("a", 0.1)})
    assert released.answer == {"label": "Wörld", "parts": ["a", 0.1]}
    assert (released.task, released.charge_id, released.created_at) == ("kb.topic@1", charged.id, clock.now)
    clock.advance(10**6)
    assert ledger.charge(task, b"query", key_id="somebody else") == released
    assert ledger.get_release(released.id) == released
    assert ledger.answers_left(task) == ANSWERS - 1


def test_another_task_or_version_is_another_query(ledger: Ledger, task: SignedTask):
    ledger.release(ask(ledger, task).id, {})
    ask(ledger, ledger.budgets.task("kb.tone"))
    signed(ledger, delta=0, tasks=[("topic", 1)])
    ask(ledger, ledger.budgets.task("kb.topic"))
    assert isinstance(ledger.charge(task, b"query", key_id="k"), Release)


def test_exhausted_tasks_still_answer_repeats_and_twins(ledger: Ledger, task: SignedTask):
    released = ledger.release(ask(ledger, task, b"0").id, {})
    ask(ledger, task, b"1")
    ask(ledger, task, b"2")
    with pytest.raises(AnswersExhaustedError, match=r"'topic' .* 1 .* 'kb' .* 3"):
        ledger.charge(task, b"3", key_id="k")
    assert ledger.charge(task, b"0", key_id="k") == released
    assert isinstance(ledger.charge(task, b"1", key_id="k"), InFlight)
    assert ledger.answers_left(task) == 0
    ask(ledger, ledger.budgets.task("kb.tone"), b"3")  # each task has answers of its own


def test_a_dead_holder_loses_its_charge_and_the_query_can_be_asked_again(
    ledger: Ledger, task: SignedTask, clock: Clock
):
    dead = ask(ledger, task)
    clock.advance(59.9)
    assert isinstance(ledger.charge(task, b"query", key_id="k"), InFlight)
    clock.advance(0.1)
    second = ask(ledger, task)
    assert states(ledger) == {"lost": 1, "charged": 1}
    assert second.answers_left == ANSWERS - 2
    with pytest.raises(ChargeStateError, match="lost"):
        ledger.void(dead.id)
    assert ledger.answers_left(task) == ANSWERS - 2


def test_a_slow_holder_may_still_release_what_was_paid(ledger: Ledger, task: SignedTask, clock: Clock):
    slow = ask(ledger, task)
    clock.advance(100)
    twin = ask(ledger, task)
    late = ledger.release(slow.id, {"label": "late"})
    assert ledger.charge(task, b"query", key_id="k") == late  # the twin's charge is open, the answer is there
    clock.advance(1)
    assert ledger.release(twin.id, {"label": "twin"}) == late  # the first answer is the only one
    assert ledger.charge(task, b"query", key_id="k") == late
    assert states(ledger) == {"released": 1, "lost": 1}
    with pytest.raises(ChargeStateError, match="released"):
        ledger.release(slow.id, {"label": "again"})


def test_a_late_release_under_way_is_waited_for(ledger: Ledger, task: SignedTask, clock: Clock, engine: sa.Engine):
    """The holder comes back at the very moment a twin is about to give it up: one answer, one charge."""
    slow = ask(ledger, task)
    clock.advance(100)
    committing, go_on = threading.Event(), threading.Event()

    def hold(_connection: sa.Connection) -> None:
        if threading.current_thread().name.startswith("late holder"):
            committing.set()
            assert go_on.wait(30)

    sa.event.listen(engine, "commit", hold)
    with ThreadPoolExecutor(1, "late holder") as holder, ThreadPoolExecutor(1, "twin") as twin:
        late = holder.submit(ledger.release, slow.id, {})
        assert committing.wait(30)
        asked = twin.submit(ledger.charge, task, b"query", key_id="k")
        time.sleep(0.3)  # enough for the twin to meet the open transaction; were it slower, the test is only easier
        assert not asked.done()
        go_on.set()
        assert asked.result(30) == late.result(30)
    assert states(ledger) == {"released": 1}


def test_an_idempotency_key_stands_for_one_query_of_one_caller(ledger: Ledger, task: SignedTask):
    def charge(query: bytes, *, key: str = "k", on: SignedTask = task):
        return ledger.charge(on, query, key_id=key, idempotency_key="once")

    charged = charge(b"query")
    assert isinstance(charge(b"query"), InFlight)
    released = ledger.release(charged.id, {})
    assert charge(b"query") == released
    with pytest.raises(IdempotencyConflictError):
        charge(b"other")
    with pytest.raises(IdempotencyConflictError):
        charge(b"query", on=ledger.budgets.task("kb.tone"))
    assert isinstance(charge(b"other", key="another caller"), Charged)
    assert ledger.answers_left(task) == ANSWERS - 2


def test_an_idempotency_key_is_bound_by_a_stored_answer_too(ledger: Ledger, task: SignedTask):
    released = ledger.release(ask(ledger, task).id, {})
    assert ledger.charge(task, b"query", key_id="k", idempotency_key="once") == released
    with pytest.raises(IdempotencyConflictError):
        ledger.charge(task, b"other", key_id="k", idempotency_key="once")
    with pytest.raises(ValueError, match="300"):
        ledger.charge(task, b"other", key_id="k", idempotency_key="x" * 301)


def test_unknown_charges_and_releases_are_refused(ledger: Ledger, task: SignedTask):
    for missing in (ledger.void, lambda charge_id: ledger.release(charge_id, {})):
        with pytest.raises(UnknownChargeError):
            missing("no such id")
    with pytest.raises(UnknownReleaseError):
        ledger.get_release("no such id")


def test_an_answer_must_be_json(ledger: Ledger, task: SignedTask):
    charged = ask(ledger, task)
    for answer in ({"p": float("nan")}, {"p": float("inf")}):
        with pytest.raises(ValueError, match="JSON"):
            ledger.release(charged.id, answer)
    assert states(ledger) == {"charged": 1}


def test_what_a_clock_far_ahead_charged_does_not_stay_in_flight(ledger: Ledger, task: SignedTask, clock: Clock) -> None:
    clock.advance(YEARS_S)
    ahead = [ledger.charge(task, query, key_id="k") for query in (b"asked again", b"never again")]
    clock.advance(-YEARS_S)
    again = ledger.charge(task, b"asked again", key_id="k")
    assert isinstance(again, Charged)
    assert again.answers_left == ANSWERS - 3, "it stays spent"
    assert ledger.expire_leases() == 1
    assert [ledger.release(charge.id, {"label": "late"}).charge_id for charge in ahead if isinstance(charge, Charged)]


def test_hosts_whose_clocks_differ_by_less_than_a_lease_see_each_others_charges(
    ledger: Ledger, task: SignedTask, clock: Clock
) -> None:
    clock.advance(59)
    ahead = ledger.charge(task, b"query", key_id="k")
    clock.advance(-59)
    assert isinstance(ahead, Charged)
    assert ledger.charge(task, b"query", key_id="k") == InFlight(
        ahead.id, clock.now + timedelta(seconds=59), ahead.lease_until
    )
    assert ledger.expire_leases() == 0


def test_a_clock_without_a_time_zone_is_refused(ledger: Ledger, task: SignedTask, engine: sa.Engine):
    naive = Ledger(engine, clock=lambda: datetime(2030, 1, 1))
    with pytest.raises(sa.exc.StatementError, match="time zone"):
        naive.charge(task, b"query", key_id="k")
    assert ledger.answers_left(task) == ANSWERS  # the counter went back with its transaction


@pytest.mark.slow
def test_the_states_against_a_model(ledger: Ledger, clock: Clock, engine: sa.Engine):
    """Random histories: the ledger and a few lines of Python agree on every outcome and every count."""
    number = iter(range(10**6))

    class Histories(RuleBasedStateMachine):
        held = Bundle("held")

        @initialize()
        def sign(self) -> None:
            self.task = sign(ledger, engine, f"kb{next(number)}", answers=2)
            self.spent = 0
            self.state: dict[str, str] = {}
            self.lease: dict[str, datetime] = {}
            self.query: dict[str, bytes] = {}
            self.answers: dict[bytes, Release] = {}

        def is_held(self, charge: str) -> bool:
            return self.lease[charge] - timedelta(seconds=2 * 60) <= clock.now < self.lease[charge]

        @rule(target=held, query=st.sampled_from([b"a", b"b", b"c"]))
        def charge(self, query: bytes):
            mine = [charge for charge in self.query if self.query[charge] == query]
            twin = next((charge for charge in mine if self.state[charge] == "charged"), None)
            try:
                outcome = ledger.charge(self.task, query, key_id="k")
            except AnswersExhaustedError:
                assert self.spent == 2
                assert query not in self.answers
                assert twin is None or not self.is_held(twin)
                return multiple()
            if query in self.answers:
                assert outcome == self.answers[query]
                return multiple()
            if twin is not None and self.is_held(twin):
                assert outcome == InFlight(twin, self.lease[twin] - timedelta(seconds=60), self.lease[twin])
                return twin
            assert isinstance(outcome, Charged)
            if twin is not None:
                self.state[twin] = "lost"
            self.spent += 1
            self.state[outcome.id], self.query[outcome.id] = "charged", query
            self.lease[outcome.id] = outcome.lease_until
            assert outcome.lease_until == clock.now + timedelta(seconds=60)
            assert outcome.answers_left == 2 - self.spent
            return outcome.id

        @rule(charge=held)
        def release(self, charge: str) -> None:
            if self.state[charge] in ("charged", "lost"):
                released = ledger.release(charge, {"charge": charge})
                first = self.answers.setdefault(self.query[charge], released)
                assert released == first  # a twin's release, where that was quicker
                self.state[charge] = "released" if first.charge_id == charge else "lost"
            else:
                with pytest.raises(ChargeStateError):
                    ledger.release(charge, {})

        @rule(charge=held)
        def void(self, charge: str) -> None:
            if self.state[charge] == "charged":
                ledger.void(charge)
                self.state[charge] = "voided"
                self.spent -= 1
            else:
                with pytest.raises(ChargeStateError):
                    ledger.void(charge)

        @rule(seconds=st.sampled_from([35, 35, -18_000, 18_000]), expire=st.booleans())
        def wait(self, seconds: int, expire: bool) -> None:
            clock.advance(seconds)  # two short waits outlast a lease, and clocks jump
            if expire:
                dead = [c for c, state in self.state.items() if state == "charged" and not self.is_held(c)]
                assert ledger.expire_leases() >= len(dead)  # charges of earlier histories may be among them
                assert ledger.expire_leases() == 0
                self.state |= dict.fromkeys(dead, "lost")

        @invariant()
        def the_ledger_counts_the_same(self) -> None:
            status = next(s for s in ledger.budgets.statuses() if s.knowledge_base == self.task.knowledge_base).tasks[0]
            assert status.charged == self.spent
            assert {k: v for k, v in status.states.items() if v} == {
                state: list(self.state.values()).count(state) for state in set(self.state.values())
            }

        def teardown(self) -> None:
            assert wrong(engine) == []

    # PostgreSQL takes five times as long, and other tests compare the two.
    examples = 30 if engine.dialect.name == "sqlite" else 10
    patient = settings(max_examples=examples, stateful_step_count=20, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Histories, settings=patient)
