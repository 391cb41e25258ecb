"""``dpicl encryption``: change the encryption key while services run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from exemplar_store import load_key
from service.cli.output import Json, print_json, print_table, records, who
from service.records.key_rotation import add_key, renew_exemplars, retire_keys
from service.records.records import Records

app = typer.Typer(no_args_is_help=True, help="Change the encryption key while services run.")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def status(json: Json = False) -> None:
    """Show the keys that open this database, by fingerprint, and when exemplars were last encrypted again."""
    keys = records().store.data_keys
    masters, since = keys.masters(), keys.since()
    if json:
        print_json({"keys": [vars(one) for one in masters], "exemplars": since})
        return
    rows = [(one.fingerprint, f"{one.added_at:%Y-%m-%d %H:%M}", "the one given" if one.held else "") for one in masters]
    print_table("Encryption keys that open this database", ["fingerprint", "added (UTC)", ""], rows)
    if since:
        renewed = [(name, f"{at:%Y-%m-%d %H:%M}") for name, at in since.items()]
        print_table("Exemplars", ["knowledge base", "under their data key since (UTC)"], renewed)


@app.command()
def add(
    new_key_file: Annotated[
        Path, typer.Option(help="A file with the new key: `openssl rand -base64 32`.", dir_okay=False)
    ],
) -> None:
    """Let a second encryption key open the database: services may start with either from now on."""
    fingerprint = add_key(records(), load_key(file=new_key_file), by=who())
    typer.echo(
        f"Encryption key {fingerprint} opens this database too. Give it to every service and admin, one by one; "
        "once all have it, run `dpicl encryption retire` with it."
    )


@app.command()
def retire(
    fingerprint: Annotated[
        str | None, typer.Argument(help="Of the key to retire. [default: all older than the given one]")
    ] = None,
    yes: Yes = False,
) -> None:
    """Stop all encryption keys but the given one from opening the database.

    Running services continue; none starts with a retired key.
    """
    opened = records()
    if not yes and not typer.confirm("Does every service and admin have the key that this command was given?"):
        raise typer.Exit(1)
    gone = retire_keys(opened, fingerprint, by=who())
    held = opened.store.data_keys.fingerprint
    if not gone:
        typer.echo(f"Nothing to retire: {held} is the only encryption key that opens this database.")
        return
    typer.echo(
        f"Retired {', '.join(gone)}. Keep a retired key as long as you keep older backups: nothing else opens them."
    )


@app.command()
def renew(
    names: Annotated[list[str] | None, typer.Argument(help="Knowledge bases. [default: all]")] = None,
    yes: Yes = False,
) -> None:
    """Encrypt exemplars again, under new keys.

    Use it if an encryption key leaked together with a copy of the database, after retiring that key. The copy itself
    stays readable. Services keep running. If it is interrupted, run it again.
    """
    opened = records()
    chosen = names or [one.name for one in opened.store.list()]
    if not yes and not typer.confirm(f"Encrypt the exemplars of {', '.join(chosen)} again?"):
        raise typer.Exit(1)
    for name in chosen:
        unreadable = _renew(opened, name)
        typer.echo(f"Renewed {name}")
        if unreadable:
            typer.echo(f"{unreadable} exemplars did not open: something else changed their rows. No query uses them.")


def _renew(opened: Records, name: str) -> int:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(f"Renewing {name}", total=100)
        return renew_exemplars(opened, name, by=who(), progress=lambda percent: bar.update(task, completed=percent))
