"""What a migration may do to a database that code of the version before works on at the same time: only add.

Adding is a new table with whatever belongs to it; a new column that may be missing or has a default in the database,
so that old code can insert without it; an index. A unique index or a CHECK refuses what old code may write, so it is
breaking, as is whatever drops, renames or rewrites. An index on a table that is there must be made ``IF NOT EXISTS``:
making it locks writers out of a large table on PostgreSQL, so that an operator may want to make it beforehand,
``CONCURRENTLY``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CREATE_TABLE = re.compile(r'CREATE TABLE "?(\w+)"?')
_ADD_COLUMN = re.compile(r'ALTER TABLE "?\w+"? ADD COLUMN (?P<column>.+)', re.DOTALL)
_HARMLESS = re.compile(
    r"SELECT |PRAGMA |COMMENT ON |CREATE INDEX IF NOT EXISTS |(INSERT INTO|UPDATE|DELETE FROM) alembic_version\b"
)
_OF_A_TABLE = re.compile(
    r'(?:CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?"?\w+"? ON|CREATE TRIGGER .*? ON|INSERT INTO|ALTER TABLE)'
    r' "?(\w+)"?',
    re.DOTALL,
)


def not_additive(statements: Iterable[str]) -> list[str]:
    """Those of a migration's statements that code of the version before might not survive.

    Args:
        statements: SQL, as the database is given it.
    """
    new: set[str] = set()
    found = []
    for statement in map(str.strip, statements):
        if created := _CREATE_TABLE.match(statement):
            new.add(created[1])
        elif not (_HARMLESS.match(statement) or _adds_column(statement) or _table(statement) in new):
            found.append(statement)
    return found


def _adds_column(statement: str) -> bool:
    added = _ADD_COLUMN.fullmatch(statement)
    if added is None:
        return False
    column = added["column"]
    fills_itself = "NOT NULL" not in column or "DEFAULT" in column
    return fills_itself and not re.search(r"\b(UNIQUE|CHECK|PRIMARY KEY|REFERENCES|GENERATED)\b", column)


def _table(statement: str) -> str:
    named = _OF_A_TABLE.match(statement)
    return named[1] if named else ""
