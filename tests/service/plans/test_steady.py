"""What a plan is said to give for ever is what the ledger lets through, and not one plan more."""

from decimal import Decimal
from fractions import Fraction
from math import floor

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger import tables
from accounting.ledger.amounts import checked, rest, times
from accounting.ledger.charges import Ledger
from accounting.ledger.errors import BudgetExceededError
from accounting.plan import PlanError, calibrate_plan, load_plan
from service.plans.preview import preview
from service.plans.steady import preview_steadily, steady_state
from tests.service.conftest import PLAN

amount = st.decimals("0.001", "30", places=3)


@given(amount, amount, amount, amount)
def test_a_plan_fits_as_often_as_its_exact_sums_do(
    epsilon: Decimal, delta: Decimal, each: Decimal, delta_each: Decimal
):
    lifetime, asked = checked(epsilon, delta / 1000), checked(each, delta_each / 1000)
    most = times(lifetime, asked)
    assert min(rest(lifetime, [asked] * most)[1]) >= 0
    assert min(rest(lifetime, [asked] * (most + 1))[1]) < 0


@pytest.mark.parametrize(("lifetime", "retain"), [(8, 4), (8, 3), (2, 4), (4.4, 1), (14, 3)])
def test_the_ledger_lets_it_through_for_ever_and_no_further_plan(lifetime: float, retain: int) -> None:
    plan = load_plan(PLAN.replace("epsilon: 4", "epsilon: 2"))
    state = steady_state(plan, retain, 3, lifetime, 0.999)
    database = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    tables.metadata.create_all(database)
    ledger = Ledger(database)

    def sign() -> None:
        ledger.budgets.sign(
            "kb",
            epsilon=plan.budget.epsilon,
            delta=plan.budget.delta,
            accountant="pld",
            document=str(len(ledger.budgets.plans("kb"))),
            tasks=[("colour", 20)],
            signed_by="ana",
            cohorts=ledger.cohorts.not_closed("kb")[-retain:],
        )

    with database.begin() as connection:
        ledger.budgets.open(connection, "kb", lifetime, 0.999)
    signed, rounds = 0, 5
    for opened in range(1, rounds * retain + 1):
        while floor(signed * Fraction(retain, state.plans_a_cohort)) < opened:  # evenly
            sign()
            signed += 1
        if opened < rounds * retain:
            with database.begin() as connection:
                ledger.cohorts.open(connection, "kb", opened + 1, lifetime, 0.999, public_size=1, by="ana")
    answers = sum(task.answers for task in ledger.budgets.status("kb").tasks)
    assert answers == pytest.approx(state.answers_a_month["colour"] * 3 * retain * rounds, rel=1e-12)
    with pytest.raises(BudgetExceededError):
        sign()


def test_the_noise_is_that_of_the_cohorts_to_come() -> None:
    plan = load_plan(PLAN + "retain: 4\n")
    seen = preview_steadily(plan, units_a_month=50, months_a_cohort=3, epsilon=16, delta=1e-3)
    assert (seen.public_size, seen.state.plans_a_cohort, seen.state.months_a_plan) == (600, 4, 3)
    assert seen.state.answers_a_month == {"colour": pytest.approx(20 / 3)}
    assert seen.tasks == preview(calibrate_plan(plan, 600)).tasks
    assert "newest 4 cohorts every 3 months, for ever. Answers a month: 6.67 of colour." in seen.state.in_words


def test_what_cannot_last_is_refused() -> None:
    with pytest.raises(PlanError, match="retain: say how many"):
        preview_steadily(load_plan(PLAN), 50, 3, epsilon=3, delta=1e-3)
    with pytest.raises(PlanError, match=r"asks for \(ε = 4, δ = 0.0001\), and a cohort has \(ε = 3, δ = 0.001\)"):
        preview_steadily(load_plan(PLAN + "retain: 4\n"), 50, 3, epsilon=3, delta=1e-3)
