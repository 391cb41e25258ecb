"""Reading from, and inserting into, SQLite and PostgreSQL."""

from typing import Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def reading(database: sa.Engine) -> sa.Connection:
    """A connection that only reads; on SQLite it waits for no writer (``service.records.database``). Close it."""
    return database.connect().execution_options(read_only=True)


def insert(dialect: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that can handle conflicts (``on_conflict_do_nothing``, ``on_conflict_do_update``)."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def period(dialect: str, time: str, unit: Literal["day", "minute"]) -> str:
    """SQL for the UTC day (``2030-01-31``) or minute (``2030-01-31 22:30``) of a time in a column."""
    if dialect == "sqlite":  # stored in UTC
        return f"substr({time}, 1, {10 if unit == 'day' else 16})"
    written = "YYYY-MM-DD" if unit == "day" else "YYYY-MM-DD HH24:MI"
    return f"to_char({time} AT TIME ZONE 'UTC', '{written}')"
