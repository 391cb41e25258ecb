"""``dpicl group``: knowledge bases that may hold the same people share one budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.gathering import gathered
from service.cli.output import PAIRS, Json, Name, Yes, actor, agreed, print_list, records
from service.commands import groups
from service.commands.groups import NewGroup
from service.plans.budget_report import GroupBudget

app = typer.Typer(no_args_is_help=True)

_NAME = typer.Argument(help="The group's name.")
_COLUMNS: dict[str, Callable[[GroupBudget], object]] = {
    "group": lambda group: group.group,
    "knowledge bases": lambda group: ", ".join(group.knowledge_bases),
    **PAIRS,
}


@app.command()
@gathered
def create(wanted: Annotated[NewGroup, {"name": _NAME}]) -> None:
    """Make a group, with a budget that can never be changed. Then put knowledge bases into it."""
    made = groups.make(actor(), records(), wanted)
    typer.echo(f"Made group {made.group} with ε = {wanted.epsilon:g}, δ = {wanted.delta:g} for its lifetime.")


@app.command()
def add(name: Annotated[str, _NAME], knowledge_base: Name, yes: Yes = False) -> None:
    """Put a knowledge base into a group, for ever, with every plan that it has signed."""
    agreed(f"Let {knowledge_base} share the budget of group {name}, for ever?", yes=yes)
    left = groups.join(actor(), records(), name, knowledge_base).free
    typer.echo(f"{knowledge_base} is in group {name}, which has ε = {left.epsilon:g}, δ = {left.delta:g} left.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the groups, with what is left of each one's budget."""
    print_list("Groups", groups.list_(actor(), records()), _COLUMNS, json=json)
