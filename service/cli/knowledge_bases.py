"""``dpicl kb``: creating knowledge bases, filling them from files and databases, and deleting units."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import ProgressColumn, Task
from rich.text import Text

from exemplar_store import Layout
from service.cli.gathering import Commands, Options
from service.cli.output import (
    Json,
    Name,
    Yes,
    agreed,
    confirmed,
    counted,
    create_database,
    do,
    print_json,
    print_list,
    progress,
    write,
)
from service.cli.reading import left_out_words, show_left_out
from service.operations import exemplars, knowledge_bases
from service.operations.exemplars import Ingested, Upload
from service.operations.knowledge_bases import KnowledgeBaseChange, KnowledgeBaseView, NewKnowledgeBase
from service.sources.reading import Reading

if TYPE_CHECKING:
    from service.engines.embedding.embedder import Embedder
    from service.sources.cursor import Cursor
    from service.sources.files import Source

app = Commands()

UnitId = Annotated[str, typer.Option(help=Upload.model_fields["unit_id"].description)]


class SqlQuery(Options):
    """Rows of a database, instead of a file."""

    from_sql: Annotated[str | None, typer.Option(envvar="DPICL_SOURCE_URL", show_envvar=True)] = None
    """The database that --query reads, such as postgresql+psycopg://user@host/shop."""
    query: str | None = None
    """SELECT the rows from a database instead of a file."""


class ReadOn(Options):
    """The place where the last run ended."""

    cursor: Annotated[str | None, typer.Option(metavar="COLUMN")] = None
    """Column that only grows, such as updated_at: read on where the last run ended. --query then selects the rows after
    :since, less the time that a change takes to be committed."""
    cursor_file: Annotated[Path | None, typer.Option(dir_okay=False)] = None
    """File for the last cursor value."""
    since: str | None = None
    """Value after which --cursor begins, if that file does not exist yet."""


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
    create_database()
    confirmed(lambda given: do(knowledge_bases.create, wanted, given), yes=yes)
    promise = f"ε = {wanted.epsilon:g}, δ = {wanted.delta:g}"
    typer.echo(f"Created {wanted.name} with {promise} for its lifetime. Fill it with `dpicl kb ingest`.")


