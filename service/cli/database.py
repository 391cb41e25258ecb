"""``dpicl migrate``, ``ledger`` and ``encryption``: an operator's work on the database."""

import hmac
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, TypeVar

import sqlalchemy as sa
import typer

from accounting.ledger import events
from accounting.ledger.restoring import Loss, acknowledge, find_loss
from accounting.ledger.witness import Witness, WitnessUnavailableError
from exemplar_store import EncryptionKeyError, MasterKey, load_key
from service.cli.gathering import Commands
from service.cli.output import Json, Yes, agreed, print_json, progress, records, who
from service.records.database import (
    MissingDatabaseError,
    may_pass,
    nothing_at,
    open_database,
    parse_url,
    require_kept,
    require_there,
)
from service.records.records import Records, audited, open_records
from service.records.schema import SchemaError, migrate, require, revision
from service.records.synthetic_store import KEY
from service.records.telemetry.logs import configure_logs
from service.records.witness import NONE, bring_back, check_witness, open_witness
from service.settings import Settings

T = TypeVar("T")
ledger, encryption = Commands(), Commands()

_LOOK_EVERY_S = 1.0


def migrate_(
    check: Annotated[bool, typer.Option("--check")] = False,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS")] = 0,
) -> None:
    """Bring the schemas of database and witness up to date, and print the revisions before and after.

    Stop all services first.

    Args:
        check: Change nothing; exit with 1 if this version cannot work on the database.
        wait: Wait this long for a database that cannot be reached yet; with --check also for another process to
            migrate it.
    """
    settings = Settings()
    check_witness(settings)
    if check:
        looked = _within(wait, lambda: _looked_at(settings.database_url), (MissingDatabaseError, SchemaError))
        typer.echo(f"Revision {looked}: nothing to do")
        return
    require_kept(settings.database_url)
    before, after = _within(wait, lambda: _migrated(settings))
    if before == after:
        typer.echo(f"Revision {after}: nothing to do")
    else:
        typer.echo(f"Migrated from {'an empty database' if before is None else f'revision {before}'} to {after}")


def _looked_at(url: str) -> str | None:
    require_there(url)
    database = open_database(url)
    require(database)
    return revision(database)


def _migrated(settings: Settings) -> tuple[str | None, str]:
    database = open_database(settings.database_url)
    found = migrate(database)
    open_witness(settings, database)
    return found


def _within(seconds: float, work: Callable[[], T], passing: tuple[type[Exception], ...] = ()) -> T:
    """The result of some work, which is tried again for some seconds while a database cannot be reached.

    Args:
        seconds: seconds; 0 tries once.
        work: the work.
        passing: further errors that may pass.
    """
    deadline, noted = time.monotonic() + seconds, False
    retried: tuple[type[Exception], ...] = (sa.exc.OperationalError, WitnessUnavailableError, *passing)
    while True:
        try:
            return work()
        except retried as error:
            cause = error.__cause__ if isinstance(error, WitnessUnavailableError) else error
            if time.monotonic() >= deadline or (isinstance(cause, sa.exc.OperationalError) and not may_pass(cause)):
                raise
        if not noted:
            typer.echo(f"Waiting up to {seconds:g} s for the database", err=True)
        noted = True
        time.sleep(_LOOK_EVERY_S)


@ledger.command()
def status(json: Json = False) -> None:
    """Compare the ledger with its witness: was it restored from a backup, and what was lost? Exits with 1 if so."""
    opened, _, loss = _opened()
    number = opened.audit.end().sequence
    if json:
        lost, ended = (_counts(loss), loss.ended) if loss else ({}, ())
        print_json({"events": number, "restored": loss is not None, "lost": lost, "ended": ended})
    elif loss is None:
        typer.echo(f"The ledger has all that was witnessed ({number} events).")
    else:
        _print_loss(loss)
        typer.echo("If nothing newer can be restored, `dpicl ledger acknowledge` charges what was lost.")
    if loss is not None:
        raise typer.Exit(1)


@ledger.command("acknowledge")
def acknowledge_(yes: Yes = False) -> None:
    """Accept what a restore lost: bring back budgets, plans and charges from the witness, as spent.

    Stop every service on another copy of this ledger first. Charges that were lost stay charged; stored answers,
    exemplars and keys that were lost do not come back, and units forgotten since the backup must be forgotten again.
    """
    opened, witness, loss = _opened()
    if loss is None:
        typer.echo("Nothing to acknowledge: the ledger has all that was witnessed.")
        return
    _print_loss(loss)
    agreed("This cannot be undone. Continue from here?", yes=yes)
    acknowledge(opened.database, witness, loss, by=who(), outside=bring_back)
    typer.echo("Acknowledged: the ledger answers again.")


