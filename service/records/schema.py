"""The database's schema: creating it, bringing it up to date, and refusing one that this code was not written for.

Alembic is imported where it is used: that takes a fifth of a second, and many commands open no database.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

import accounting.ledger.tables
import exemplar_store.tables
import service.records.tables
from accounting.ledger.dialects import reading

if TYPE_CHECKING:
    from alembic.config import Config

METADATA = [exemplar_store.tables.metadata, accounting.ledger.tables.metadata, service.records.tables.metadata]
"""Every table of the database."""

_LOCK = 0x64706963_6C  # PostgreSQL's advisory lock for migrating


class SchemaError(Exception):
    """The database's schema is older or newer than this code; the message names the remedy."""


def migrate(database: sa.Engine) -> tuple[str | None, str]:
    """Bring the schema up to date in one transaction, creating it in an empty database.

    Processes that start together may all call this: one migrates, and the others find nothing left to do. No service
    may run meanwhile, unless the database is empty.

    Args:
        database: a database from :func:`service.records.database.open_database`.

    Returns:
        The revision before (None: empty) and after.

    Raises:
        SchemaError: the schema is newer than this code, or the database holds other tables.
    """
    with database.begin() as connection:
        if connection.dialect.name == "postgresql":  # SQLite's transaction has locked the database
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        before = _revision(connection)
        if before != newest():
            _refuse_newer(before)
            if before is None and (others := sa.inspect(connection).get_table_names()):
                raise SchemaError(
                    f"the database is not empty, and holds other tables, such as {min(others)}: name an empty one in "
                    "DPICL_DATABASE_URL"
                )
            from alembic import command

            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return before, newest()


def revision(database: sa.Engine) -> str | None:
    """The schema's revision; None for an empty database."""
    with reading(database) as connection:
        return _revision(connection)


def require(database: sa.Engine) -> None:
    """Check that the schema is the one that this code was written for.

    Raises:
        SchemaError: it is not.
    """
    current = revision(database)
    if current != newest():
        _refuse_newer(current)
        raise SchemaError(
            f"the database {f'is at revision {current}' if current else 'is empty'}, and this version needs revision "
            f"{newest()}: run `dpicl migrate`"
        )


@cache
def newest() -> str:
    """The revision that this code was written for. Revisions are four digits, in ascending order."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def _refuse_newer(current: str | None) -> None:
    if current is not None and not (current.isdecimal() and len(current) == len(newest())):
        raise SchemaError("the database holds tables of another program: name an empty one in DPICL_DATABASE_URL")
    if current is not None and current > newest():
        raise SchemaError(
            f"the database is at revision {current}, and this version knows only those up to {newest()}: use the newer "
            "version that migrated it"
        )


def _revision(connection: sa.Connection) -> str | None:
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "newline")
    return config
