"""The database's schema: bringing it up to date, and whether this code can work on the one it finds.

A migration only adds (:mod:`service.records.migrations.rules`), so code of the previous version keeps working
beside the new one and may be started again, unless it says ``breaking = True``. A breaking one is recorded before it is
made (:mod:`accounting.ledger.compatibility`): whatever code without it has begun to write is committed before that, or
never.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from accounting.ledger import trail
from accounting.ledger.compatibility import OLDEST, REVISION, SchemaError, check
from accounting.ledger.dialects import reading
from accounting.ledger.tables import breaking_revisions

VERSIONS = Path(__file__).parent / "migrations" / "versions"

_LOCK = 0x64706963_6C  # PostgreSQL's advisory lock for migrating
_CHANGING = 0x64706963_6C63  # that of the transaction that does
_TRIES = 60
_LOCK_TIMEOUT_S = 0.5  # less than PostgreSQL's deadlock_timeout, or it might end a charge instead
_PAUSE_S = 1.0
_GIVEN_WAY = ("55P03", "40P01")  # PostgreSQL: lock_not_available, deadlock_detected


def migrate(database: sa.Engine, versions: Sequence[Path] = (VERSIONS,)) -> tuple[str | None, str]:
    """Bring the schema up to date, creating it in an empty database. A newer one stays as it is.

    Processes that start together may all call this: the first migrates, in one transaction, and the others wait for it
    and find nothing left to do. On PostgreSQL a migration that does not get a table's lock soon yields, since all
    later users of that table would wait behind it; then it tries again.

    Args:
        database: from :func:`service.records.database.open_database`.
        versions: folders of migrations.

    Returns:
        The revision before (None: empty) and after.

    Raises:
        SchemaError: the schema is newer than this code can work on, or a table stayed in use for a minute and a half.
    """
    newest, breaking = _known(tuple(versions))
    if (revision(database) or "") < newest:
        with _alone(database):
            if ((found := revision(database)) or "") < newest:
                announced = _announce(database, breaking) if found else []  # an empty database has no other code
                try:
                    _upgrade(database, versions, breaking)
                except BaseException:
                    _withdraw(database, announced)
                    raise
                return found, newest
    require(database)
    unchanged = revision(database) or ""
    return unchanged, unchanged


def revision(database: sa.Engine) -> str | None:
    """The schema's revision; None for an empty database."""
    with reading(database) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def require(database: sa.Engine) -> None:
    """Whether this code can work on the schema as it is.

    Raises:
        SchemaError: it cannot, or not yet; says what to do.
    """
    found = revision(database)
    if found is None or found < REVISION:
        raise SchemaError(
            f"the database {f'is at revision {found}' if found else 'is empty'}, and this version needs revision "
            f"{REVISION}: run `dpicl migrate`"
        )
    with reading(database) as connection:
        check(connection.execute(OLDEST).scalar())


def breaks(migration: Any) -> bool:
    """Whether a migration's module is declared breaking."""
    return bool(getattr(migration, "breaking", False))


@cache
def _known(versions: Sequence[Path]) -> tuple[str, Sequence[str]]:
    """The newest of all migrations, and those that are breaking."""
    scripts = list(ScriptDirectory.from_config(_config(versions)).walk_revisions())
    return max(one.revision for one in scripts), [one.revision for one in scripts if breaks(one.module)]


def _config(versions: Sequence[Path]) -> Config:
    config = Config()
    config.set_main_option("script_location", str(VERSIONS.parent))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(map(str, versions)))
    return config


@contextmanager
def _alone(database: sa.Engine) -> Iterator[None]:
    """Keep other processes from migrating. On SQLite the migration's own transaction does, and keeps out all others."""
    if database.dialect.name == "sqlite":
        yield
        return
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.set_config("idle_in_transaction_session_timeout", "0", True)))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        yield


def _announce(database: sa.Engine, breaking: Sequence[str]) -> list[str]:
    """Let code that does not know these revisions write no more; returns those that nobody had announced."""
    if database.dialect.name == "sqlite":  # nobody writes between this and the migration
        return []
    with database.begin() as connection:
        trail.lock_end(connection)  # who has it writes last before us; who gets it next reads what we write
        return _record(connection, breaking)


def _record(connection: sa.Connection, breaking: Sequence[str]) -> list[str]:
    known = set(connection.scalars(sa.select(breaking_revisions.c.revision)))
    new = [{"revision": one} for one in breaking if one not in known]
    if new:
        connection.execute(sa.insert(breaking_revisions), new)
    return [one["revision"] for one in new]


def _withdraw(database: sa.Engine, announced: list[str]) -> None:
    """After a failure code of before may go on, unless it was only the news of success that was lost."""
    if announced:
        with database.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CHANGING)))
            done = MigrationContext.configure(connection).get_current_revision() or ""
            undone = [one for one in announced if one > done]
            connection.execute(sa.delete(breaking_revisions).where(breaking_revisions.c.revision.in_(undone)))


def _upgrade(database: sa.Engine, versions: Sequence[Path], breaking: Sequence[str]) -> None:
    for tried in range(_TRIES):
        if tried:
            time.sleep(_PAUSE_S)
        try:
            with database.begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CHANGING)))
                    timeout = f"{round(_LOCK_TIMEOUT_S * 1000)}ms"
                    connection.execute(sa.select(sa.func.set_config("lock_timeout", timeout, True)))
                config = _config(versions)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                _record(connection, breaking)
            return
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) not in _GIVEN_WAY:
                raise
    raise SchemaError(
        "the migration yielded each time, since a table was in use by a long transaction: find it in pg_stat_activity "
        "(a backup, an open session), wait for it or end it, and run `dpicl migrate` again. Nothing was changed"
    )
