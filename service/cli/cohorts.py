"""``dpicl cohort``: people by when they arrived, each cohort with its own lifetime budget."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.output import Json, print_json, print_table, records, who
from service.plans.budget_report import CohortBudget
from service.records.new_knowledge_base import weaknesses

app = typer.Typer(
    no_args_is_help=True, help="Open, close and list cohorts: people by when they arrived, with budgets of their own."
)

Name = Annotated[str, typer.Argument(help="The knowledge base's name.")]


@app.command("open")
def open_(
    name: Name,
    epsilon: Annotated[float, typer.Option(min=0.0, help="Lifetime ε of the cohort.")],
    delta: Annotated[float, typer.Option(help="Lifetime δ, well below one over the number of units.")],
    public_size: Annotated[
        int, typer.Option(min=1, help="About how many exemplars it will hold, as a figure you are willing to publish.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, however weak the budget is.")] = False,
) -> None:
    """Open a cohort: whoever arrives for the first time from now on belongs to it, for ever.

    Open it when a calendar or a contract says so, not when you see who has arrived.
    """
    for weakness in weaknesses(epsilon, delta, public_size):
        if not yes and not typer.confirm(f"{weakness} Open it all the same?"):
            raise typer.Exit(1)
    number = records().open_cohort(name, epsilon=epsilon, delta=delta, public_size=public_size, by=who())
    typer.echo(f"Opened cohort {number} of {name} with ε = {epsilon:g}, δ = {delta:g} for its lifetime.")


@app.command()
def close(
    name: Name,
    number: Annotated[int, typer.Argument(help="The cohort's number.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Close a cohort: no further plan draws on it, for ever. Plans that are signed go on."""
    if not yes and not typer.confirm(f"Let no further plan draw on cohort {number} of {name}, for ever?"):
        raise typer.Exit(1)
    records().ledger.cohorts.close(name, number, by=who())
    typer.echo(f"Closed cohort {number} of {name}")


@app.command("list")
def list_(name: Name, json: Json = False) -> None:
    """List the cohorts, with what is left of each one's budget. People arrive to the last."""
    opened = records()
    sizes = opened.store.get(name).public_sizes
    found = [CohortBudget.of(one) for one in opened.ledger.budgets.status(name).cohorts]
    if json:
        sized = zip(found, sizes, strict=True)
        print_json([{**one.model_dump(mode="json"), "public_size": size} for one, size in sized])
        return
    rows = [
        (
            one.cohort,
            size,
            *(f"{pair.epsilon:g}, {pair.delta:g}" for pair in (one.lifetime, one.promised, one.free)),
            f"{one.opened_at:%Y-%m-%d}",
            f"{one.closed_at:%Y-%m-%d}" if one.closed_at else "",
        )
        for one, size in zip(found, sizes, strict=True)
    ]
    columns = ["cohort", "public size", "lifetime ε, δ", "promised", "free", "opened", "closed"]
    print_table(f"Cohorts of {name}", columns, rows)
