"""``dpicl ledger``: back up the database, and continue after a restore without giving budget back."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from accounting.ledger.events import AnswerCharged, ChargeVoided, UnitForgotten
from accounting.ledger.restoring import Loss, acknowledge, find_loss
from accounting.ledger.witness import Witness
from service.cli.gathering import gathered
from service.cli.output import Json, Yes, agreed, print_json, who
from service.records.database import parse_url
from service.records.records import Records, open_records
from service.records.witness import NONE, bring_back
from service.settings import Settings
from service.telemetry.logs import configure_logs

app = typer.Typer(no_args_is_help=True)


@app.command()
def status(json: Json = False) -> None:
    """Compare the ledger with its witness: was it restored from a backup, and what was lost? Exits with 1 if so."""
    opened, witness = _opened()
    loss = find_loss(opened.audit, witness)
    head = opened.audit.head()
    events = head.sequence if head else 0
    if json:
        lost, ended = (_counts(loss), loss.ended) if loss else ({}, ())
        print_json({"events": events, "restored": loss is not None, "lost": lost, "ended": ended})
    elif loss is None:
        typer.echo(f"The ledger has all that was witnessed ({events} events).")
    else:
        _tell(loss)
        typer.echo("If nothing newer can be restored, `dpicl ledger acknowledge` charges what was lost.")
    if loss is not None:
        raise typer.Exit(1)


@app.command("acknowledge")
def acknowledge_(yes: Yes = False) -> None:
    """Accept what a restore lost: bring back budgets, plans and charges from the witness, as spent.

    Stop every service on another copy of this ledger first. Charges that were lost stay charged; stored answers,
    exemplars and keys that were lost do not come back, and units forgotten since the backup must be forgotten again.
    """
    opened, witness = _opened()
    loss = find_loss(opened.audit, witness)
    if loss is None:
        typer.echo("Nothing to acknowledge: the ledger has all that was witnessed.")
        return
    _tell(loss)
    agreed("This cannot be undone. Continue from here?", yes=yes)
    acknowledge(opened.database, witness, loss, by=who(), outside=bring_back)
    typer.echo("Acknowledged: the ledger answers again.")


@app.command()
@gathered
def backup(
    file: Annotated[Path, typer.Argument(dir_okay=False)],
) -> None:
    """Copy a SQLite database while it is in use. Back up PostgreSQL with its own tools, such as pg_dump.

    The copy holds exemplars encrypted; keep the encryption key elsewhere. Leave the witness out of backups.

    Args:
        file: A new file.
    """
    url = parse_url(Settings().database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise ValueError(f"backup: the database is {url.get_backend_name()}; use its own tools, such as pg_dump")
    if not Path(url.database).is_file():
        raise ValueError(f"backup: there is no database at {url.database}")
    if file.exists():
        raise ValueError(f"backup: {file} exists; name a new file")
    with closing(sqlite3.connect(url.database)) as source, closing(sqlite3.connect(file)) as target:
        source.backup(target)
    typer.echo(f"Backed up to {file}")


def _opened() -> tuple[Records, Witness]:
    configure_logs()
    opened = open_records(Settings(), restored=True)
    if opened.witness is None:
        raise ValueError(f"DPICL_WITNESS_URL is {NONE!r} or not set: without a witness nothing can be compared")
    return opened, opened.witness


def _counts(loss: Loss) -> dict[str, int]:
    """How many events of each kind were lost; of charges those that were not voided."""
    counts = Counter(event.kind for event in loss.lost)
    del counts[ChargeVoided.kind]
    return dict(sorted((counts | {AnswerCharged.kind: len(loss.charges)}).items()))


def _tell(loss: Loss) -> None:
    """Say what was lost, and what an admin has to do about it."""
    if loss.witnessed is None:
        typer.echo("The witness never saw this ledger: it is new or was lost, or the ledger is a copy of another.")
        typer.echo("It cannot be known whether answers were given since this ledger was written.")
        return
    typer.echo(
        f"The ledger was restored, or is a second copy: it and its witness agree up to event {loss.common.sequence}. "
        f"After that {len(loss.lost)} events were witnessed that it lacks, and it has {len(loss.own)} of its own."
    )
    for task, number in sorted(Counter(charge.task for charge in loss.charges).items()):
        typer.echo(f"- {number} answers of {task}: will be charged as lost")
    told = [event for event in loss.lost if loss.comes_back(event) or event.kind == UnitForgotten.kind]
    for event in (*loss.begun, *told):
        if event.particulars is not None and (line := event.particulars.if_lost()):
            typer.echo(f"- {event.at:%Y-%m-%d %H:%M} UTC: {line}")
    for name in loss.ended:
        typer.echo(f"- {name} ends: it will answer nothing any more")
    for name in loss.closed:
        typer.echo(f"- nothing will join group {name} any more")
