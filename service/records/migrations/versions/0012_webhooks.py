"""Alerts at thresholds that can be set, and webhooks that they are delivered to."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alert_settings",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("percents", sa.Text(), nullable=False, comment="of a task's answers, with commas between"),
        sa.Column("days", sa.Integer(), comment="that a task's answers are to last; NULL: no alert"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_settings")),
        comment="What to alert at: one row, or none while nobody has changed it.",
    )
    op.create_table(
        "alerts",
        sa.Column("task", sa.String(450), nullable=False, comment="address with version"),
        sa.Column("rule", sa.String(10), nullable=False, comment="percent or days"),
        sa.Column("threshold", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), comment="what it said; NULL: another of that moment said more"),
        sa.PrimaryKeyConstraint("task", "rule", "threshold", name=op.f("pk_alerts")),
        comment="Alerts that were raised, each once.",
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False, comment="address and signing secret, encrypted"),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        comment="Where alerts are sent, besides the webhook of the settings.",
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("webhook", sa.String(36), comment="NULL: that of the settings"),
        sa.Column("payload", sa.Text(), nullable=False, comment="JSON, byte for byte as it is signed"),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="so far, with one that goes on"),
        sa.Column(
            "due_at", sa.DateTime(timezone=True), comment="when to try next, or the end of the lease; NULL: no more"
        ),
        sa.Column("error", sa.String(100), comment="why the last attempt failed; NULL: it did not, or there was none"),
        sa.ForeignKeyConstraint(
            ["webhook"], ["webhooks.id"], name=op.f("fk_webhook_deliveries_webhook_webhooks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        comment="Messages to webhooks, kept until they arrive or are given up.",
    )
    op.create_index(op.f("ix_webhook_deliveries_due_at"), "webhook_deliveries", ["due_at"])


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    op.drop_table("alerts")
    op.drop_table("alert_settings")
