"""``dpicl kb ingest``: a knowledge base is filled from where the data are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import ProgressColumn, Task
from rich.text import Text

from service.cli.gathering import Options
from service.cli.output import Json, Name, do, print_json, progress
from service.commands import exemplars
from service.commands.exemplars import Ingested, Upload

if TYPE_CHECKING:
    import numpy as np

    from service.embedding.embedder import Embedder
    from service.sources.cursor import Cursor
    from service.sources.files import Source


UnitId = Annotated[str, typer.Option(help=Upload.model_fields["unit_id"].description)]


class SqlQuery(Options):
    """Rows of a database, instead of a file."""

    from_sql: Annotated[str | None, typer.Option(envvar="DPICL_SOURCE_URL", show_envvar=True)] = None
    """The database that --query reads, such as postgresql+psycopg://user@host/shop."""
    query: str | None = None
    """SELECT the rows from a database instead of a file."""


class TextFormat(Options):
    """How a file of text is read."""

    encoding: str | None = None
    """Of JSON Lines or CSV, such as cp1252. [default: detected]"""
    delimiter: str | None = None
    """Between cells of CSV. [default: detected]"""


class ReadOn(Options):
    """Where the last time ended."""

    cursor: Annotated[str | None, typer.Option(metavar="COLUMN")] = None
    """Read on where the last time ended: a column that only grows, such as updated_at. --query then selects the rows
    after :since."""
    cursor_file: Annotated[Path | None, typer.Option(dir_okay=False)] = None
    """File for the last cursor value."""
    since: str | None = None
    """After which value --cursor begins, without that file."""


def ingest(
    name: Name,
    source: Annotated[str | None, typer.Argument()] = None,
    *,
    sql: SqlQuery,
    columns: Annotated[list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN")] = None,
    text: TextFormat,
    read_on: ReadOn,
    upload: Upload,
    json: Json = False,
) -> None:
    """Add exemplars: all rows, or none. Running it again is harmless.

    An error names the bad row. Columns that are not fields of the knowledge base are ignored, and listed.

    Args:
        source: A file, or an address such as s3://bucket/tickets.parquet: JSON Lines (.jsonl, .ndjson), CSV with a
            header (.csv, .tsv), Parquet, Arrow (.arrow, .feather), perhaps compressed (.gz); or a folder of Parquet
            files, or a Hugging Face dataset that was saved to disk.
        columns: Take a field from a column of another name. Repeat it.
    """
    cursor = _cursor(read_on, sql)
    with open_source(source, sql, text, cursor) as origin, progress(_Rate(), disable=json) as bar:
        typer.echo(f"Reading {origin.described}", err=True)
        task = bar.add_task("Checking" if upload.dry_run else "Embedding", total=None)
        done = do(
            exemplars.ingest,
            name,
            origin.rows,
            upload,
            _embed,
            columns=_columns(columns or []),
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
    file: str | None, sql: SqlQuery, text: TextFormat, cursor: Cursor | None = None
) -> AbstractContextManager[Source]:
    """Rows of a file or of an SQL query.

    Raises:
        ValueError: neither or both are named, or it cannot be read.
    """
    from service.sources.files import open_file
    from service.sources.sql import open_query

    if file is not None and sql.query is None:
        return open_file(file, **text.model_dump())
    if file is None and sql.query is not None and sql.from_sql is not None:
        return open_query(sql.from_sql, sql.query, cursor)
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
        print_json(report)
        return
    already = f"; {report.already_there} were there already" if report.already_there else ""
    stored = "Nothing stored. It would be" if dry_run else "Stored"
    replaced = f"; they replace {report.replaced}" if report.replaced else ""
    typer.echo(f"{stored} {report.exemplars} exemplars of {report.units} new units{already}{replaced}")
    if report.ignored_fields:
        typer.echo(f"Ignored columns: {', '.join(report.ignored_fields)}")
