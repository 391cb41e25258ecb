"""``dpicl keys``: API keys."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.output import Json, actor, print_json, print_table, records
from service.commands import keys
from service.commands.keys import CreatedKey, KeyLimits, KeyView, NewKey, Rotation
from service.records.roles import Role

app = typer.Typer(no_args_is_help=True, help="Create, list, rotate and revoke API keys.")

KeyId = Annotated[str, typer.Argument(help="The key's id, from `dpicl keys list`.")]


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
        int | None, typer.Option(help="Days after which it is refused. [default: never]")
    ] = None,
    json: Json = False,
) -> None:
    """Create a key and print its token, once: only a hash is kept."""
    wanted = NewKey(
        name=name,
        role=role,
        quota=quota,
        rate_per_minute=rate_per_minute,
        scope=scope or [],
        expires_in_days=expires_in_days,
    )
    made = CreatedKey.of(keys.create(actor(), records(), wanted))
    if json:
        print_json(made.model_dump(mode="json"))
    else:
        typer.echo(made.token)


@app.command("list")
def list_(json: Json = False) -> None:
    """List all keys, including revoked ones."""
    listed = keys.list_(actor(), records())
    if json:
        print_json([KeyView.model_validate(key).model_dump(mode="json") for key in listed])
        return
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
        for key in listed
    ]
    print_table("API keys", ["id", "name", "role", "answers", "per minute", "last used", "ends"], rows)


@app.command()
def limit(
    key_id: KeyId,
    quota: Annotated[int | None, typer.Option(help="Answers it may be charged in all. [default: no limit]")] = None,
    rate_per_minute: Annotated[int | None, typer.Option(help="Requests per minute. [default: no limit]")] = None,
) -> None:
    """Replace a key's limits. An omitted option removes that limit."""
    key = keys.limit(actor(), records(), key_id, KeyLimits(quota=quota, rate_per_minute=rate_per_minute))
    typer.echo(f"{key.name}: {key.charged} answers of {'any' if quota is None else quota}")


@app.command()
def rotate(
    key_id: KeyId,
    overlap_hours: Annotated[
        int, typer.Option(help="Hours for which the token before stands, too. 0: it ends at once.")
    ] = 0,
) -> None:
    """Give a key another token and print it, once. Its id, limits, scope and charges stay."""
    opened = records()
    _, token = keys.rotate(actor(), opened, opened.keys.get(key_id), Rotation(overlap_hours=overlap_hours))
    typer.echo(token)


@app.command()
def revoke(key_id: KeyId) -> None:
    """Revoke a key, for good. What it spent stays spent."""
    keys.revoke(actor(), records(), key_id)
    typer.echo(f"revoked {key_id}")
