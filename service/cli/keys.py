"""``dpicl keys``: API keys."""

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.gathering import Commands
from service.cli.output import Json, Yes, confirmed, create_database, do, print_json, print_list, records, whole_id
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


def _limit_help(name: str) -> str | None:
    return KeyLimits.model_fields[name].description


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
def limit(
    key_id: KeyId,
    quota: Annotated[int | None, typer.Option(help=_limit_help("quota"))] = None,
    rate_per_minute: Annotated[int | None, typer.Option(help=_limit_help("rate_per_minute"))] = None,
    no_quota: Annotated[bool, typer.Option("--no-quota")] = False,
    no_rate_per_minute: Annotated[bool, typer.Option("--no-rate-per-minute")] = False,
) -> None:
    """Change a key's limits: those that are named. The others stay.

    Args:
        no_quota: Let it be charged as many answers as the budgets allow.
        no_rate_per_minute: Let it send any number of requests.
    """
    changes: dict[str, int | None] = {}
    for name, value, unlimited in (
        ("quota", quota, no_quota),
        ("rate_per_minute", rate_per_minute, no_rate_per_minute),
    ):
        if unlimited and value is not None:
            raise ValueError(f"--{name.replace('_', '-')}: give a number, or remove the limit, not both")
        if unlimited or value is not None:
            changes[name] = value
    key = do(keys.limit, _whole(key_id), KeyLimits(**changes))
    typer.echo(f"{key.name}: {_answers(key)} answers, {key.rate_per_minute or 'any number of'} requests per minute")


@app.command()
def rotate(key_id: KeyId, wanted: Rotation, yes: Yes = False) -> None:
    """Give a key another token and print it, once. Its id, limits, scope and charges stay."""
    seen = records().keys.get(_whole(key_id))
    typer.echo(confirmed(lambda given: do(keys.rotate, seen, wanted, given), yes=yes).token)


@app.command()
def revoke(key_id: KeyId, yes: Yes = False) -> None:
    """Revoke a key, for good. What it spent stays spent."""
    meant = _whole(key_id)
    confirmed(lambda given: do(keys.revoke, meant, given), yes=yes)
    typer.echo(f"revoked {meant}")


def _whole(key_id: str) -> str:
    return whole_id(key_id, (key.id for key in do(keys.list_)))
