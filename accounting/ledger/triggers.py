"""Triggers of the ledger's tables: some refuse changes of what was written, others count what is written.

Both are part of every statement that writes, and so of its transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from typing_extensions import override

from accounting.ledger.dialects import period


class Trigger(ABC):
    """A trigger, by its ``name``, unique in the database, and its ``table``."""

    name: str
    table: str

    @abstractmethod
    def ddl(self, dialect: str) -> list[str]:
        """The statements that create the trigger on ``sqlite`` or ``postgresql``."""

    def create(self, _table: sa.Table, connection: sa.Connection, **_options: Any) -> None:
        """Create the trigger, its table having just been created."""
        for statement in self.ddl(connection.dialect.name):
            connection.exec_driver_sql(statement)


@dataclass(frozen=True)
class Guard(Trigger):
    """A trigger that refuses one kind of change to the rows of one table.

    Attributes:
        name: the trigger's name.
        table: the table it watches.
        change: ``DELETE``, ``UPDATE`` or ``UPDATE OF column, ...``.
        message: message of the refused statement's error.
        condition: SQL over OLD and NEW; the change is refused where it holds. None refuses always.
        looks_up: whether the condition reads tables, which PostgreSQL allows in a function only.
    """

    name: str
    table: str
    change: str
    message: str
    condition: str | None = None
    looks_up: bool = False

    @override
    def ddl(self, dialect: str) -> list[str]:
        in_function = self.looks_up and dialect == "postgresql"
        when = "" if self.condition is None or in_function else f" WHEN ({self.condition})"
        head = f"CREATE TRIGGER {self.name} BEFORE {self.change} ON {self.table} FOR EACH ROW{when}"
        if dialect == "sqlite":
            return [f"{head} BEGIN SELECT RAISE(ABORT, '{self.message}'); END"]
        if in_function:
            refuse, body = self.name, f"IF {self.condition} THEN {_RAISE}; END IF; RETURN OLD;"
        else:
            refuse, body = "ledger_refuse", f"{_RAISE};"
        return [_function(refuse, body), f"{head} EXECUTE FUNCTION {refuse}('{self.message}')"]


@dataclass(frozen=True)
class Count(Trigger):
    """A trigger that counts rows of one table in others, after they were written.

    Attributes:
        name: the trigger's name.
        table: the table it watches.
        change: ``INSERT`` or ``UPDATE OF column, ...``.
        statements: SQL over NEW, with what differs between dialects in braces: a key of :data:`DIFFERS`.
        condition: SQL as in ``statements``; nothing is counted where it does not hold. None counts always.
    """

    name: str
    table: str
    change: str
    statements: tuple[str, ...]
    condition: str | None = None

    @override
    def ddl(self, dialect: str) -> list[str]:
        counts = " ".join(f"{statement};" for statement in self.statements)
        when = "" if self.condition is None else f" WHEN ({self.condition})"
        head = f"CREATE TRIGGER {self.name} AFTER {self.change} ON {self.table} FOR EACH ROW{when}"
        if dialect == "sqlite":
            create = [f"{head} BEGIN {counts} END"]
        else:
            create = [_function(self.name, f"{counts} RETURN NULL;"), f"{head} EXECUTE FUNCTION {self.name}()"]
        return [statement.format(**DIFFERS[dialect]) for statement in create]


DIFFERS = {
    "sqlite": {
        "day": period("sqlite", "NEW.created_at", "day"),
        "minute": period("sqlite", "NEW.created_at", "minute"),
        "fallback": "json_extract(NEW.answer, '$.fallback')",
    },
    "postgresql": {
        "day": period("postgresql", "NEW.created_at", "day"),
        "minute": period("postgresql", "NEW.created_at", "minute"),
        "fallback": "CAST(CAST(NEW.answer ->> 'fallback' AS BOOLEAN) AS INTEGER)",
    },
}
"""SQL by dialect: the UTC day and minute of a charge, and whether a release fell back (1 or 0; NULL: not shown)."""

_RAISE = "RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'"


def _function(name: str, body: str) -> str:
    """The statement that creates a function of PostgreSQL's for triggers."""
    return f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"


def create_with(tables: sa.MetaData, triggers: Iterable[Trigger]) -> None:
    """Have ``create_all`` create the triggers with their tables."""
    for trigger in triggers:
        sa.event.listen(tables.tables[trigger.table], "after_create", trigger.create)
