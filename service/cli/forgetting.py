"""``dpicl kb forget``: units leave a knowledge base, one by its id or many by a list."""

from __future__ import annotations

from typing import Annotated

import typer

from exemplar_store import Layout, UnknownUnitError
from service.cli.ingesting import FromSql, Query, UnitId, open_source
from service.cli.output import records, who


def forget(
    name: Annotated[str, typer.Argument(help="The knowledge base's name.")],
    unit: Annotated[str | None, typer.Argument(help="The unit's id.")] = None,
    listed: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Forget all units of a file or an address, as of `kb ingest`.")
    ] = None,
    from_sql: FromSql = None,
    query: Query = None,
    unit_id: UnitId = "unit_id",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete units: all their exemplars. Answers released before stay; the privacy guarantee covers them."""
    opened, by = records(), who()
    if unit is not None:
        if listed or query:
            raise ValueError("name one unit, or a list of them, not both")
        if not yes and not typer.confirm(f"Delete every exemplar of unit {unit!r} from {name}?"):
            raise typer.Exit(1)
        typer.echo(f"Deleted {opened.forget(name, unit, by=by)} exemplars")
        return
    with open_source(listed, from_sql, query) as found:
        units = {row.unit_id for row in found.rows(Layout((), unit_id))}
    if not yes and not typer.confirm(f"Delete every exemplar of {len(units)} units from {name}?"):
        raise typer.Exit(1)
    deleted = unknown = 0
    for one in sorted(units):
        try:
            deleted += opened.forget(name, one, by=by)
        except UnknownUnitError:
            unknown += 1
    typer.echo(f"Deleted {deleted} exemplars of {len(units) - unknown} units; {unknown} were not there")
