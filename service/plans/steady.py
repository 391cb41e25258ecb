"""What people who keep arriving pay for, for ever: the same plan, signed again and again on the newest cohorts.

A cohort is among the newest ``retain`` until so many more are opened. Where plans are signed evenly, that many openings
see as many plans as one cohort's budget holds (:func:`accounting.ledger.amounts.times`), and none is refused.
Everything here is public: the plan, the rate that the admin announces, and the budget that each cohort gets.
"""

from pydantic import BaseModel

from accounting.ledger.amounts import Number, checked, times
from accounting.plan import Plan, PlanError
from service.plans.calibrating import calibrate
from service.plans.preview import TaskPreview, preview

MONTHS = 3.0
"""Between two cohorts, unless somebody says otherwise."""


class SteadyState(BaseModel):
    """What a plan gives if it is signed again for ever.

    Attributes:
        months_a_cohort: from one opening to the next.
        retain: how many of the newest cohorts each plan draws on.
        plans_a_cohort: that one cohort pays for: so many are signed while ``retain`` cohorts are opened.
        answers_a_month: by task; None: any number, from a release that each plan makes once.
    """

    months_a_cohort: float
    retain: int
    plans_a_cohort: int
    answers_a_month: dict[str, float | None]

    @property
    def months_a_plan(self) -> float:
        """From one signature to the next."""
        return self.months_a_cohort * self.retain / self.plans_a_cohort

    @property
    def in_words(self) -> str:
        """For a page or a terminal."""
        answers = ", ".join(
            f"{'any number' if number is None else _rounded(number)} of {name}"
            for name, number in self.answers_a_month.items()
        )
        cohorts = "cohort" if self.retain == 1 else f"{self.retain} cohorts"
        return (
            f"With a cohort every {self.months_a_cohort:g} months, this plan can be signed on the newest {cohorts} "
            f"every {self.months_a_plan:.3g} months, for ever. Answers a month: {answers}."
        )


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


class SteadyPreview(BaseModel):
    """The steady state, and the tasks with the noise that they need then.

    Attributes:
        public_size: of all cohorts that a plan draws on.
        state: how many answers.
        tasks: by name.
    """

    public_size: int
    state: SteadyState
    tasks: dict[str, TaskPreview]


def steady_state(plan: Plan, retain: int, months_a_cohort: float, epsilon: Number, delta: Number) -> SteadyState:
    """How many answers a month a plan gives for ever.

    Args:
        plan: signed again and again.
        retain: how many of the newest cohorts each draws on.
        months_a_cohort: from one opening to the next.
        epsilon: each cohort's lifetime ε.
        delta: each cohort's lifetime δ.

    Raises:
        PlanError: not one plan fits a cohort's budget.
    """
    plans = times(checked(epsilon, delta), checked(plan.budget.epsilon, plan.budget.delta))
    if plans == 0:
        why = (
            f"the plan asks for (ε = {plan.budget.epsilon:g}, δ = {plan.budget.delta:g}), and a cohort has "
            f"(ε = {float(epsilon):g}, δ = {float(delta):g}); sign a smaller plan"
        )
        raise PlanError(("budget", why))
    return SteadyState(
        months_a_cohort=months_a_cohort,
        retain=retain,
        plans_a_cohort=plans,
        answers_a_month={
            name: None if task.once else task.answers * plans / (retain * months_a_cohort)
            for name, task in plan.tasks.items()
        },
    )


def preview_steadily(
    plan: Plan, units_a_month: float, months_a_cohort: float, epsilon: Number, delta: Number
) -> SteadyPreview:
    """What a plan with ``retain`` gives for ever. Takes seconds.

    Args:
        plan: as of :func:`steady_state`.
        units_a_month: new people, each taken for one exemplar, as announced: counting them would tell who they are.
        months_a_cohort: as there.
        epsilon: as there.
        delta: as there.

    Raises:
        PlanError: it does not say ``retain``, its promise cannot be kept, or it fits no cohort's budget.
    """
    if plan.retain is None:
        raise PlanError(("retain", "say how many of the newest cohorts the plan draws on; all of them do not last"))
    state = steady_state(plan, plan.retain, months_a_cohort, epsilon, delta)
    public_size = plan.retain * max(1, round(units_a_month * months_a_cohort))
    return SteadyPreview(public_size=public_size, state=state, tasks=preview(calibrate(plan, public_size)).tasks)
