"""``dpicl cohort`` and ``group``: people and knowledge bases that share a budget, and its rest."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from service.cli.gathering import Commands
from service.cli.output import Json, Name, Yes, confirmed, do, print_list
from service.operations import budgets
from service.operations.budget_report import GroupBudget
from service.operations.budgets import CohortView, NewCohort, NewGroup

cohorts, groups = Commands(), Commands()

_GROUP = typer.Argument(help="The group's name.")
_PAIRS: dict[str, Callable[[Any], object]] = {
    "lifetime ε, δ": lambda budget: f"{budget.lifetime.epsilon:g}, {budget.lifetime.delta:g}",
    "promised": lambda budget: f"{budget.promised.epsilon:g}, {budget.promised.delta:g}",
    "free": lambda budget: f"{budget.free.epsilon:g}, {budget.free.delta:g}",
}
_COHORTS: dict[str, Callable[[CohortView], object]] = {
    "cohort": lambda cohort: cohort.cohort,
    "public size": lambda cohort: cohort.public_size,
    **_PAIRS,
    "plans": lambda cohort: ", ".join(map(str, cohort.plans)),
    "opened": lambda cohort: f"{cohort.opened_at:%Y-%m-%d}",
    "closed": lambda cohort: f"{cohort.closed_at:%Y-%m-%d}" if cohort.closed_at else "",
}
_GROUPS: dict[str, Callable[[GroupBudget], object]] = {
    "group": lambda group: group.group,
    "knowledge bases": lambda group: ", ".join(group.knowledge_bases),
    **_PAIRS,
}


@cohorts.command("open")
def open_(name: Name, wanted: NewCohort, again: bool = False, yes: Yes = False) -> None:
    """Open a cohort: people who arrive for the first time from now on belong to it permanently.

    Let a calendar or a contract decide when to open it, not the people who have arrived.

    Args:
        again: Open it although the newest has the same figures, and this may be a command that ran twice.
    """
    cohort = confirmed(lambda given: do(budgets.open_cohort, name, wanted, given), yes=yes, again=again).cohort
    typer.echo(f"Opened cohort {cohort} of {name} with ε = {wanted.epsilon:g}, δ = {wanted.delta:g} for its lifetime.")


@cohorts.command()
def close(name: Name, number: Annotated[int, typer.Argument()], yes: Yes = False) -> None:
    """Close a cohort permanently: no further plan draws on it. Signed plans go on.

    Args:
        number: The cohort's number.
    """
    confirmed(lambda given: do(budgets.close_cohort, name, number, given), yes=yes)
    typer.echo(f"Closed cohort {number} of {name}")


@cohorts.command("list")
def list_cohorts(name: Name, json: Json = False) -> None:
    """List the cohorts, with the rest of each one's budget. New people belong to the last."""
    print_list(f"Cohorts of {name}", do(budgets.list_cohorts, name), _COHORTS, json=json)


@groups.command()
def create(wanted: Annotated[NewGroup, {"name": _GROUP}], yes: Yes = False) -> None:
    """Make a group, with a budget that can never be changed; knowledge bases are added to it later."""
    made = confirmed(lambda given: do(budgets.make_group, wanted, given), yes=yes)
    typer.echo(f"Made group {made.group} with ε = {wanted.epsilon:g}, δ = {wanted.delta:g} for its lifetime.")


@groups.command()
def add(name: Annotated[str, _GROUP], knowledge_base: Name, yes: Yes = False) -> None:
    """Put a knowledge base into a group permanently, with every plan that it has signed."""
    left = confirmed(lambda given: do(budgets.join_group, name, knowledge_base, given), yes=yes).free
    typer.echo(f"{knowledge_base} is in group {name}, which has ε = {left.epsilon:g}, δ = {left.delta:g} left.")


@groups.command("list")
def list_groups(json: Json = False) -> None:
    """List the groups, with the rest of each one's budget."""
    print_list("Groups", do(budgets.list_groups), _GROUPS, json=json)
