"""A plan to start from, as text."""

from service.gateway.dashboard.templating import render_text
from service.operations.starting_plans import StartingPlan


def starting_text(plan: StartingPlan) -> str:
    """A plan to start from in YAML."""
    return render_text("starting_plan.yaml", plan=plan)
