"""``dpicl budget``: the budgets promised, spent and left; an analyst's command, which reads the same as REST shows."""

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from service.cli.ask import Service, checked, connect
from service.cli.lazy import MissingExtraError
from service.cli.output import Json, do, print_engine, print_json, print_table

_ASK_SERVICE = "set DPICL_URL and DPICL_API_KEY to ask a running service"
_TASKS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "task": lambda task: task["task"],
    "answers": lambda task: "any number" if task["answers"] is None else task["answers"],
    "spent": lambda task: task["spent"],
    "left": lambda task: f"release {task['one_release']}" if task["left"] is None else task["left"],
    "open": lambda task: task["open"],
    "lost": lambda task: task["lost"],
}


def budget(
    url: Annotated[str | None, typer.Option(envvar="DPICL_URL")] = None,
    key: Annotated[str, typer.Option(envvar="DPICL_API_KEY")] = "",
    json: Json = False,
) -> None:
    """Show every knowledge base's budget and the answers left to each task.

    A lifetime budget is *promised* to signed plans or still *free*. *ε so far* is what the charges cost to date; what
    counts is the promised ε of the plan.

    Args:
        url: Address of a running service to ask. Without one, the command reads the database, as only the service's
            machine can.
        key: API key for that service.
    """
    read = _of_database() if url is None else _of_service(url, key)
    report = read["knowledge_bases"]
    if json:
        print_json(report)
        return
    if not report:
        typer.echo("There is no knowledge base yet: create one with `dpicl kb create`.")
    for item in report:
        name = item["knowledge_base"]
        rows = [
            [*(show(task) for show in _TASKS.values()), f"{plan['epsilon_spent']:.3g}/{plan['promised']['epsilon']:g}"]
            for plan in item["plans"]
            for task in plan["tasks"]
        ]
        if "group" in item:
            typer.echo(f"{name} shares the budget of group {item['group']} (see `dpicl group list`).")
        if len(item["cohorts"]) > 1:
            for cohort in item["cohorts"]:
                closed = f"; closed {cohort['closed_at'][:10]}" if cohort["closed_at"] else ""
                typer.echo(f"Cohort {cohort['cohort']}: {_amounts(cohort)}{closed}")
        print_table(f"{name}: {_amounts(item)}", [*_TASKS, "plan's ε so far"], rows)
    print_engine(read["engine"])


def _of_database() -> dict[str, Any]:
    try:
        from service.operations import budgets
        from service.records.database import MissingDatabaseError
    except ModuleNotFoundError as error:
        needed = f"without --url this command reads a database, which needs {error.name}: {_ASK_SERVICE}, or"
        raise MissingExtraError(needed, "server") from None
    try:
        return do(budgets.read).model_dump(mode="json")
    except MissingDatabaseError as error:
        raise ValueError(f"{error}; or {_ASK_SERVICE}") from None


def _of_service(url: str, key: str) -> dict[str, Any]:
    if not key.strip():
        named = "DPICL_URL" if os.environ.get("DPICL_URL") == url else "--url"
        raise ValueError(
            f"{named} names a service, which needs an API key of any role: set DPICL_API_KEY, or pass --key (an admin "
            f"makes one: dpicl keys create). Without {named} the command reads the database, on the service's machine"
        )
    with connect(Service(url=url, key=key)) as client:
        return checked(client.get("/v1/budgets"), "knowledge_bases", "engine")


def _amounts(budget: Mapping[str, Any]) -> str:
    lifetime, promised, free = budget["lifetime"], budget["promised"], budget["free"]
    return (
        f"lifetime ε = {lifetime['epsilon']:g}, δ = {lifetime['delta']:g}; "
        f"promised ε = {promised['epsilon']:g}; free ε = {free['epsilon']:g}, δ = {free['delta']:g}"
    )
