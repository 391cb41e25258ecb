"""Alembic's entry point: migrates over the connection that ``service.database.migration_config`` hands over."""

from alembic import context

import exemplar_store.tables
from accounting import tables as ledger_tables
from service import engine_record, keys
from service.dashboard import sessions as _admin_sessions  # noqa: F401  (a table of the keys' metadata)

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=[
        exemplar_store.tables.metadata,
        ledger_tables.metadata,
        keys.metadata,
        engine_record.metadata,
    ],
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
