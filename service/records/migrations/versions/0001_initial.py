"""The first schema: every table as the code defines it.

Once a release has created databases with it, a change of a table is a migration of its own, and comes with this one
spelling out the tables as they were.
"""

from alembic import op

from service.records.schema import METADATA

revision = "0001"
down_revision = None


def upgrade() -> None:
    for metadata in METADATA:
        metadata.create_all(op.get_bind(), checkfirst=False)