@app.command()
def ingest(
    name: Name,
    source: Annotated[str | None, typer.Argument()] = None,
    *,
    sql: SqlQuery,
    columns: Annotated[list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN")] = None,
    reading: Reading,
    read_on: ReadOn,
    upload: Upload,
    json: Json = False,
) -> None:
    """Add exemplars: all rows, or none. Running it again is harmless.

    An error names the bad row. Columns that are not fields of the knowledge base are ignored, and listed. For fields
    with few and short values, such as labels, the number of rows with each value is printed.

    Args:
        source: A file, or an address such as s3://bucket/tickets.parquet: JSON Lines (.jsonl, .ndjson), CSV with a
            header (.csv, .tsv), workbooks (.xlsx, .xls, .ods), Parquet, Arrow (.arrow, .feather), perhaps compressed
            (.gz, .bz2, .xz, .zip); or a folder of Parquet files, or a Hugging Face dataset that was saved to disk. Text
            is UTF-8, unless it is marked or --encoding names another.
        columns: Field and the column of another name to take it from. Repeat it. A name with a dot leads into JSON:
            unit_id=employee.id.
    """
    cursor = _cursor(read_on, sql)
    with open_source(source, sql, reading, cursor) as origin, progress(_Rate(), disable=json) as bar:
        typer.echo(f"Reading {origin.described}", err=True)
        task = bar.add_task("Checking" if upload.dry_run else "Embedding", total=None)
        done = do(
            exemplars.ingest,
            name,
            origin.rows,
            upload,
            lambda texts: _embedder().embed_many(texts),
            columns=exemplars.columns_named(columns or []),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if cursor is not None and not upload.dry_run:
        cursor.save()
    _show(done, upload.dry_run, json)


def _cursor(read_on: ReadOn, sql: SqlQuery) -> Cursor | None:
    from service.sources.cursor import Cursor

    if not read_on.model_fields_set:
        return None
    if read_on.cursor is None or read_on.cursor_file is None or sql.query is None:
        raise ValueError("to read on, give --query, --cursor and --cursor-file")
    return Cursor.open(read_on.cursor, read_on.cursor_file, read_on.since)


def open_source(
    file: str | None, sql: SqlQuery, reading: Reading, cursor: Cursor | None = None
) -> AbstractContextManager[Source]:
    """Rows of a file or of an SQL query.

    Raises:
        ValueError: neither or both are named, or it cannot be read.
    """
    from service.sources.files import open_file
    from service.sources.sql import open_query

    if file is not None and sql.query is None:
        return open_file(file, reading)
    if file is None and sql.query is not None and sql.from_sql is not None:
        return open_query(sql.from_sql, sql.query, cursor, reading)
    raise ValueError("name a file to read, or a database with --from-sql and what to SELECT from it with --query")


@cache
def _embedder() -> Embedder:
    """Loaded when the first text comes, which is after all rows were checked."""
    from service.engines.embedding.embedder import Embedder, cores

    return Embedder(threads=cores())


class _Rate(ProgressColumn):
    """Rows per second, of late; at the end, over all."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("? rows/s" if speed is None else f"{speed:,.0f} rows/s")


def _show(report: Ingested, dry_run: bool, json: bool) -> None:
    if json:
        print_json(report)
        return
    already = f"; {report.already_there} were there already" if report.already_there else ""
    stored = "Nothing stored. It would be" if dry_run else "Stored"
    replaced = f"; they replace {report.replaced}" if report.replaced else ""
    typer.echo(f"{stored} {report.exemplars} exemplars of {report.units} new units{already}{replaced}")
    if report.returned:
        typer.echo(f"Forgotten units that come back: {report.returned}")
    if report.skipped_units:
        typer.echo(f"Forgotten units left out: {report.skipped_units}, with {report.skipped_rows} rows")
    for column, reasons in report.incomplete.items():
        for reason, number in reasons.items():
            typer.echo(left_out_words(column, reason, number))
    if report.ignored_fields:
        typer.echo(f"Ignored columns: {', '.join(report.ignored_fields)}")
    for field, values in report.values.items():
        typer.echo(f"{field}: {counted(values)}")
    if report.notice:
        typer.echo(report.notice)


@app.command("list")
def list_(json: Json = False) -> None:
    """List the knowledge bases."""
    print_list("Knowledge bases", do(knowledge_bases.list_), _COLUMNS, json=json)


@app.command()
def statement(name: Name, out: Annotated[Path | None, typer.Option(dir_okay=False)] = None) -> None:
    """Write what was promised to the people in the rows and what was used of it, for a data protection officer.

    It is one HTML page, which any browser shows and prints.

    Args:
        out: File to write, such as support.html. [default: standard output]
    """
    from service.operations import statement as statements
    from service.operations.documents import statement_html

    write([statement_html(do(statements.draw_up, name))], out)


@app.command("remote-engine")
def remote_engine(name: Name, allow: Annotated[bool, typer.Option("--allow/--forbid")], yes: Yes = False) -> None:
    """Allow or forbid a language model outside the deployment to see exemplars in clear text.

    What it has seen cannot be taken back.

    Args:
        allow: Whether it may see them, from the next query on.
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
    reading: Reading,
    unit_id: UnitId = "unit_id",
    yes: Yes = False,
) -> None:
    """Delete units: all their exemplars. Answers released before stay; the privacy guarantee covers them.

    Args:
        unit: The unit's id.
        listed: File or address with the units to forget, in any format of `kb ingest`.
    """
    if unit is not None:
        if listed or sql.query:
            raise ValueError("name one unit, or a list of them, not both")
        agreed(f"Delete every exemplar of unit {unit!r} from {name}?", yes=yes)
        typer.echo(f"Deleted {do(exemplars.forget, name, unit)} exemplars")
        return
    layout = Layout((), unit_id)
    with open_source(listed, sql, reading) as source:
        units = {row.unit_id for row in source.rows(layout)}
    show_left_out(layout.left_out)
    agreed(f"Delete every exemplar of {len(units)} units from {name}?", yes=yes)
    deleted, unknown = do(exemplars.forget_many, name, units)
    typer.echo(f"Deleted {deleted} exemplars of {len(units) - unknown} units; {unknown} were not there")


@app.command()
def archive(name: Name, yes: Yes = False) -> None:
    """Archive permanently: no further plan, cohort or exemplar. Signed plans go on; ledger and audit trail stay."""
    confirmed(lambda given: do(knowledge_bases.archive, name, given), yes=yes)
    typer.echo(f"Archived {name}. `dpicl kb forget` still deletes units, and `dpicl budget` shows what was spent.")


@app.command()
def delete(name: Name, yes: Yes = False) -> None:
    """Delete an empty knowledge base: no plan was ever signed, no exemplar uploaded, and it is in no group."""
    do(knowledge_bases.describe, name)
    agreed(f"Delete {name}, with its lifetime budget?", yes=yes)
    do(knowledge_bases.delete, name)
    typer.echo(f"Deleted {name}. Its name is free.")
