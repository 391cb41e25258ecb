"""A key's token may be replaced, and the one before stand for a while."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "when its token was replaced last; NULL: never"
    op.add_column("api_keys", sa.Column("rotated_at", sa.DateTime(timezone=True), nullable=True, comment=comment))
    op.create_table(
        "retired_tokens",
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(36), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False, comment="refused from then on"),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_retired_tokens")),
        comment="Tokens that were replaced and still stand for their key for a while.",
    )


def downgrade() -> None:
    op.drop_table("retired_tokens")
    op.drop_column("api_keys", "rotated_at")
