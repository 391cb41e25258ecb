"""A knowledge base is a sequence of cohorts; what exists is the first.

Breaking although it only adds: code of before would draw an answer from every cohort, whichever its plan pays for, and
would delete a forgotten unit's tag, by which it is known when it comes back.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

breaking = True

BUDGET = "knowledge_base, number, epsilon, delta, opened_at"
GUARDS = (
    ("cohorts_only_closed", f"UPDATE OF {BUDGET}", "", "a cohort cannot be changed, only closed"),
    ("cohorts_closed_once", "UPDATE OF closed_at", "OLD.closed_at IS NOT NULL", "a closed cohort stays closed"),
    ("cohorts_no_delete", "DELETE", "", "a cohort cannot be deleted"),
)


def upgrade() -> None:
    comment = "of each cohort after the first: first position, public size; NULL: there is none"
    op.add_column("knowledge_bases", sa.Column("later_cohorts", sa.JSON(), nullable=True, comment=comment))
    comment = "numbers of the cohorts that are charged, and drawn on, with commas between"
    op.add_column("plans", sa.Column("cohorts", sa.Text(), nullable=False, server_default="1", comment=comment))
    op.create_table(
        "cohorts",
        sa.Column("knowledge_base", sa.String(200), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("epsilon", sa.Text(), nullable=False),
        sa.Column("delta", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), comment="no plan draws on it since; NULL: plans may"),
        sa.PrimaryKeyConstraint("knowledge_base", "number", name=op.f("pk_cohorts")),
        sa.ForeignKeyConstraint(
            ["knowledge_base"], ["budgets.knowledge_base"], name=op.f("fk_cohorts_knowledge_base_budgets")
        ),
        comment="Cohorts of knowledge bases, each with its own lifetime budget.",
    )
    op.execute(
        "INSERT INTO cohorts (knowledge_base, number, epsilon, delta, opened_at) "
        "SELECT knowledge_base, 1, epsilon, delta, opened_at FROM budgets"
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for name, change, condition, message in GUARDS:
        when = f" WHEN ({condition})" if condition else ""
        refuse = (
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END" if sqlite else f"EXECUTE FUNCTION ledger_refuse('{message}')"
        )
        op.execute(f"CREATE TRIGGER {name} BEFORE {change} ON cohorts FOR EACH ROW{when} {refuse}")


def downgrade() -> None:
    raise NotImplementedError("code of before would draw on every cohort; restore a backup instead")
