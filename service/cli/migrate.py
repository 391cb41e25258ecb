"""``dpicl migrate``: bring the database's schema up to date, or wait until another process has."""

from __future__ import annotations

import time
from typing import Annotated

import sqlalchemy as sa
import typer

from service.cli.gathering import gathered
from service.records.database import open_database
from service.records.schema import SchemaError, migrate, require, revision
from service.records.witness import check_witness, open_witness
from service.settings import Settings

_LOOK_EVERY_S = 1.0


@gathered
def migrate_(
    check: Annotated[bool, typer.Option("--check")] = False,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS")] = 0,
) -> None:
    """Bring the schemas of database and witness up to date, and print the revisions before and after.

    Stop all services first.

    Args:
        check: Change nothing; exit with 1 if this version cannot work on the database.
        wait: Like --check, but wait this long for another process to migrate.
    """
    settings = Settings()
    check_witness(settings)
    database = open_database(settings.database_url)
    if check or wait:
        _require_within(wait, database)
        typer.echo(f"Revision {revision(database)}: nothing to do")
        return
    before, after = migrate(database)
    open_witness(settings, database)
    if before == after:
        typer.echo(f"Revision {after}: nothing to do")
    else:
        typer.echo(f"Migrated from {'an empty database' if before is None else f'revision {before}'} to {after}")


def _require_within(seconds: float, database: sa.Engine) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return require(database)
        except (SchemaError, sa.exc.OperationalError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_EVERY_S)
