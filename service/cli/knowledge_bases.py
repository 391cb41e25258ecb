"""``dpicl kb``: knowledge bases."""

from __future__ import annotations

from typing import Annotated

import typer

from exemplar_store import default_response_field
from service.cli.forgetting import forget
from service.cli.ingesting import ingest
from service.cli.output import Json, print_json, print_table, records, who
from service.records.new_knowledge_base import weaknesses

app = typer.Typer(no_args_is_help=True, help="Create, fill and prune knowledge bases.")
app.command()(ingest)
app.command()(forget)

Name = Annotated[str, typer.Argument(help="The knowledge base's name.")]


@app.command()
def create(
    name: Name,
    epsilon: Annotated[float, typer.Option(min=0.0, help="Lifetime ε: all plans together promise at most this.")],
    delta: Annotated[float, typer.Option(help="Lifetime δ, well below one over the number of units.")],
    public_size: Annotated[
        int,
        typer.Option(
            min=1,
            help="About how many exemplars it will hold, as a figure you are willing to publish. Sampling "
            "probabilities rest on it; it is never computed from the exemplars.",
        ),
    ],
    field: Annotated[
        list[str] | None, typer.Option(help="A field of exemplars; can be repeated. [default: text, label]")
    ] = None,
    embedded_field: Annotated[
        str | None, typer.Option(help="The field by which exemplars and queries are compared. [default: the first]")
    ] = None,
    response_field: Annotated[
        str | None,
        typer.Option(
            help="The field that text answers come from. Embedding it makes ingest twice as long, and such answers "
            "of nearest_exemplar much faster. '' for none. [default: response, if there is such a field]"
        ),
    ] = None,
    remote_engine: Annotated[
        bool,
        typer.Option(
            "--remote-engine",
            help="Allow a language model outside the deployment to see exemplars in clear text.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, however weak the budget is.")] = False,
) -> None:
    """Create a knowledge base with its lifetime budget, which cannot be changed later."""
    for weakness in weaknesses(epsilon, delta, public_size):
        if not yes and not typer.confirm(f"{weakness} Create it all the same?"):
            raise typer.Exit(1)
    fields = field or ["text", "label"]
    embedded = embedded_field or fields[0]
    response = default_response_field(fields, embedded) if response_field is None else response_field or None
    records().create_knowledge_base(
        name,
        epsilon=epsilon,
        delta=delta,
        public_size=public_size,
        fields=fields,
        embedded_field=embedded,
        response_field=response,
        remote_engine=remote_engine,
        by=who(),
    )
    typer.echo(f"Created {name} with ε = {epsilon:g}, δ = {delta:g} for its lifetime. Fill it with `dpicl kb ingest`.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the knowledge bases."""
    opened = records()
    found = opened.store.list()
    archived = {one.knowledge_base for one in opened.ledger.budgets.statuses() if one.archived_at}
    if json:
        names = ("name", "public_size", "fields", "embedded_field", "response_field", "remote_engine")
        print_json([{name: getattr(k, name) for name in names} | {"archived": k.name in archived} for k in found])
    else:
        rows = [
            (
                k.name,
                k.public_size,
                ", ".join(k.fields),
                "allowed" if k.remote_engine else "forbidden",
                f"{k.created_at:%Y-%m-%d}",
                "archived" if k.name in archived else "",
            )
            for k in found
        ]
        print_table("Knowledge bases", ["name", "public size", "fields", "remote engine", "created", ""], rows)


@app.command("remote-engine")
def remote_engine(
    name: Name,
    allow: Annotated[bool, typer.Option("--allow/--forbid", help="Applies from the next query.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Allow or forbid a language model outside the deployment to see exemplars in clear text.

    What it has seen cannot be taken back.
    """
    opened = records()
    opened.store.get(name)
    if allow and not yes and not typer.confirm(f"Send exemplars of {name} out of the deployment, in clear text?"):
        raise typer.Exit(1)
    opened.allow_remote_engine(name, allow, by=who())
    typer.echo(f"Exemplars of {name} {'may' if allow else 'may not'} be shown to a remote engine")


@app.command()
def archive(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take no plan, cohort or exemplar any more, for ever. Signed plans go on; ledger and audit trail stay."""
    opened = records()
    opened.store.get(name)
    if not yes and not typer.confirm(f"Take no plan, cohort or exemplar for {name} any more, for ever?"):
        raise typer.Exit(1)
    opened.ledger.cohorts.archive(name, by=who())
    typer.echo(f"Archived {name}. `dpicl kb forget` still deletes units, and `dpicl budget` shows what was spent.")
