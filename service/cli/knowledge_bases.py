"""``dpicl kb``: knowledge bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.forgetting import forget
from service.cli.gathering import gathered
from service.cli.ingesting import ingest
from service.cli.output import Json, Name, Yes, actor, agreed, confirmed, print_list, records
from service.commands import knowledge_bases
from service.commands.knowledge_bases import KnowledgeBaseChange, KnowledgeBaseView, NewKnowledgeBase

app = typer.Typer(no_args_is_help=True)
app.command()(ingest)
app.command()(forget)

_SHOWN = {
    "name": typer.Argument(help="The knowledge base's name."),
    "fields": typer.Option("--field", help="A field of exemplars; can be repeated."),
}
_COLUMNS: dict[str, Callable[[KnowledgeBaseView], object]] = {
    "name": lambda view: view.name,
    "public size": lambda view: view.public_size,
    "fields": lambda view: ", ".join(view.fields),
    "remote engine": lambda view: "allowed" if view.remote_engine else "forbidden",
    "created": lambda view: f"{view.created_at:%Y-%m-%d}",
    "": lambda view: "archived" if view.archived_at else "",
}


@app.command()
@gathered
def create(wanted: Annotated[NewKnowledgeBase, _SHOWN], yes: Yes = False) -> None:
    """Create a knowledge base with its lifetime budget, which cannot be changed later."""
    opened = records()
    confirmed(lambda given: knowledge_bases.create(actor(), opened, wanted, given), yes=yes)
    promise = f"ε = {wanted.epsilon:g}, δ = {wanted.delta:g}"
    typer.echo(f"Created {wanted.name} with {promise} for its lifetime. Fill it with `dpicl kb ingest`.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the knowledge bases."""
    print_list("Knowledge bases", knowledge_bases.list_(actor(), records()), _COLUMNS, json=json)


@app.command("remote-engine")
@gathered
def remote_engine(
    name: Name,
    allow: Annotated[bool, typer.Option("--allow/--forbid")],
    yes: Yes = False,
) -> None:
    """Allow or forbid a language model outside the deployment to see exemplars in clear text.

    What it has seen cannot be taken back.

    Args:
        allow: Applies from the next query.
    """
    opened = records()
    knowledge_bases.describe(actor(), opened, name)
    agreed(f"Send exemplars of {name} out of the deployment, in clear text?", yes=yes or not allow)
    knowledge_bases.change(actor(), opened, name, KnowledgeBaseChange(remote_engine=allow))
    typer.echo(f"Exemplars of {name} {'may' if allow else 'may not'} be shown to a remote engine")


@app.command()
def archive(name: Name, yes: Yes = False) -> None:
    """Take no plan, cohort or exemplar any more, for ever. Signed plans go on; ledger and audit trail stay."""
    opened = records()
    confirmed(lambda given: knowledge_bases.archive(actor(), opened, name, given), yes=yes)
    typer.echo(f"Archived {name}. `dpicl kb forget` still deletes units, and `dpicl budget` shows what was spent.")
