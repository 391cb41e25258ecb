"""Plans may be proposed, for somebody else to approve."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    document = "the calibrated plan, byte for byte as it would be signed"
    op.create_table(
        "proposals",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("knowledge_base", sa.String(200), nullable=False),
        sa.Column("document", sa.Text(), nullable=False, comment=document),
        sa.Column(
            "after_version", sa.Integer(), nullable=False, comment="the newest plan then; a newer one makes it lapse"
        ),
        sa.Column("proposed_by", sa.String(200), nullable=False),
        sa.Column("proposed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proposals")),
        comment="Plans that somebody else has to approve.",
    )


def downgrade() -> None:
    op.drop_table("proposals")
