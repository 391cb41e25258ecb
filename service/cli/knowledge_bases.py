"""``dpicl kb``: knowledge bases, and units that leave them."""

from collections.abc import Callable
from typing import Annotated

import typer

from exemplar_store import Layout
from service.cli.gathering import Commands
from service.cli.ingesting import SqlQuery, TextFormat, UnitId, ingest, open_source
from service.cli.output import Json, Name, Yes, agreed, confirmed, do, print_list
from service.commands import exemplars, knowledge_bases
from service.commands.knowledge_bases import KnowledgeBaseChange, KnowledgeBaseView, NewKnowledgeBase

app = Commands()
app.command()(ingest)

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
def create(wanted: Annotated[NewKnowledgeBase, _SHOWN], yes: Yes = False) -> None:
    """Create a knowledge base with its lifetime budget, which cannot be changed later."""
    confirmed(lambda given: do(knowledge_bases.create, wanted, given), yes=yes)
    promise = f"ε = {wanted.epsilon:g}, δ = {wanted.delta:g}"
    typer.echo(f"Created {wanted.name} with {promise} for its lifetime. Fill it with `dpicl kb ingest`.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the knowledge bases."""
    print_list("Knowledge bases", do(knowledge_bases.list_), _COLUMNS, json=json)


@app.command("remote-engine")
def remote_engine(name: Name, allow: Annotated[bool, typer.Option("--allow/--forbid")], yes: Yes = False) -> None:
    """Allow or forbid a language model outside the deployment to see exemplars in clear text.

    What it has seen cannot be taken back.

    Args:
        allow: Applies from the next query.
    """
    do(knowledge_bases.describe, name)
    agreed(f"Send exemplars of {name} out of the deployment, in clear text?", yes=yes or not allow)
    do(knowledge_bases.change, name, KnowledgeBaseChange(remote_engine=allow))
    typer.echo(f"Exemplars of {name} {'may' if allow else 'may not'} be shown to a remote engine")


@app.command()
def forget(
    name: Name,
    unit: Annotated[str | None, typer.Argument()] = None,
    listed: Annotated[str | None, typer.Option(metavar="SOURCE")] = None,
    *,
    sql: SqlQuery,
    unit_id: UnitId = "unit_id",
    yes: Yes = False,
) -> None:
    """Delete units: all their exemplars. Answers released before stay; the privacy guarantee covers them.

    Args:
        unit: The unit's id.
        listed: Forget all units of a file or an address, as of `kb ingest`.
    """
    if unit is not None:
        if listed or sql.query:
            raise ValueError("name one unit, or a list of them, not both")
        agreed(f"Delete every exemplar of unit {unit!r} from {name}?", yes=yes)
        typer.echo(f"Deleted {do(exemplars.forget, name, unit)} exemplars")
        return
    with open_source(listed, sql, TextFormat()) as source:
        units = {row.unit_id for row in source.rows(Layout((), unit_id))}
    agreed(f"Delete every exemplar of {len(units)} units from {name}?", yes=yes)
    deleted, unknown = do(exemplars.forget_many, name, units)
    typer.echo(f"Deleted {deleted} exemplars of {len(units) - unknown} units; {unknown} were not there")


@app.command()
def archive(name: Name, yes: Yes = False) -> None:
    """Take no plan, cohort or exemplar any more, for ever. Signed plans go on; ledger and audit trail stay."""
    confirmed(lambda given: do(knowledge_bases.archive, name, given), yes=yes)
    typer.echo(f"Archived {name}. `dpicl kb forget` still deletes units, and `dpicl budget` shows what was spent.")
