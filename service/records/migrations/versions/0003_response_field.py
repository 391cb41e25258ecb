"""A knowledge base may store a second embedding of each exemplar, its response's.

Breaking although it adds only a column: in a knowledge base that has one, code of before would store exemplars with one
embedding, of which nobody could tell later that the other is missing, and would fail to read those with two.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

breaking = True


def upgrade() -> None:
    comment = "embedded, too; NULL: no second one is"
    op.add_column("knowledge_bases", sa.Column("response_field", sa.String(length=64), nullable=True, comment=comment))


def downgrade() -> None:
    raise NotImplementedError("code of before could not read exemplars with two embeddings; restore a backup instead")
