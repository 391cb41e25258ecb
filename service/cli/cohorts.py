"""``dpicl cohort``: people by when they arrived, each cohort with its own lifetime budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.gathering import gathered
from service.cli.output import PAIRS, Json, Name, Yes, actor, agreed, confirmed, print_list, records
from service.commands import cohorts
from service.commands.cohorts import CohortView, NewCohort

app = typer.Typer(no_args_is_help=True)

_COLUMNS: dict[str, Callable[[CohortView], object]] = {
    "cohort": lambda cohort: cohort.cohort,
    "public size": lambda cohort: cohort.public_size,
    **PAIRS,
    "plans": lambda cohort: ", ".join(map(str, cohort.plans)),
    "opened": lambda cohort: f"{cohort.opened_at:%Y-%m-%d}",
    "closed": lambda cohort: f"{cohort.closed_at:%Y-%m-%d}" if cohort.closed_at else "",
}


@app.command("open")
@gathered
def open_(name: Name, wanted: NewCohort, yes: Yes = False) -> None:
    """Open a cohort: people who arrive for the first time from now on belong to it, for ever.

    Open it when a calendar or a contract says so, not when you see who has arrived.
    """
    opened = records()
    cohort = confirmed(lambda given: cohorts.open_(actor(), opened, name, wanted, given), yes=yes).cohort
    typer.echo(f"Opened cohort {cohort} of {name} with ε = {wanted.epsilon:g}, δ = {wanted.delta:g} for its lifetime.")


@app.command()
@gathered
def close(name: Name, number: Annotated[int, typer.Argument()], yes: Yes = False) -> None:
    """Close a cohort: no further plan draws on it, for ever. Plans that are signed go on.

    Args:
        number: The cohort's number.
    """
    agreed(f"Let no further plan draw on cohort {number} of {name}, for ever?", yes=yes)
    cohorts.close(actor(), records(), name, number)
    typer.echo(f"Closed cohort {number} of {name}")


@app.command("list")
def list_(name: Name, json: Json = False) -> None:
    """List the cohorts, with what is left of each one's budget. People arrive to the last."""
    print_list(f"Cohorts of {name}", cohorts.list_(actor(), records(), name), _COLUMNS, json=json)
