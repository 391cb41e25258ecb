"""People sign in, too, whom a provider vouches for."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COLUMNS = (
    sa.Column("issuer", sa.String(200), comment="of a person; NULL: signed in with a key, else key_id is empty"),
    sa.Column("subject", sa.String(200), comment="who a person is to the issuer"),
    sa.Column("name", sa.String(200), comment="what a person is called"),
    sa.Column("role", sa.String(20), comment="a person's"),
)


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("admin_sessions", column)


def downgrade() -> None:
    for column in COLUMNS:
        op.drop_column("admin_sessions", column.name)
