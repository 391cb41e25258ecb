"""``dpicl kb``: knowledge bases."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from exemplar_store import IngestReport, Layout, default_response_field
from exemplar_store.rows import READERS
from service.cli.output import Json, print_json, print_table, records
from service.records.new_knowledge_base import weaknesses

app = typer.Typer(no_args_is_help=True, help="Create, fill and prune knowledge bases.")

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
        by=getpass.getuser(),
    )
    typer.echo(f"Created {name} with ε = {epsilon:g}, δ = {delta:g} for its lifetime. Fill it with `dpicl kb ingest`.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the knowledge bases."""
    found = records().store.list()
    if json:
        names = ("name", "public_size", "fields", "embedded_field", "response_field", "remote_engine")
        print_json([{name: getattr(k, name) for name in names} for k in found])
    else:
        rows = [
            (
                k.name,
                k.public_size,
                ", ".join(k.fields),
                "allowed" if k.remote_engine else "forbidden",
                f"{k.created_at:%Y-%m-%d}",
            )
            for k in found
        ]
        print_table("Knowledge bases", ["name", "public size", "fields", "remote engine", "created"], rows)


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
    opened.allow_remote_engine(name, allow, by=getpass.getuser())
    typer.echo(f"Exemplars of {name} {'may' if allow else 'may not'} be shown to a remote engine")


@app.command()
def ingest(
    name: Name,
    file: Annotated[Path, typer.Argument(help="JSON Lines (.jsonl, .ndjson) or CSV with a header.", exists=True)],
    unit_id: Annotated[
        str, typer.Option(help="The column that names the privacy unit: the person or customer protected as a whole.")
    ] = "unit_id",
    json: Json = False,
) -> None:
    """Add exemplars: all rows of the file, or none. Running it again is harmless.

    An error names a bad row's line. Columns that are not fields of the knowledge base are ignored, and listed.
    """
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"{file.name}: name it .jsonl, .ndjson or .csv, so that its format is known")
    opened = records()
    layout = Layout(opened.store.get(name).fields, unit_id)
    with file.open("rb") as stream:
        total = sum(1 for _ in reader(stream, layout))  # a bad row is found before the embedder is loaded

    from service.embedding.embedder import Embedder, cores

    embedder = Embedder(threads=cores())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with file.open("rb") as stream, Progress(*columns, disable=json) as bar:
        task = bar.add_task(f"Embedding {file.name}", total=total)
        report = opened.ingest(
            name,
            reader(stream, layout),
            embedder.embed,
            by=getpass.getuser(),
            progress=lambda done: bar.update(task, completed=done),
        )
    _show(report, json)


class _Rate(ProgressColumn):
    """Rows per second, of late; at the end, over all."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("? rows/s" if speed is None else f"{speed:,.0f} rows/s")


@app.command()
def forget(
    name: Name,
    unit: Annotated[str, typer.Argument(help="The unit's id.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a unit: all its exemplars. Answers released before stay; the privacy guarantee covers them."""
    if not yes and not typer.confirm(f"Delete every exemplar of unit {unit!r} from {name}?"):
        raise typer.Exit(1)
    typer.echo(f"Deleted {records().forget(name, unit, by=getpass.getuser())} exemplars")


def _show(report: IngestReport, json: bool) -> None:
    if json:
        print_json(
            {
                "exemplars": report.exemplars,
                "units": report.units,
                "already_there": report.already_there,
                "ignored_fields": report.ignored_fields,
            }
        )
        return
    already = f"; {report.already_there} were there already" if report.already_there else ""
    typer.echo(f"Stored {report.exemplars} exemplars of {report.units} new units{already}")
    if report.ignored_fields:
        typer.echo(f"Ignored columns: {', '.join(report.ignored_fields)}")
