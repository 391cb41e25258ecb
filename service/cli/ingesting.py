"""``dpicl kb ingest``: a knowledge base is filled from where the data are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

from service.cli.output import Json, Name, actor, option, print_json, records
from service.commands import exemplars
from service.commands.exemplars import Ingested, Upload

if TYPE_CHECKING:
    import numpy as np

    from service.embedding.embedder import Embedder
    from service.sources.cursor import Cursor
    from service.sources.files import Source


FromSql = Annotated[
    str | None,
    typer.Option(
        envvar="DPICL_SOURCE_URL",
        show_envvar=True,
        help="The database that --query reads, such as postgresql+psycopg://user@host/shop.",
    ),
]
Query = Annotated[str | None, typer.Option(help="SELECT the rows from a database instead of a file.")]
UnitId = Annotated[str, option(Upload, "unit_id")]


def ingest(
    name: Name,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A file, or an address such as s3://bucket/tickets.parquet: JSON Lines (.jsonl, .ndjson), CSV with a "
            "header (.csv, .tsv), Parquet, Arrow (.arrow, .feather), perhaps compressed (.gz); or a folder of Parquet "
            "files, or a Hugging Face dataset that was saved to disk."
        ),
    ] = None,
    from_sql: FromSql = None,
    query: Query = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="Take a field from a column of another name. Repeat it."),
    ] = None,
    unit_id: UnitId = "unit_id",
    numbers_as_text: Annotated[bool, option(Upload, "numbers_as_text", "--numbers-as-text")] = False,
    encoding: Annotated[
        str | None, typer.Option(help="Of JSON Lines or CSV, such as cp1252. [default: detected]")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between cells of CSV. [default: detected]")] = None,
    cursor: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Read on where the last time ended: a column that only grows, such as updated_at. --query then "
            "selects the rows after :since.",
        ),
    ] = None,
    cursor_file: Annotated[Path | None, typer.Option(help="File for the last cursor value.", dir_okay=False)] = None,
    since: Annotated[str | None, typer.Option(help="After which value --cursor begins, without that file.")] = None,
    replace: Annotated[bool, option(Upload, "replace", "--replace")] = False,
    dry_run: Annotated[bool, option(Upload, "dry_run", "--dry-run")] = False,
    json: Json = False,
) -> None:
    """Add exemplars: all rows, or none. Running it again is harmless.

    An error names the bad row. Columns that are not fields of the knowledge base are ignored, and listed.
    """
    opened = records()
    upload = Upload(unit_id=unit_id, numbers_as_text=numbers_as_text, replace=replace, dry_run=dry_run)
    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    read_on = _cursor(cursor, cursor_file, since, query)
    with (
        open_source(source, from_sql, query, encoding, delimiter, read_on) as origin,
        Progress(*bars, disable=json) as bar,
    ):
        typer.echo(f"Reading {origin.described}", err=True)
        task = bar.add_task("Checking" if dry_run else "Embedding", total=None)
        done = exemplars.ingest(
            actor(),
            opened,
            name,
            origin.rows,
            upload,
            _embed,
            columns=_columns(columns or []),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if read_on is not None and not dry_run:
        read_on.save()
    _show(done, dry_run, json)


def _cursor(column: str | None, file: Path | None, since: str | None, query: str | None) -> Cursor | None:
    from service.sources.cursor import Cursor

    if column is None and file is None and since is None:
        return None
    if column is None or file is None or query is None:
        raise ValueError("to read on, give --query, --cursor and --cursor-file")
    return Cursor.open(column, file, since)


def open_source(
    source: str | None,
    from_sql: str | None,
    query: str | None,
    encoding: str | None = None,
    delimiter: str | None = None,
    cursor: Cursor | None = None,
) -> AbstractContextManager[Source]:
    """Rows of a file or of an SQL query.

    Raises:
        ValueError: neither or both are named, or it cannot be read.
    """
    from service.sources.files import open_file
    from service.sources.sql import open_query

    if source is not None and query is None:
        return open_file(source, encoding=encoding, delimiter=delimiter)
    if source is None and query is not None and from_sql is not None:
        return open_query(from_sql, query, cursor)
    raise ValueError("name a file to read, or a database with --from-sql and what to SELECT from it with --query")


def _columns(named: Sequence[str]) -> dict[str, str]:
    """Which column each field is taken from; of ``unit_id``, too."""
    columns = dict(pair.partition("=")[::2] for pair in named)
    if not all(columns.values()):
        raise ValueError("--map: write FIELD=COLUMN")
    return columns


def _embed(texts: Sequence[str]) -> np.ndarray:
    return _embedder().embed(texts)


@cache
def _embedder() -> Embedder:
    """Loaded when the first text comes, which is after all rows were checked."""
    from service.embedding.embedder import Embedder, cores

    return Embedder(threads=cores())


class _Rate(ProgressColumn):
    """Rows per second, of late; at the end, over all."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("? rows/s" if speed is None else f"{speed:,.0f} rows/s")


def _show(report: Ingested, dry_run: bool, json: bool) -> None:
    if json:
        print_json(report.model_dump())
        return
    already = f"; {report.already_there} were there already" if report.already_there else ""
    stored = "Nothing stored. It would be" if dry_run else "Stored"
    replaced = f"; they replace {report.replaced}" if report.replaced else ""
    typer.echo(f"{stored} {report.exemplars} exemplars of {report.units} new units{already}{replaced}")
    if report.ignored_fields:
        typer.echo(f"Ignored columns: {', '.join(report.ignored_fields)}")
