"""Knowledge bases may share a budget in a group.

Breaking although it only adds: code of before would sign more than a group has left.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

breaking = True

GUARDS = (
    ("budget_groups_no_update", "budget_groups", "UPDATE", "a group keeps its budget"),
    ("budget_groups_no_delete", "budget_groups", "DELETE", "a group cannot be deleted"),
    ("group_members_no_update", "budget_group_members", "UPDATE", "a knowledge base stays in its group"),
    ("group_members_no_delete", "budget_group_members", "DELETE", "a knowledge base stays in its group"),
)


def upgrade() -> None:
    op.create_table(
        "budget_groups",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("epsilon", sa.Text(), nullable=False),
        sa.Column("delta", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_budget_groups")),
        comment="Groups of knowledge bases, each with one budget for whoever is in several of them.",
    )
    op.create_table(
        "budget_group_members",
        sa.Column("knowledge_base", sa.String(200), nullable=False),
        sa.Column("group", sa.String(200), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("knowledge_base", name=op.f("pk_budget_group_members")),
        sa.ForeignKeyConstraint(
            ["knowledge_base"], ["budgets.knowledge_base"], name=op.f("fk_budget_group_members_knowledge_base_budgets")
        ),
        sa.ForeignKeyConstraint(
            ["group"], ["budget_groups.name"], name=op.f("fk_budget_group_members_group_budget_groups")
        ),
        comment="Which group a knowledge base is in, for ever.",
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for name, table, change, message in GUARDS:
        refuse = (
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END" if sqlite else f"EXECUTE FUNCTION ledger_refuse('{message}')"
        )
        op.execute(f"CREATE TRIGGER {name} BEFORE {change} ON {table} FOR EACH ROW {refuse}")


def downgrade() -> None:
    raise NotImplementedError("code of before would sign more than a group has left; restore a backup instead")
