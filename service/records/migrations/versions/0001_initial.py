"""The first schema: exemplar store, ledger, API keys.

The triggers are spelled out as they were at this revision; ``accounting.ledger.tables.GUARDS`` says what they are for.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

GUARDS = (
    ("budgets_no_update", "budgets", "UPDATE", "", "a lifetime budget cannot be changed"),
    ("budgets_no_delete", "budgets", "DELETE", "", "a lifetime budget cannot be deleted"),
    ("plans_no_update", "plans", "UPDATE", "", "a signed plan cannot be changed: sign another"),
    ("plans_no_delete", "plans", "DELETE", "", "a signed plan cannot be deleted"),
    ("tasks_only_charged", "tasks", "UPDATE OF id, plan_id, name, answers", "", "a signed task cannot be changed"),
    ("tasks_no_delete", "tasks", "DELETE", "", "a signed task cannot be deleted"),
    (
        "charges_only_settled",
        "charges",
        "UPDATE OF id, task_id, query_digest, key_id, created_at, lease_until",
        "",
        "a charge cannot be changed, only settled",
    ),
    (
        "charges_transition",
        "charges",
        "UPDATE OF state",
        "NOT (OLD.state = 'charged' OR (OLD.state = 'lost' AND NEW.state = 'released'))",
        "this charge is settled already",
    ),
    ("charges_no_delete", "charges", "DELETE", "", "a charge cannot be deleted"),
    ("releases_no_update", "releases", "UPDATE", "", "a release cannot be changed"),
    ("releases_no_delete", "releases", "DELETE", "", "a release cannot be deleted"),
    ("audit_events_no_update", "audit_events", "UPDATE", "", "the audit trail cannot be changed"),
    ("audit_events_no_delete", "audit_events", "DELETE", "", "the audit trail cannot be shortened"),
)


def upgrade() -> None:
    op.create_table(
        "data_keys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_keys")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "key_wraps",
        sa.Column("data_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "fingerprint", sa.String(length=16), nullable=False, comment="of the master key that opens this wrap"
        ),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False, comment="when that master key was added"),
        sa.ForeignKeyConstraint(["data_key"], ["data_keys.id"], name=op.f("fk_key_wraps_data_key_data_keys")),
        sa.PrimaryKeyConstraint("data_key", "fingerprint", name=op.f("pk_key_wraps")),
        comment="Every data key once for each master key.",
    )
    op.create_table(
        "knowledge_bases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("public_size", sa.BigInteger(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("embedded_field", sa.String(length=64), nullable=False),
        sa.Column("remote_engine", sa.Boolean(), nullable=False),
        sa.Column("embedding_dimension", sa.Integer(), nullable=True),
        sa.Column("data_key", sa.Integer(), nullable=False),
        sa.Column("key_salt", sa.LargeBinary(length=16), nullable=False),
        sa.Column("key_check", sa.LargeBinary(length=16), nullable=False),
        sa.Column(
            "earlier_tag_keys",
            sa.LargeBinary(),
            nullable=False,
            comment="encrypted; empty before the first renewal",
        ),
        sa.Column("next_position", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["data_key"], ["data_keys.id"], name=op.f("fk_knowledge_bases_data_key_data_keys")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_knowledge_bases")),
        sa.UniqueConstraint("name", name=op.f("uq_knowledge_bases_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "units",
        sa.Column("kb_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("unit_tag", sa.LargeBinary(length=16), nullable=False),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.id"], name=op.f("fk_units_kb_id_knowledge_bases")),
        sa.PrimaryKeyConstraint("kb_id", "position", name=op.f("pk_units")),
        sa.UniqueConstraint("kb_id", "unit_tag", name=op.f("uq_units_kb_id_unit_tag")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "exemplars",
        sa.Column("kb_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content_tag", sa.LargeBinary(length=16), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["kb_id", "position"], ["units.kb_id", "units.position"], name=op.f("fk_exemplars_kb_id_position_units")
        ),
        sa.PrimaryKeyConstraint("kb_id", "position", "content_tag", name=op.f("pk_exemplars")),
    )
    op.create_table(
        "budgets",
        sa.Column("knowledge_base", sa.String(length=200), nullable=False),
        sa.Column("epsilon", sa.Text(), nullable=False),
        sa.Column("delta", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("knowledge_base", name=op.f("pk_budgets")),
        comment="The lifetime budget of each knowledge base.",
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("knowledge_base", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("epsilon", sa.Text(), nullable=False),
        sa.Column("delta", sa.Text(), nullable=False),
        sa.Column("accountant", sa.String(length=100), nullable=False),
        sa.Column("document", sa.Text(), nullable=False, comment="the calibrated plan, byte for byte as signed"),
        sa.Column("digest", sa.String(length=64), nullable=False, comment="SHA-256 of the document, in hexadecimal"),
        sa.Column("signed_by", sa.String(length=200), nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["knowledge_base"], ["budgets.knowledge_base"], name=op.f("fk_plans_knowledge_base_budgets")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
        sa.UniqueConstraint("knowledge_base", "version", name=op.f("uq_plans_knowledge_base_version")),
        comment="Signed plans: each promises part of its knowledge base's budget, for ever.",
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column(
            "answers", sa.Integer(), nullable=False, comment="how many answers the plan's noise was calibrated for"
        ),
        sa.Column("charged", sa.Integer(), server_default="0", nullable=False, comment="charges that are not voided"),
        sa.CheckConstraint("charged >= 0 AND charged <= answers", name=op.f("ck_tasks_charged_within_answers")),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name=op.f("fk_tasks_plan_id_plans")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("plan_id", "name", name=op.f("uq_tasks_plan_id_name")),
        comment="A plan's tasks and the counter that enforces each.",
    )
    op.create_table(
        "charges",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("query_digest", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(length=200), nullable=False, comment="the API key that asked"),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "lease_until", sa.DateTime(timezone=True), nullable=False, comment="after this its holder is taken for dead"
        ),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True, comment="when it left the state charged"),
        sa.CheckConstraint("state IN ('charged', 'released', 'voided', 'lost')", name=op.f("ck_charges_state_known")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_charges_task_id_tasks")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charges")),
        comment="One answer's durable cost each; at most one open charge per task and query.",
    )
    op.create_index(
        "uq_charges_open_query",
        "charges",
        ["task_id", "query_digest"],
        unique=True,
        sqlite_where=sa.text("state = 'charged'"),
        postgresql_where=sa.text("state = 'charged'"),
    )
    op.create_index(op.f("ix_charges_task_id_created_at"), "charges", ["task_id", "created_at"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("key_id", sa.String(length=200), nullable=False),
        sa.Column("idempotency_key", sa.String(length=300), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("query_digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_idempotency_keys_task_id_tasks")),
        sa.PrimaryKeyConstraint("key_id", "idempotency_key", name=op.f("pk_idempotency_keys")),
        comment="Which query each caller's Idempotency-Key stands for.",
    )
    op.create_table(
        "releases",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("charge_id", sa.String(length=36), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("query_digest", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["charge_id"], ["charges.id"], name=op.f("fk_releases_charge_id_charges")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_releases_task_id_tasks")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
        sa.UniqueConstraint("charge_id", name=op.f("uq_releases_charge_id")),
        comment="Answers that left; one per charge at most.",
    )
    op.create_index(op.f("ix_releases_task_id_query_digest"), "releases", ["task_id", "query_digest"], unique=False)
    op.create_index(op.f("ix_releases_created_at_id"), "releases", ["created_at", "id"], unique=False)
    op.create_table(
        "quotas",
        sa.Column("key_id", sa.String(length=200), nullable=False),
        sa.Column(
            "answers",
            sa.BigInteger(),
            nullable=True,
            comment="how many answers the key may be charged; NULL: no limit of its own",
        ),
        sa.Column("charged", sa.BigInteger(), nullable=False, comment="its charges that are not voided"),
        sa.CheckConstraint("charged >= 0", name=op.f("ck_quotas_charged_not_negative")),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_quotas")),
        comment="Each API key's share of the budgets; never more than they have.",
    )
    op.create_table(
        "refusals",
        sa.Column("task", sa.String(length=500), nullable=False, comment="the task's address with its version"),
        sa.Column("key_id", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.String(length=100), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "audited_times", sa.BigInteger(), nullable=False, comment="how many of them the audit trail tells of"
        ),
        sa.Column("audited_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("task", "key_id", "reason", name=op.f("pk_refusals")),
        comment="Queries refused without a charge, counted.",
    )
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False, comment="JSON, byte for byte as hashed"),
        sa.Column(
            "previous", sa.String(length=64), nullable=False, comment="the hash of the event before, in hexadecimal"
        ),
        sa.Column("hash", sa.String(length=64), nullable=False, comment="SHA-256 over this event and the hash before"),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit_events")),
        comment="The audit trail: what was granted, spent, released and refused, each bound to all before it.",
    )
    op.create_index(op.f("ix_audit_events_kind_sequence"), "audit_events", ["kind", "sequence"], unique=False)
    op.create_table(
        "breaking_revisions",
        sa.Column("revision", sa.String(length=4), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_breaking_revisions")),
        comment="Revisions of the schema that code must know to write here.",
    )
    op.create_table(
        "rate_limits",
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("free_at", sa.Float(), nullable=False, comment="when all of its burst is free again, as Unix time"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_rate_limits")),
        comment="How fast each caller has been: one number by the generic cell rate algorithm.",
    )
    op.create_table(
        "http_responses",
        sa.Column("surface", sa.String(length=20), nullable=False, comment="api or dashboard"),
        sa.Column("status", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "problem",
            sa.String(length=100),
            nullable=False,
            comment="what the response says is wrong; empty for none",
        ),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("surface", "status", "problem", name=op.f("pk_http_responses")),
        comment="How requests were answered, counted for the metrics.",
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rate_per_minute", sa.Integer(), nullable=True, comment="requests; NULL: no limit"),
        sa.CheckConstraint("role IN ('admin', 'analyst')", name=op.f("ck_api_keys_role_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_api_keys_token_sha256")),
        comment="API keys by the hash of their token.",
    )
    op.create_table(
        "admin_sessions",
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(length=36), nullable=False),
        sa.Column("csrf", sa.String(length=64), nullable=False, comment="what the session's forms must carry"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_admin_sessions")),
        comment="Admins signed in to the dashboard, by the hash of their cookie.",
    )
    op.create_table(
        "engines",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("isolation", sa.Text(), nullable=False),
        sa.Column("is_llm", sa.Boolean(), nullable=False),
        sa.Column("notice", sa.Text(), nullable=False),
        sa.Column("remote", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_engines")),
        comment="Engines as they described themselves; a row where one differs from the one before.",
    )
    _create_guards()


def _create_guards() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    if not sqlite:
        op.execute(
            "CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$"
        )
    for name, table, change, condition, message in GUARDS:
        when = f" WHEN ({condition})" if condition else ""
        head = f"CREATE TRIGGER {name} BEFORE {change} ON {table} FOR EACH ROW{when}"
        refuse = (
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END" if sqlite else f"EXECUTE FUNCTION ledger_refuse('{message}')"
        )
        op.execute(f"{head} {refuse}")


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first schema; undoing it would forget what was spent")
