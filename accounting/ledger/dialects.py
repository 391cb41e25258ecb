"""Reading from, and inserting into, SQLite and PostgreSQL."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def reading(database: sa.Engine) -> sa.Connection:
    """A connection that only reads; on SQLite it waits for no writer (``service.records.database``). Close it."""
    return database.connect().execution_options(read_only=True)


def insert(dialect: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that can handle conflicts (``on_conflict_do_nothing``, ``on_conflict_do_update``)."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
