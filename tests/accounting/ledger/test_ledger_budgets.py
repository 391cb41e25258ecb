"""Lifetime budgets and signed plans: exact sums, all or nothing, nothing ever changed."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.budgets import SignedPlan
from accounting.ledger.charges import Charged, Ledger
from accounting.ledger.errors import (
    BudgetExceededError,
    BudgetExistsError,
    KnowledgeBaseArchivedError,
    NotEmptyError,
    PlansChangedError,
    UnknownBudgetError,
    UnknownPlanError,
    UnknownTaskError,
)
from accounting.replay.books import violations
from tests.accounting.books import opened, signed, wrong


@pytest.fixture
def ledger(engine: sa.Engine) -> Ledger:
    return opened(engine, 0.3, 1e-4)


def sign(
    ledger: Ledger, epsilon: float | str = 0.1, delta: float | str = 1e-5, *tasks: tuple[str, int], **options
) -> SignedPlan:
    tasks = tasks or [("topic", 5)]
    return signed(ledger, epsilon=epsilon, delta=delta, tasks=tasks, **options)


def test_three_plans_of_a_tenth_fit_into_three_tenths_and_nothing_more_does(ledger: Ledger, engine: sa.Engine):
    assert 0.1 + 0.1 + 0.1 > 0.3  # with floats, the third plan would not fit
    assert [sign(ledger).version for _ in range(3)] == [1, 2, 3]
    with pytest.raises(BudgetExceededError) as refused:
        sign(ledger, "1e-390", 0)
    for text in ("(ε = 1e-390, δ = 0)", "(ε = 0.3, δ = 0.00003)", "(ε = 0, δ = 0.00007)", "'kb'"):
        assert text in str(refused.value)
    assert wrong(engine) == []
    assert len(ledger.budgets.plans("kb")) == 3


def test_no_rounding_lets_the_last_digit_in(ledger: Ledger):
    sign(ledger, "0.1" + "0" * 60 + "1", 0)
    sign(ledger, "0.1", 0)
    with pytest.raises(BudgetExceededError):
        sign(ledger, "0.1", 0)
    sign(ledger, "0.0" + "9" * 61, 0)
    assert ledger.budgets.statuses()[0].tightest.free_epsilon == 0


def test_a_signature_may_depend_on_the_plans_before_it(ledger: Ledger):
    assert sign(ledger, after_version=0).version == 1
    with pytest.raises(PlansChangedError):
        sign(ledger, after_version=0)
    assert sign(ledger, after_version=1).version == 2
    with ThreadPoolExecutor(4) as pool:
        attempts = [pool.submit(sign, ledger, 0.01, after_version=2) for _ in range(4)]
        assert sum(one.exception() is None for one in attempts) == 1
    assert len(ledger.budgets.plans("kb")) == 3


def test_delta_is_a_budget_of_its_own(ledger: Ledger):
    sign(ledger, 0.1, 1e-4)
    with pytest.raises(BudgetExceededError):
        sign(ledger, 0.1, 1e-9)
    assert sign(ledger, 0.1, 0).version == 2


@pytest.mark.parametrize(
    ("epsilon", "delta", "tasks", "message"),
    [
        (0, 0, [("a", 1)], "epsilon"),
        (-1, 0, [("a", 1)], "epsilon"),
        (float("nan"), 0, [("a", 1)], "nan"),
        (float("inf"), 0, [("a", 1)], "inf"),
        ("three", 0, [("a", 1)], "three"),
        ("1e-999", 0, [("a", 1)], "1e-999"),
        (0.1, 1, [("a", 1)], "delta"),
        (0.1, -1e-9, [("a", 1)], "delta"),
        (0.1, 0, [], "at least one"),
        (0.1, 0, [("a", 0)], "below 1"),
        (0.1, 0, [("a", 1), ("a", 1)], "same name"),
        (0.1, 0, [("a.b", 1)], "task name"),
        (0.1, 0, [("a@1", 1)], "task name"),
        (0.1, 0, [("", 1)], "task name"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_reason(ledger: Ledger, epsilon, delta, tasks, message):
    with pytest.raises(ValueError, match=message):
        signed(ledger, epsilon=epsilon, delta=delta, tasks=tasks)
    assert ledger.budgets.statuses()[0].tasks == ()


def test_a_signed_plan_is_read_back_as_signed(ledger: Ledger):
    plan = sign(ledger, 0.1, 1e-5, ("topic", 5), ("tone", 7))
    assert ledger.budgets.plan("kb", 1) == plan
    assert ledger.budgets.plans("kb") == [plan]
    assert plan.digest == hashlib.sha256(plan.document.encode()).hexdigest()
    assert plan.tasks == (("topic", 5), ("tone", 7))
    assert plan.signed_at.utcoffset() is not None
    assert (plan.epsilon, plan.delta) == (Decimal("0.1"), Decimal("0.00001"))
    with pytest.raises(UnknownPlanError):
        ledger.budgets.plan("kb", 2)


def test_addresses(ledger: Ledger, engine: sa.Engine):
    sign(ledger, 0.1, 0, ("topic", 5), ("tone", 7), document='{"noise": "first"}')
    sign(ledger, 0.1, 0, ("topic", 6))
    assert ledger.budgets.task("kb.topic").address == "kb.topic@2"
    assert ledger.budgets.task("kb.topic@1").answers == 5
    assert ledger.budgets.task("kb.tone").address == "kb.tone@1"  # the newest plan that has it
    tone = ledger.budgets.task("kb.tone")
    assert (tone.knowledge_base, tone.version, tone.document) == ("kb", 1, '{"noise": "first"}')
    for unknown in ("kb.tone@2", "kb.topic@3", "kb.other"):
        with pytest.raises(UnknownTaskError, match=r"kb\.tone@1, kb\.topic@1, kb\.topic@2"):
            ledger.budgets.task(unknown)
    with engine.begin() as connection:
        ledger.budgets.open(connection, "empty", 1, 1e-4)
    with pytest.raises(UnknownTaskError):
        ledger.budgets.task("empty.topic")
    with pytest.raises(UnknownBudgetError, match=r"'kbb'.* 'kb'\?"):
        ledger.budgets.task("kbb.topic")
    with pytest.raises(UnknownBudgetError, match=r"'elsewhere'$"):
        ledger.budgets.task("elsewhere.topic")
    for bad in ("topic", "", "kb.", "kb.topic@", "kb.topic@0", "kb.topic@x", "kb.topic@1@1"):
        with pytest.raises(UnknownTaskError):
            ledger.budgets.task(bad)


def test_a_lifetime_budget_is_permanent(ledger: Ledger, engine: sa.Engine):
    with pytest.raises(BudgetExistsError), engine.begin() as connection:
        ledger.budgets.open(connection, "kb", 99, 1e-4)
    with pytest.raises(UnknownBudgetError):
        signed(ledger, "elsewhere")
    assert ledger.budgets.statuses()[0].tightest.epsilon == Decimal("0.3")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE budgets SET epsilon = '99'",
        "DELETE FROM budgets",
        "UPDATE plans SET epsilon = '0.01'",
        "UPDATE plans SET document = ''",
        "DELETE FROM plans",
        "UPDATE tasks SET answers = 1000000",
        "UPDATE tasks SET charged = charged - 2",
        "UPDATE tasks SET charged = answers + 1",
        "DELETE FROM tasks",
        "UPDATE charges SET state = 'voided'",
        "UPDATE charges SET state = 'charged'",
        "UPDATE charges SET task_id = task_id",
        "DELETE FROM charges",
        "UPDATE releases SET answer = '{}'",
        "DELETE FROM releases",
    ],
)
def test_the_database_refuses_to_rewrite_history(ledger: Ledger, engine: sa.Engine, statement: str):
    sign(ledger)
    charged = ledger.charge(ledger.budgets.task("kb.topic"), b"query", key_id="k")
    ledger.release(charged.id, {"label": "World"})
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.execute(sa.text(statement))
    assert wrong(engine) == []


def test_replay_finds_what_bypassed_the_ledger(ledger: Ledger, engine: sa.Engine):
    """The checker must find each kind of damage in a database without guards."""
    sign(ledger)
    task = ledger.budgets.task("kb.topic")
    ledger.release(ledger.charge(task, b"one", key_id="k").id, {})
    ledger.charge(task, b"two", key_id="k")
    with engine.begin() as connection:
        for guard in tables.GUARDS:
            on = f" ON {guard.table}" if connection.dialect.name == "postgresql" else ""
            connection.execute(sa.text(f"DROP TRIGGER {guard.name}{on}"))
    for damage in (
        "UPDATE tasks SET charged = 1",
        "UPDATE plans SET epsilon = '0.31'",
        "UPDATE plans SET document = 'other'",
        "UPDATE charges SET state = 'released'",
        "UPDATE charges SET state = 'lost' WHERE state = 'released'",
        "DELETE FROM releases",
        "UPDATE charges SET query_digest = task_id"
        if engine.dialect.name == "sqlite"
        else "UPDATE releases SET query_digest = ''",
    ):
        with engine.connect() as connection:
            assert violations(connection) == []
            connection.execute(sa.text(damage))
            assert len(violations(connection)) >= 1, damage
            connection.rollback()


def test_an_archived_knowledge_base_takes_nothing_new_and_keeps_what_it_signed(ledger: Ledger, engine: sa.Engine):
    sign(ledger)
    with engine.begin() as connection:
        ledger.cohorts.open(connection, "kb", 2, 1, 0, public_size=9, by="ana")
    ledger.cohorts.archive("kb", by="ana")
    status = ledger.budgets.statuses()[0]
    assert status.archived_at is not None
    assert (status.open_cohorts, len(status.tasks), status.tightest.number) == ((), 1, 2)
    with engine.connect() as connection:

        def refused(act: Callable[[], object]) -> None:
            with pytest.raises(KnowledgeBaseArchivedError):
                act()

        refused(lambda: ledger.cohorts.check_open(connection, "kb"))
        refused(lambda: ledger.cohorts.open(connection, "kb", 3, 1, 0, public_size=9, by="ana"))
        refused(lambda: ledger.budgets.has(connection, "kb", 0.3, 1e-4))
    refused(lambda: sign(ledger))
    refused(lambda: sign(ledger, cohorts=[1]))
    refused(lambda: ledger.cohorts.check_free("kb", [1], epsilon=0.1, delta=0))
    refused(lambda: ledger.cohorts.not_closed("kb"))
    refused(lambda: ledger.cohorts.archive("kb", by="ana"))
    refused(lambda: ledger.cohorts.close("kb", 2, by="ana"))
    with pytest.raises(UnknownBudgetError):
        ledger.cohorts.archive("nowhere", by="ana")
    assert isinstance(ledger.charge(ledger.budgets.task("kb.topic"), b"query", key_id="k"), Charged)
    assert wrong(engine) == []


def test_the_database_deletes_no_budget_that_was_promised(ledger: Ledger, engine: sa.Engine):
    with engine.begin() as connection:
        ledger.budgets.open(connection, "typo", 1, 1e-4)
    sign(ledger)
    for table in (tables.cohorts, tables.budgets):
        with pytest.raises(sa.exc.IntegrityError, match="deleted"), engine.begin() as connection:
            connection.execute(sa.delete(table).where(table.c.knowledge_base == "kb"))
    with pytest.raises(NotEmptyError), engine.begin() as connection:
        ledger.budgets.delete(connection, "kb", "root")
    with engine.begin() as connection:
        ledger.budgets.delete(connection, "typo", "root")
    assert [one.knowledge_base for one in ledger.budgets.statuses()] == ["kb"]
    assert wrong(engine) == []
