"""``dpicl group``: knowledge bases that may hold the same people share one budget."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from service.cli.output import Json, print_json, print_table, records, who
from service.plans.budget_report import GroupBudget
from service.records.new_knowledge_base import NAME

app = typer.Typer(no_args_is_help=True, help="Let knowledge bases that may hold the same people share one budget.")

Name = Annotated[str, typer.Argument(help="The group's name.")]


@app.command()
def create(
    name: Name,
    epsilon: Annotated[float, typer.Option(min=0.0, help="Lifetime ε of whoever is in all of its knowledge bases.")],
    delta: Annotated[float, typer.Option(help="Lifetime δ of whoever is in all of them.")],
) -> None:
    """Make a group, with a budget that can never be changed. Then put knowledge bases into it."""
    if not re.fullmatch(NAME, name):
        raise ValueError(f"name: 1 to 64 small letters, digits, - and _, not {name!r}")
    records().ledger.groups.open(name, epsilon, delta, by=who())
    typer.echo(f"Made group {name} with ε = {epsilon:g}, δ = {delta:g} for its lifetime.")


@app.command()
def add(
    name: Name,
    knowledge_base: Annotated[str, typer.Argument(help="The knowledge base's name.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Put a knowledge base into a group, for ever, with every plan that it has signed."""
    if not yes and not typer.confirm(f"Let {knowledge_base} share the budget of group {name}, for ever?"):
        raise typer.Exit(1)
    groups = records().ledger.groups
    groups.join(name, knowledge_base, by=who())
    left = GroupBudget.of(groups.status(name)).free
    typer.echo(f"{knowledge_base} is in group {name}, which has ε = {left.epsilon:g}, δ = {left.delta:g} left.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the groups, with what is left of each one's budget."""
    found = [GroupBudget.of(one) for one in records().ledger.groups.statuses()]
    if json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [
        (
            one.group,
            ", ".join(one.knowledge_bases),
            *(f"{pair.epsilon:g}, {pair.delta:g}" for pair in (one.lifetime, one.promised, one.free)),
        )
        for one in found
    ]
    print_table("Groups", ["group", "knowledge bases", "lifetime ε, δ", "promised", "free"], rows)
