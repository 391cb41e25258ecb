"""``dpicl kb``: knowledge bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.forgetting import forget
from service.cli.ingesting import ingest
from service.cli.output import Json, Name, Yes, actor, agreed, confirmed, option, print_list, read, records
from service.commands import knowledge_bases
from service.commands.knowledge_bases import KnowledgeBaseChange, KnowledgeBaseView, NewKnowledgeBase

app = typer.Typer(no_args_is_help=True, help="Create, fill and prune knowledge bases.")
app.command()(ingest)
app.command()(forget)

_COLUMNS: dict[str, Callable[[KnowledgeBaseView], object]] = {
    "name": lambda view: view.name,
    "public size": lambda view: view.public_size,
    "fields": lambda view: ", ".join(view.fields),
    "remote engine": lambda view: "allowed" if view.remote_engine else "forbidden",
    "created": lambda view: f"{view.created_at:%Y-%m-%d}",
    "": lambda view: "archived" if view.archived_at else "",
}


@app.command()
def create(
    name: Name,
    epsilon: Annotated[float, option(NewKnowledgeBase, "epsilon")],
    delta: Annotated[float, option(NewKnowledgeBase, "delta")],
    public_size: Annotated[int, option(NewKnowledgeBase, "public_size")],
    field: Annotated[
        list[str] | None, typer.Option(help="A field of exemplars; can be repeated. [default: text, label]")
    ] = None,
    embedded_field: Annotated[str | None, option(NewKnowledgeBase, "embedded_field")] = None,
    response_field: Annotated[str | None, option(NewKnowledgeBase, "response_field")] = None,
    remote_engine: Annotated[bool, option(NewKnowledgeBase, "remote_engine", "--remote-engine")] = False,
    yes: Yes = False,
) -> None:
    """Create a knowledge base with its lifetime budget, which cannot be changed later."""
    wanted = read(
        NewKnowledgeBase,
        name=name,
        epsilon=epsilon,
        delta=delta,
        public_size=public_size,
        fields=field,
        embedded_field=embedded_field,
        response_field=response_field,
        remote_engine=remote_engine,
    )
    opened = records()
    confirmed(lambda given: knowledge_bases.create(actor(), opened, wanted, given), yes=yes)
    typer.echo(f"Created {name} with ε = {epsilon:g}, δ = {delta:g} for its lifetime. Fill it with `dpicl kb ingest`.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the knowledge bases."""
    print_list("Knowledge bases", knowledge_bases.list_(actor(), records()), _COLUMNS, json=json)


@app.command("remote-engine")
def remote_engine(
    name: Name,
    allow: Annotated[bool, typer.Option("--allow/--forbid", help="Applies from the next query.")],
    yes: Yes = False,
) -> None:
    """Allow or forbid a language model outside the deployment to see exemplars in clear text.

    What it has seen cannot be taken back.
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
