"""Alembic's entry point: migrates over the connection from :mod:`service.records.schema`, and minds the rules."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import context

import exemplar_store.tables
from accounting.ledger import tables as ledger_tables
from service.records import tables
from service.records.migrations.rules import not_additive
from service.records.schema import breaks

connection: sa.Connection = context.config.attributes["connection"]
statements: list[str] = []


@sa.event.listens_for(connection, "before_cursor_execute")
def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
    statements.append(statement)


def mind_the_rules(ctx: Any, step: Any, heads: Collection[Any], run_args: Mapping[str, Any]) -> None:
    migration = step.up_revision
    free = migration.down_revision is None or breaks(migration.module)  # the first finds nothing to break
    found = [] if free else not_additive(statements)
    statements.clear()
    if found:
        raise ValueError(
            f"migration {step.up_revision_id} does what code of the version before may not survive; declare it "
            f"`breaking = True`, or only add: {'; '.join(found)}"
        )


context.configure(
    connection=connection,
    target_metadata=[
        exemplar_store.tables.metadata,
        ledger_tables.metadata,
        tables.metadata,
    ],
    transactional_ddl=True,
    on_version_apply=mind_the_rules,
)
try:
    with context.begin_transaction():
        context.run_migrations()
finally:
    sa.event.remove(connection, "before_cursor_execute", note)
