"""What the plan as written would give for ever, if people keep arriving as the admin announces."""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.plan import PlanError, load_plan
from accounting.privacy.accountants import AccountantsDisagreeError
from service.dashboard.computing import Computations
from service.dashboard.pages import Visit
from service.dashboard.plan_studio.desk import Desk
from service.plans.steady import Arrivals, SteadyPreview, preview_steadily

_WAIT_S = 20.0
_computations = Computations("steady state", kept=20)


@dataclass(frozen=True)
class Lasting:
    """What came of it: a steady state, or a problem."""

    steady: SteadyPreview | None = None
    problem: str | None = None


async def lasting(visit: Visit, desk: Desk) -> Lasting:
    """Compute it from the form: the plan, new people a month, and months from one cohort to the next."""
    try:
        plan = load_plan(visit.field("text"))
        newest = desk.status.cohorts[-1]
        arrivals = Arrivals(
            _positive(visit.field("units_a_month")), _positive(visit.field("months")), newest.epsilon, newest.delta
        )
        key = f"{arrivals} {plan.model_dump_json()}"
        job = {key: lambda: preview_steadily(plan, arrivals)}
        computed = await _computations.results(visit.session.by, job, _WAIT_S, insist=True)
        if computed is None:
            return Lasting(problem="This is still being computed. Ask again in a moment.")
        return Lasting(computed[0].result())
    except PlanError as error:
        return Lasting(problem=" ".join(f"{problem}." for problem in error.problems))
    except (ValueError, AccountantsDisagreeError) as error:
        return Lasting(problem=f"{error}.")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-3 <= value <= 1e9 or math.isnan(value):
        raise ValueError("People a month and months a cohort are numbers above 0, such as 300 and 3")
    return value
