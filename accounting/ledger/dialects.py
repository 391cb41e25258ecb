"""What the ledger's modules say to either database."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def reading(database: sa.Engine) -> sa.Connection:
    """A connection that only reads; on SQLite it waits for no writer (``service.records.database``). Close it."""
    return database.connect().execution_options(read_only=True)


def insert(dialect: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that may say what is done on a conflict."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
