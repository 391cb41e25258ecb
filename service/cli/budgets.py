"""``dpicl budget``, ``cohort`` and ``group``: what was promised, spent, and is left, and of whom."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from service.answering.plans.budget_report import CohortBudget, GroupBudget, KnowledgeBaseBudget, TaskBudget
from service.cli.ask import Service, checked, connect
from service.cli.gathering import Commands
from service.cli.output import Json, Name, Yes, agreed, confirmed, do, print_engine, print_json, print_list, print_table
from service.operations import budgets
from service.operations.budgets import BudgetsView, CohortView, NewCohort, NewGroup

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
_TASKS: dict[str, Callable[[TaskBudget], object]] = {
    "task": lambda task: task.task,
    "answers": lambda task: "any number" if task.answers is None else task.answers,
    "spent": lambda task: task.spent,
    "left": lambda task: _left(task),
    "lost": lambda task: task.lost,
}


def budget(
    url: str | None = None,
    key: Annotated[str, typer.Option(envvar="DPICL_API_KEY")] = "",
    json: Json = False,
) -> None:
    """Show every knowledge base's budget and the answers left to each task.

    A lifetime budget is *promised* to signed plans or still *free*. *ε so far* is what the charges cost to date; what
    counts is the promised ε of the plan.

    Args:
        url: Ask a running service instead of the database.
        key: API key, with --url.
    """
    if url is None:
        read = do(budgets.read)
    else:
        with connect(Service(url=url, key=key)) as client:
            read = BudgetsView.model_validate(checked(client.get("/v1/budgets"), "knowledge_bases"))
    report = read.knowledge_bases
    if json:
        print_json(report)
        return
    if not report:
        typer.echo("There is no knowledge base yet: create one with `dpicl kb create`.")
    for item in report:
        rows = [
            [*(show(task) for show in _TASKS.values()), f"{plan.epsilon_spent:.3g}/{plan.promised.epsilon:g}"]
            for plan in item.plans
            for task in plan.tasks
        ]
        if item.group:
            typer.echo(f"{item.knowledge_base} shares the budget of group {item.group} (see `dpicl group list`).")
        if len(item.cohorts) > 1:
            for cohort in item.cohorts:
                closed = f"; closed {cohort.closed_at:%Y-%m-%d}" if cohort.closed_at else ""
                typer.echo(f"Cohort {cohort.cohort}: {_amounts(cohort)}{closed}")
        print_table(f"{item.knowledge_base}: {_amounts(item)}", [*_TASKS, "plan's ε so far"], rows)
    print_engine(read.engine)


def _amounts(budget: KnowledgeBaseBudget | CohortBudget) -> str:
    return (
        f"lifetime ε = {budget.lifetime.epsilon:g}, δ = {budget.lifetime.delta:g}; "
        f"promised ε = {budget.promised.epsilon:g}; free ε = {budget.free.epsilon:g}, δ = {budget.free.delta:g}"
    )


def _left(task: TaskBudget) -> object:
    return f"release {task.one_release}" if task.left is None else task.left


@cohorts.command("open")
def open_(name: Name, wanted: NewCohort, yes: Yes = False) -> None:
    """Open a cohort: people who arrive for the first time from now on belong to it, for ever.

    Open it when a calendar or a contract says so, not when you see who has arrived.
    """
    cohort = confirmed(lambda given: do(budgets.open_cohort, name, wanted, given), yes=yes).cohort
    typer.echo(f"Opened cohort {cohort} of {name} with ε = {wanted.epsilon:g}, δ = {wanted.delta:g} for its lifetime.")


@cohorts.command()
def close(name: Name, number: Annotated[int, typer.Argument()], yes: Yes = False) -> None:
    """Close a cohort: no further plan draws on it, for ever. Plans that are signed go on.

    Args:
        number: The cohort's number.
    """
    agreed(f"Let no further plan draw on cohort {number} of {name}, for ever?", yes=yes)
    do(budgets.close_cohort, name, number)
    typer.echo(f"Closed cohort {number} of {name}")


@cohorts.command("list")
def list_cohorts(name: Name, json: Json = False) -> None:
    """List the cohorts, with what is left of each one's budget. People arrive to the last."""
    print_list(f"Cohorts of {name}", do(budgets.list_cohorts, name), _COHORTS, json=json)


@groups.command()
def create(wanted: Annotated[NewGroup, {"name": _GROUP}]) -> None:
    """Make a group, with a budget that can never be changed. Then put knowledge bases into it."""
    made = do(budgets.make_group, wanted)
    typer.echo(f"Made group {made.group} with ε = {wanted.epsilon:g}, δ = {wanted.delta:g} for its lifetime.")


@groups.command()
def add(name: Annotated[str, _GROUP], knowledge_base: Name, yes: Yes = False) -> None:
    """Put a knowledge base into a group, for ever, with every plan that it has signed."""
    agreed(f"Let {knowledge_base} share the budget of group {name}, for ever?", yes=yes)
    left = do(budgets.join_group, name, knowledge_base).free
    typer.echo(f"{knowledge_base} is in group {name}, which has ε = {left.epsilon:g}, δ = {left.delta:g} left.")


@groups.command("list")
def list_groups(json: Json = False) -> None:
    """List the groups, with what is left of each one's budget."""
    print_list("Groups", do(budgets.list_groups), _GROUPS, json=json)
