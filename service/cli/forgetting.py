"""``dpicl kb forget``: units leave a knowledge base, one by its id or many by a list."""

from __future__ import annotations

from typing import Annotated

import typer

from exemplar_store import Layout
from service.cli.gathering import gathered
from service.cli.ingesting import SqlQuery, TextFormat, UnitId, open_source
from service.cli.output import Name, Yes, actor, agreed, records
from service.commands import exemplars


@gathered
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
    opened = records()
    if unit is not None:
        if listed or sql.query:
            raise ValueError("name one unit, or a list of them, not both")
        agreed(f"Delete every exemplar of unit {unit!r} from {name}?", yes=yes)
        typer.echo(f"Deleted {exemplars.forget(actor(), opened, name, unit)} exemplars")
        return
    with open_source(listed, sql, TextFormat()) as source:
        units = {row.unit_id for row in source.rows(Layout((), unit_id))}
    agreed(f"Delete every exemplar of {len(units)} units from {name}?", yes=yes)
    deleted, unknown = exemplars.forget_many(actor(), opened, name, units)
    typer.echo(f"Deleted {deleted} exemplars of {len(units) - unknown} units; {unknown} were not there")
