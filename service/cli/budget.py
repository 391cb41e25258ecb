"""``dpicl budget``: what was promised, spent, and is left."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.ask import Service, checked, connect
from service.cli.gathering import gathered
from service.cli.output import Json, actor, print_engine, print_json, print_table, records
from service.commands import budgets
from service.commands.budgets import BudgetsView
from service.plans.budget_report import TaskBudget


@gathered
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
        read = budgets.read(actor(), records())
    else:
        with connect(Service(url=url, key=key)) as client:
            read = BudgetsView.model_validate(checked(client.get("/v1/budgets")))
    report = read.knowledge_bases
    if json:
        print_json([item.model_dump() for item in report])
        return
    if not report:
        typer.echo("There is no knowledge base yet: create one with `dpicl kb create`.")
    for item in report:
        title = (
            f"{item.knowledge_base}: lifetime ε = {item.lifetime.epsilon:g}, δ = {item.lifetime.delta:g}; "
            f"promised ε = {item.promised.epsilon:g}; free ε = {item.free.epsilon:g}, δ = {item.free.delta:g}"
        )
        rows = [
            (
                task.task,
                "none" if not task.asked else "any number" if task.answers is None else task.answers,
                task.spent,
                _left(task),
                task.lost,
                f"{plan.epsilon_spent:.3g}/{plan.promised.epsilon:g}",
            )
            for plan in item.plans
            for task in plan.tasks
        ]
        if item.group:
            typer.echo(f"{item.knowledge_base} shares the budget of group {item.group} (see `dpicl group list`).")
        if len(item.cohorts) > 1:
            for cohort in item.cohorts:
                closed = f"; closed {cohort.closed_at:%Y-%m-%d}" if cohort.closed_at else ""
                typer.echo(
                    f"Cohort {cohort.cohort}: lifetime ε = {cohort.lifetime.epsilon:g}; "
                    f"promised ε = {cohort.promised.epsilon:g}; "
                    f"free ε = {cohort.free.epsilon:g}, δ = {cohort.free.delta:g}{closed}"
                )
        print_table(title, ["task", "answers", "spent", "left", "lost", "plan's ε so far"], rows)
    print_engine(read.engine)


def _left(task: TaskBudget) -> object:
    if task.rehearsal is None or task.rehearsal.accuracy is None:
        return f"release {task.one_release}" if task.left is None else task.left
    low, high = task.rehearsal.accuracy
    return f"{100 * low:.0f} to {100 * high:.0f} % right"
