"""``dpicl keys``: API keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from service.api.keys import view
from service.cli.output import Json, print_json, print_table, records, who
from service.records.roles import Role

app = typer.Typer(no_args_is_help=True, help="Create, list, rotate and revoke API keys.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The key's owner, a person or a program.")],
    role: Annotated[
        Role,
        typer.Option(help="Analysts ask, viewers look, auditors also read the audit trail, admins decide."),
    ] = "analyst",
    quota: Annotated[int | None, typer.Option(help="Answers it may be charged in all.")] = None,
    rate_per_minute: Annotated[int | None, typer.Option(help="Requests it may send per minute.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="A knowledge base or task that it may ask; may be given several times. [default: all]"),
    ] = None,
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, max=36500, help="Days after which it is refused. [default: never]")
    ] = None,
    json: Json = False,
) -> None:
    """Create a key and print its token, once: only a hash is kept."""
    key, token = records().keys.create(
        name,
        role,
        quota=quota,
        rate_per_minute=rate_per_minute,
        scope=scope or (),
        expires_at=None if expires_in_days is None else datetime.now(UTC) + timedelta(days=expires_in_days),
        by=who(),
    )
    if json:
        print_json({**view(key).model_dump(mode="json"), "token": token})
    else:
        typer.echo(token)


@app.command("list")
def list_(json: Json = False) -> None:
    """List all keys, including revoked ones."""
    keys = records().keys.list()
    if json:
        print_json([view(key).model_dump(mode="json") for key in keys])
    else:
        rows = [
            (
                key.id,
                key.name,
                f"{key.role} of {', '.join(key.scope)}" if key.scope else key.role,
                f"{key.charged} of {'any' if key.quota is None else key.quota}" if key.role == "analyst" else "",
                key.rate_per_minute or "any",
                key.last_used_at or "never",
                f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else key.expires_at or "never",
            )
            for key in keys
        ]
        print_table("API keys", ["id", "name", "role", "answers", "per minute", "last used", "ends"], rows)


@app.command()
def limit(
    key_id: Annotated[str, typer.Argument(help="The key's id, from `dpicl keys list`.")],
    quota: Annotated[int | None, typer.Option(help="Answers it may be charged in all. [default: no limit]")] = None,
    rate_per_minute: Annotated[int | None, typer.Option(help="Requests per minute. [default: no limit]")] = None,
) -> None:
    """Replace a key's limits. An omitted option removes that limit."""
    key = records().keys.limit(key_id, quota=quota, rate_per_minute=rate_per_minute, by=who())
    typer.echo(f"{key.name}: {key.charged} answers of {'any' if quota is None else quota}")


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="The key's id, from `dpicl keys list`.")],
    overlap_hours: Annotated[
        int, typer.Option(min=0, max=8760, help="Hours for which the token before stands, too. 0: it ends at once.")
    ] = 0,
) -> None:
    """Give a key another token and print it, once. Its id, limits, scope and charges stay."""
    keys = records().keys
    _, token = keys.rotate(keys.get(key_id), overlap=timedelta(hours=overlap_hours), by=who())
    typer.echo(token)


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The key's id, from `dpicl keys list`.")]) -> None:
    """Revoke a key, for good. What it spent stays spent."""
    records().keys.revoke(key_id, who())
    typer.echo(f"revoked {key_id}")
