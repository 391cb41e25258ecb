"""Keys may have the roles viewer and auditor, too.

Breaking: code of before cannot list such a key, and SQLite changes a CHECK only by making the table again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

breaking = True

KNOWN = "role IN ('admin', 'analyst', 'viewer', 'auditor')"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f("ck_api_keys_role_known"), "api_keys", type_="check")
        op.create_check_constraint(op.f("ck_api_keys_role_known"), "api_keys", KNOWN)
        return
    op.execute("CREATE TABLE api_keys_before AS SELECT * FROM api_keys")
    op.drop_table("api_keys")
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("rate_per_minute", sa.Integer()),
        sa.Column("scope", sa.Text()),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint(KNOWN, name=op.f("ck_api_keys_role_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_api_keys_token_sha256")),
    )
    op.execute(
        "INSERT INTO api_keys SELECT id, name, role, token_sha256, created_at, last_used_at, revoked_at, "
        "rate_per_minute, scope, expires_at FROM api_keys_before"
    )
    op.drop_table("api_keys_before")


def downgrade() -> None:
    raise NotImplementedError("code of before cannot list keys of other roles; restore a backup instead")
