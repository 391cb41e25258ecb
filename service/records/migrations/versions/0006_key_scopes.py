"""A key may be for some tasks only, and end by itself.

Breaking although it adds only columns: code of before would let such a key ask anything, for ever.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

breaking = True


def upgrade() -> None:
    comment = "knowledge bases and tasks that it may ask, with commas between; NULL: all"
    op.add_column("api_keys", sa.Column("scope", sa.Text(), nullable=True, comment=comment))
    comment = "refused from then on; NULL: never"
    op.add_column("api_keys", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True, comment=comment))


def downgrade() -> None:
    raise NotImplementedError("code of before would let keys ask what they are not for; restore a backup instead")
