"""``dpicl migrate``: bring the database's schema up to date, or wait until another process has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import sqlalchemy as sa
import typer

from accounting.ledger import trail
from accounting.ledger.compatibility import SchemaError
from accounting.ledger.events import UnitForgotten
from exemplar_store.oversized import forget_oversized as forget_oversized_units
from service.cli.output import who
from service.records.database import open_database
from service.records.schema import migrate, require, revision
from service.records.witness import check_witness, open_witness
from service.settings import Settings

_LOOK_EVERY_S = 1.0
_BOUNDED_UNITS = "0002"
"""Since this revision no unit is too large."""


def migrate_(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if this version cannot work on the database.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Like --check, but wait this long for another process to migrate."),
    ] = 0,
    forget_oversized: Annotated[
        bool,
        typer.Option(
            "--forget-oversized",
            help="First delete the units that are too large for this version.",
        ),
    ] = False,
) -> None:
    """Bring the schemas of database and witness up to date, and print the revisions before and after.

    Services can keep running, unless the changelog calls the migration breaking. A database that a newer version has
    migrated stays as it is.
    """
    settings = Settings()
    check_witness(settings)
    database = open_database(settings.database_url)
    if check or wait:
        _require_within(wait, database)
        typer.echo(f"Revision {revision(database)}: nothing to do")
        return
    if forget_oversized and (revision(database) or _BOUNDED_UNITS) < _BOUNDED_UNITS:
        for name, count in forget_oversized_units(database, _audit).items():
            units = "1 unit" if count == 1 else f"{count} units"
            typer.echo(f"Forgot {units} of {name}, with all {'its' if count == 1 else 'their'} exemplars")
    before, after = migrate(database)
    open_witness(settings, database)
    if before == after:
        typer.echo(f"Revision {after}: nothing to do")
    else:
        typer.echo(f"Migrated from {'an empty database' if before is None else f'revision {before}'} to {after}")


def _audit(connection: sa.Connection, forgotten: Mapping[str, int]) -> None:
    by = who()
    names = [name for name, count in forgotten.items() for _ in range(count)]
    trail.append(connection, datetime.now(UTC), *(UnitForgotten(knowledge_base=name, by=by) for name in names))


def _require_within(seconds: float, database: sa.Engine) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return require(database)
        except (SchemaError, sa.exc.OperationalError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_EVERY_S)
