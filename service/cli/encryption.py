"""``dpicl encryption``: change the encryption key."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from accounting.ledger.events import EncryptionKeyChanged, ExemplarsReencrypted
from exemplar_store import EncryptionKeyError, MasterKey, load_key
from service.cli.gathering import gathered
from service.cli.output import Yes, agreed, records, who
from service.records.records import audited
from service.records.synthetic_store import KEY

app = typer.Typer(no_args_is_help=True)


@app.command()
@gathered
def rewrap(
    new_key_file: Annotated[Path, typer.Option(dir_okay=False)],
) -> None:
    """Let a new encryption key open the database, and the present one no longer.

    This takes no time. Running services continue; from now on they start with the new key only.

    Args:
        new_key_file: A file with the new key: `openssl rand -base64 32`.
    """
    opened, key = records(), load_key(file=new_key_file)
    if opened.synthetic or hmac.compare_digest(key, KEY):
        raise EncryptionKeyError(
            "The key of made-up data is published and marks a database as made up: it neither replaces another nor is "
            "replaced. For exemplars of your own make a database of your own (openssl rand -base64 32)."
        )
    new = MasterKey(key)
    opened.store.keyring.rewrap(new, audited(EncryptionKeyChanged(fingerprint=new.fingerprint, by=who())))
    typer.echo(
        f"Only encryption key {new.fingerprint} opens this database now. Give it to every service and admin. Keep the "
        "key before as long as you keep older backups: nothing else opens them."
    )


@app.command()
def reencrypt(yes: Yes = False) -> None:
    """Encrypt all exemplars again, under a new data key. Stop all services first.

    Use it if an encryption key leaked together with a copy of the database, after replacing that key. The copy itself
    stays readable. If it is interrupted, nothing has changed.
    """
    opened = records()
    agreed("Are all services stopped?", yes=yes)
    with Progress(transient=True) as bar:
        task = bar.add_task("Encrypting", total=None)
        unreadable = opened.store.reencrypt(
            lambda done, of: bar.update(task, completed=done, total=of), audited(ExemplarsReencrypted(by=who()))
        )
    typer.echo("Encrypted all exemplars under a new data key")
    if unreadable:
        typer.echo(f"{unreadable} exemplars did not open: something else changed their rows. No query uses them.")
