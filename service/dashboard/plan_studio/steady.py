"""What the plan as written would give for ever, if people keep arriving as the admin announces."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from accounting.plan import PlanError, load_plan
from accounting.privacy.accountants import AccountantsDisagreeError
from service.commands import plans
from service.commands.fields import problems
from service.commands.plans import Arriving
from service.dashboard.computing import Computations
from service.dashboard.pages import Visit
from service.dashboard.plan_studio.desk import Desk
from service.plans.steady import SteadyPreview

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
        plan, arriving = load_plan(visit.field("text")), visit.read(Arriving)
        key = f"{desk.status.cohorts[-1]} {arriving} {plan.model_dump_json()}"
        job = {key: lambda: plans.steady(visit.actor, visit.services.records, plan, arriving)}
        computed = await _computations.results(visit.session.by, job, _WAIT_S, insist=True)
        if computed is None:
            return Lasting(problem="This is still being computed. Ask again in a moment.")
        return Lasting(computed[0].result())
    except ValidationError as error:
        wrong = problems(error, Arriving).items()
        return Lasting(problem=" ".join(f"{field.replace('_', ' ').capitalize()}: {why}" for field, why in wrong))
    except PlanError as error:
        return Lasting(problem=" ".join(f"{problem}." for problem in error.problems))
    except AccountantsDisagreeError as error:
        return Lasting(problem=f"{error}.")
