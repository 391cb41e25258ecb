"""What sanitised texts have cost, and the texts as they left."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "text_costs",
        sa.Column("owner", sa.String(200), nullable=False, comment="whose texts: a key's id, or a person"),
        sa.Column("conversation", sa.String(200), nullable=False, comment="empty for all of the owner's together"),
        sa.Column("texts", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.BigInteger(), nullable=False, comment="drawn, each at its epsilon"),
        sa.Column("epsilon", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "conversation", name=op.f("pk_text_costs")),
        comment="What sanitised texts have cost whoever they are about.",
    )
    op.create_table(
        "sanitized_texts",
        sa.Column(
            "digest", sa.LargeBinary(), nullable=False, comment="of owner, text and sanitiser, under a secret key"
        ),
        sa.Column("sanitized", sa.Text(), nullable=False, comment="what may leave, and has the text's own protection"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sanitized_texts")),
        comment="Sanitised texts: the same text of the same owner is never drawn twice.",
    )


def downgrade() -> None:
    op.drop_table("sanitized_texts")
    op.drop_table("text_costs")