@ledger.command()
def backup(file: Annotated[Path, typer.Argument(dir_okay=False)]) -> None:
    """Copy a SQLite database while it is in use. Back up PostgreSQL with its own tools, such as pg_dump.

    The copy holds exemplars encrypted; keep the encryption key elsewhere. Leave the witness out of backups.

    Args:
        file: A new file.
    """
    url = parse_url(Settings().database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise ValueError(f"backup: the database is {url.get_backend_name()}; use its own tools, such as pg_dump")
    require_there(Settings().database_url)
    database = open_database(Settings().database_url)
    if revision(database) is None:
        raise nothing_at(Settings().database_url)
    database.dispose()
    try:
        file.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise ValueError(f"backup: {file} exists; name a new file") from None
    try:
        with closing(sqlite3.connect(url.database)) as source, closing(sqlite3.connect(file)) as target:
            source.backup(target)
    except BaseException as error:
        file.unlink()  # half of a backup restores nothing
        if isinstance(error, sqlite3.Error):
            raise ValueError(f"backup: {file} cannot be written ({error}): is its disk full?") from None
        raise
    typer.echo(f"Backed up to {file}")


def _opened() -> tuple[Records, Witness, Loss | None]:
    configure_logs()
    opened = open_records(Settings(), restored=True, create=False)
    if opened.witness is None:
        raise ValueError(f"DPICL_WITNESS_URL is {NONE!r} or not set: without a witness nothing can be compared")
    return opened, opened.witness, find_loss(opened.audit, opened.witness)


def _counts(loss: Loss) -> dict[str, int]:
    """The number of lost events of each kind; of charges, only those that were not voided."""
    counts = Counter(event.kind for event in loss.lost)
    del counts[events.ChargeVoided.kind]
    return dict(sorted((counts | {events.AnswerCharged.kind: len(loss.charges)}).items()))


def _print_loss(loss: Loss) -> None:
    """Print the lost events, and the steps that they require of an admin."""
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
    told = [event for event in loss.lost if loss.comes_back(event) or event.kind == events.UnitForgotten.kind]
    for event in (*loss.begun, *told):
        if event.particulars is not None and (line := event.particulars.if_lost()):
            typer.echo(f"- {event.at:%Y-%m-%d %H:%M} UTC: {line}")
    for name in loss.ended:
        typer.echo(f"- {name} ends: it will no longer answer")
    for name in sorted(loss.regrouped - set(loss.ended)):
        typer.echo(
            f"- tasks of {name} that have topics, if there are some, will give no more answers, since it is not known "
            "who was on which topic: sign another plan"
        )
    for name in loss.closed:
        typer.echo(f"- no further knowledge base will join group {name}")


@encryption.command()
def rewrap(new_key_file: Annotated[Path, typer.Option(dir_okay=False)], yes: Yes = False) -> None:
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
    agreed(f"Let encryption key {new.fingerprint}, and no other, open this database from now on?", yes=yes)
    opened.store.keyring.rewrap(new, audited(events.EncryptionKeyChanged(fingerprint=new.fingerprint, by=who())))
    typer.echo(
        f"Only encryption key {new.fingerprint} opens this database now. Give it to every service and admin. Keep the "
        "key before as long as you keep older backups: nothing else opens them."
    )


@encryption.command()
def reencrypt(yes: Yes = False) -> None:
    """Encrypt all exemplars again, under a new data key. Stop all services first.

    Use it if an encryption key leaked together with a copy of the database, after replacing that key. The copy itself
    stays readable. If it is interrupted, nothing has changed.
    """
    opened = records()
    agreed("Are all services stopped?", yes=yes)
    with progress(transient=True) as bar:
        task = bar.add_task("Encrypting", total=None)
        unreadable = opened.store.reencrypt(
            lambda done, of: bar.update(task, completed=done, total=of), audited(events.ExemplarsReencrypted(by=who()))
        )
    typer.echo("Encrypted all exemplars under a new data key")
    if unreadable:
        typer.echo(f"{unreadable} exemplars did not open: something else changed their rows. No query uses them.")
