"""``dpicl keys``: API keys."""

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.gathering import Commands
from service.cli.output import Json, create_database, do, print_json, print_list, records, whole_id
from service.operations import keys
from service.operations.keys import ApiKey, KeyLimits, NewKey, Rotation
from service.records.api_keys import Role

app = Commands()

KeyId = Annotated[str, typer.Argument(help="The key's id, from `dpicl keys list`, or how it begins.")]
_SHOWN = {
    "name": typer.Argument(help="The key's owner, a person or a program."),
    "expires_in_days": typer.Option(help="Days after which it is refused. [default: never]"),
}


class _AnalystsKey(NewKey):
    """An analyst's, unless another role is named."""

    role: Annotated[Role, typer.Option(help=NewKey.model_fields["role"].description)] = "analyst"


def _answers(key: ApiKey) -> str:
    return f"{key.charged} of {'any' if key.quota is None else key.quota}"


_COLUMNS: dict[str, Callable[[ApiKey], object]] = {
    "id": lambda key: key.id,
    "name": lambda key: key.name,
    "role": lambda key: f"{key.role} of {', '.join(key.scope)}" if key.scope else key.role,
    "answers": lambda key: _answers(key) if key.role == "analyst" else "",
    "per minute": lambda key: key.rate_per_minute or "any",
    "last used": lambda key: key.last_used_at or "never",
    "ends": lambda key: f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else key.expires_at or "never",
}


@app.command()
def create(wanted: Annotated[_AnalystsKey, _SHOWN], json: Json = False) -> None:
    """Create a key and print its token, once: only a hash is kept."""
    create_database()
    made = do(keys.create, wanted)
    if json:
        print_json(made)
    else:
        typer.echo(made.token)


@app.command("list")
def list_(json: Json = False) -> None:
    """List all keys, including revoked ones."""
    print_list("API keys", do(keys.list_), _COLUMNS, json=json)


@app.command()
def limit(key_id: KeyId, wanted: KeyLimits) -> None:
    """Replace a key's limits. An omitted option removes that limit."""
    key = do(keys.limit, _whole(key_id), wanted)
    typer.echo(f"{key.name}: {_answers(key)} answers")


@app.command()
def rotate(key_id: KeyId, wanted: Rotation) -> None:
    """Give a key another token and print it, once. Its id, limits, scope and charges stay."""
    typer.echo(do(keys.rotate, records().keys.get(_whole(key_id)), wanted).token)


@app.command()
def revoke(key_id: KeyId) -> None:
    """Revoke a key, for good. What it spent stays spent."""
    meant = _whole(key_id)
    do(keys.revoke, meant)
    typer.echo(f"revoked {meant}")


def _whole(key_id: str) -> str:
    return whole_id(key_id, (key.id for key in do(keys.list_)))
