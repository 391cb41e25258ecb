"""Which code may write to a database: one that newer code has changed says from which revision on.

During a rolling upgrade old code runs on a schema that is newer than itself. Most changes only add, and old code does
not notice. One that old code would get wrong is declared breaking, and recorded here before it is made; from then on
code that does not know it can append nothing to the audit trail, hence neither charge nor release, sign nor ingest.
:mod:`service.records.schema` migrates.
"""

from __future__ import annotations

import sqlalchemy as sa

from accounting.ledger.tables import breaking_revisions

REVISION = "0011"
"""The newest revision of the schema that this code knows. Revisions are four digits and follow each other."""

OLDEST = sa.select(sa.func.max(breaking_revisions.c.revision).label("oldest"))
"""The oldest revision that code must know; NULL: whichever."""


class SchemaError(Exception):
    """The database's schema is not one that this code can work on; the message says what to do."""


def check(oldest: str | None) -> None:
    """Whether this code may write.

    Args:
        oldest: from :data:`OLDEST`.

    Raises:
        SchemaError: the database was changed by newer code in a way that this code does not know.
    """
    if oldest is not None and oldest > REVISION:
        raise SchemaError(
            f"the database was migrated to revision {oldest}, which this version (revision {REVISION}) cannot work on, "
            "so it charges and changes nothing: stop it, and run the version that migrated"
        )
