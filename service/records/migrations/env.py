"""Alembic's entry point: migrates over the connection from :mod:`service.records.schema`."""

from alembic import context

from service.records.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
