"""The ledger's witness in the service: opening it, keeping it up to date, and bringing back what a restore lost."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog

from accounting.ledger.errors import LedgerError
from accounting.ledger.events import (
    CohortOpened,
    ExemplarsIngested,
    KeyChanged,
    KeyRevoked,
    KeyRotated,
    KnowledgeBaseDeleted,
    Particulars,
    RemoteEngineChanged,
    UploadEnded,
)
from accounting.ledger.quotas import set_quota
from accounting.ledger.trail import AuditEvent
from accounting.ledger.witness import LedgerRestoredError, Witness, WitnessUnavailableError
from exemplar_store.cohorts import add_lost, note_lost_arrivals
from exemplar_store.knowledge_base import delete_empty, find
from exemplar_store.tables import knowledge_bases
from service.records.api_keys import replace_token
from service.records.database import open_database, parse_url, sqlite_file
from service.records.tables import api_keys
from service.settings import Settings

log = structlog.get_logger()

NONE = "none"
_EVERY_S = 1.0
_CONNECT_S = "5"
_STATEMENT_S = 10.0


def open_witness(settings: Settings, ledger: sa.Engine, *, create: bool = True) -> Witness | None:
    """The witness that the settings name; None where they name none.

    Args:
        settings: the settings, with ``witness_url``; where it is not set, the witness of a SQLite database is a file
            beside it.
        ledger: the ledger's database.
        create: whether to create a SQLite file that does not exist.

    Raises:
        accounting.ledger.witness.WitnessUnavailableError: it does not answer, or is missing and is not to be created.
        ValueError: ``witness_url`` is not the URL of a database, or is that of the ledger's own database.
    """
    url = witness_url(settings)
    if url is None:
        return None
    if parse_url(url, "DPICL_WITNESS_URL") == parse_url(settings.database_url):
        raise ValueError("DPICL_WITNESS_URL: the witness needs its own database, on other storage")
    witness = Witness(ledger, _open(url, create=create))
    witness.create()
    return witness


def open_witness_alone(settings: Settings) -> sa.Engine:
    """The witness's database, for a keeper who has no access to the ledger.

    Raises:
        accounting.ledger.witness.WitnessUnavailableError: the witness is missing.
        ValueError: the settings name no witness, or ``witness_url`` is not the URL of a database.
    """
    url = witness_url(settings)
    if url is None:
        raise ValueError("DPICL_WITNESS_URL: name the witness's database")
    return _open(url, create=False)


def _open(url: str, *, create: bool) -> sa.Engine:
    parsed = parse_url(url, "DPICL_WITNESS_URL")
    file = sqlite_file(url, "DPICL_WITNESS_URL")
    if not create and file is not None and not file.is_file():
        raise WitnessUnavailableError(
            f"the ledger's witness {file.absolute()} is not there: correct DPICL_WITNESS_URL, or put the file back; if "
            "it is lost, see `dpicl ledger status`"
        )
    # Charges wait for it, but not indefinitely.
    if parsed.get_backend_name() == "postgresql" and "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": _CONNECT_S})
    return open_database(parsed.render_as_string(hide_password=False), statement_timeout_s=_STATEMENT_S)


def witness_url(settings: Settings) -> str | None:
    """The URL of the witness; None where there is none."""
    if settings.witness_url is not None:
        given = settings.witness_url.get_secret_value()
        return None if given.lower() == NONE else given
    ledger = parse_url(settings.database_url)
    if ledger.get_backend_name() != "sqlite" or not ledger.database or ledger.database == ":memory:":
        return None
    file = Path(ledger.database)
    return f"sqlite:///{file.with_name(f'{file.stem}.witness{file.suffix}')}"


def check_witness(settings: Settings) -> None:
    """Check that the settings name a witness, or expressly do without one.

    Raises:
        ValueError: they do neither.
    """
    if parse_url(settings.database_url).get_backend_name() == "postgresql" and settings.witness_url is None:
        raise ValueError(
            "DPICL_WITNESS_URL: name the ledger's witness, a second PostgreSQL database that is not backed up "
            "and restored together with the ledger: without it, a restored backup would give spent answers back. "
            f"DPICL_WITNESS_URL={NONE} does without, and leaves a restored ledger unnoticed"
        )


async def keep_witnessed(witness: Witness) -> None:
    """Copy events that no caller waits for (admins' changes, releases) once a second; log when it begins to fail."""
    failing = False
    while True:
        try:
            await asyncio.to_thread(witness.catch_up)
            failing = False
        except LedgerError as error:
            if not failing:
                restored = isinstance(error, LedgerRestoredError)
                log.error("ledger_restored" if restored else "witness_unavailable", advice=str(error))
            failing = True
        await asyncio.sleep(_EVERY_S)


def bring_back(connection: sa.Connection, event: AuditEvent) -> list[Particulars]:
    """Do again what a lost event did outside the ledger: cohorts opened, keys changed, engines allowed.

    Args:
        connection: the connection of the transaction that brings charges back.
        event: an event that was witnessed, and lost in the restore.
    """
    match happened := event.particulars:
        case KeyRevoked(key=key):
            standing = sa.and_(api_keys.c.id == key, api_keys.c.revoked_at.is_(None))
            revoked = connection.execute(sa.update(api_keys).where(standing).values(revoked_at=datetime.now(UTC)))
            return [happened] if revoked.rowcount else []
        case KeyRotated(key=key, token_sha256=digest, until=until):
            ends = None if until is None else datetime.fromisoformat(until)
            return [happened] if replace_token(connection, key, bytes.fromhex(digest), ends, datetime.now(UTC)) else []
        case KeyChanged(key=key, quota=quota, rate_per_minute=rate):
            limited = sa.update(api_keys).where(api_keys.c.id == key).values(rate_per_minute=rate)
            if connection.execute(limited).rowcount:
                set_quota(connection, key, quota)
            return [happened]
        case ExemplarsIngested(knowledge_base=name) | UploadEnded(knowledge_base=name):
            note_lost_arrivals(connection, name)
        case KnowledgeBaseDeleted(knowledge_base=name):
            if row := find(connection, name, lock=True):
                delete_empty(connection, row)
        case CohortOpened(knowledge_base=name, cohort=number, public_size=public_size):
            add_lost(connection, name, number, public_size)
        case RemoteEngineChanged(knowledge_base=name, allowed=allowed):
            if row := find(connection, name, lock=True):
                values: dict[str, Any] = {"remote_engine": allowed}
                connection.execute(sa.update(knowledge_bases).where(knowledge_bases.c.id == row.id).values(values))
            return [happened]
    return []
