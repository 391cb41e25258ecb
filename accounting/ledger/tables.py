"""The ledger's tables, and the database triggers that keep history as it was written, and count it.

A group has knowledge bases, a knowledge base has cohorts, plans are charged to cohorts, a plan holds tasks, a task
counts charges, a charge becomes at most one release. What was signed, charged or released is never changed or deleted:
the code has no path that does, and :data:`GUARDS` make the database refuse one (a slip in a script, a later migration).
They do not stop the database's owner.

Reports read counts, which :data:`COUNTS` make the database keep in the transaction of what is counted. A replay counts
anew (:mod:`accounting.replay.books`).
"""

from datetime import UTC, datetime
from decimal import Decimal

import sqlalchemy as sa

from accounting.ledger.triggers import Count, Guard, create_with


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware datetime, stored and returned in UTC on every database (SQLite keeps no time zone)."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Refuse a naive datetime: it does not determine an instant."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; use datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Return the stored datetime, in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class ExactDecimal(sa.types.TypeDecorator[Decimal]):
    """A decimal number stored as its digits, so that no database rounds it."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: sa.Dialect) -> str | None:
        """Write the digits."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Decimal | None:
        """Read the digits."""
        return None if value is None else Decimal(value)


class Numbers(sa.types.TypeDecorator[tuple[int, ...]]):
    """Whole numbers, with commas between."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: tuple[int, ...] | None, dialect: sa.Dialect) -> str | None:
        """Write the numbers."""
        return None if value is None else ",".join(map(str, value))

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> tuple[int, ...] | None:
        """Read the numbers."""
        return None if value is None else tuple(map(int, filter(None, value.split(","))))


NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""The naming convention of indexes and constraints, so that migrations can name them."""

metadata = sa.MetaData(naming_convention=NAMES)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("knowledge_base", sa.String(200), primary_key=True),
    sa.Column("epsilon", ExactDecimal, nullable=False),
    sa.Column("delta", ExactDecimal, nullable=False),
    sa.Column("opened_at", UtcDateTime, nullable=False),
    comment="The lifetime budget of each knowledge base.",  # of its first cohort
)

cohorts = sa.Table(
    "cohorts",
    metadata,
    sa.Column("knowledge_base", sa.ForeignKey(budgets.c.knowledge_base), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epsilon", ExactDecimal, nullable=False),
    sa.Column("delta", ExactDecimal, nullable=False),
    sa.Column("opened_at", UtcDateTime, nullable=False),
    sa.Column("closed_at", UtcDateTime, comment="no plan draws on it since; NULL: plans may"),
    comment="Cohorts of knowledge bases, each with its own lifetime budget.",
)

groups = sa.Table(
    "budget_groups",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("epsilon", ExactDecimal, nullable=False),
    sa.Column("delta", ExactDecimal, nullable=False),
    sa.Column("opened_at", UtcDateTime, nullable=False),
    comment="Groups of knowledge bases, each with one budget for the units that are in several of them.",
)

group_members = sa.Table(
    "budget_group_members",
    metadata,
    sa.Column("knowledge_base", sa.ForeignKey(budgets.c.knowledge_base), primary_key=True),
    sa.Column("group", sa.ForeignKey(groups.c.name), nullable=False),
    sa.Column("joined_at", UtcDateTime, nullable=False),
    comment="The group of a knowledge base, permanently.",
)

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("knowledge_base", sa.ForeignKey(budgets.c.knowledge_base), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("epsilon", ExactDecimal, nullable=False),
    sa.Column("delta", ExactDecimal, nullable=False),
    sa.Column("accountant", sa.String(100), nullable=False),
    sa.Column("document", sa.Text, nullable=False, comment="the calibrated plan, byte for byte as signed"),
    sa.Column("digest", sa.String(64), nullable=False, comment="SHA-256 of the document, in hexadecimal"),
    sa.Column("signed_by", sa.String(200), nullable=False),
    sa.Column("signed_at", UtcDateTime, nullable=False),
    sa.Column(
        "cohorts",
        Numbers,
        nullable=False,
        comment="numbers of the cohorts that are charged, and drawn on, with commas between",
    ),
    sa.UniqueConstraint("knowledge_base", "version"),
    comment="Signed plans: each permanently promises part of its knowledge base's budget.",
)

retirements = sa.Table(
    "plan_retirements",
    metadata,
    sa.Column("plan_id", sa.ForeignKey(plans.c.id), primary_key=True),
    sa.Column("retired_at", UtcDateTime, nullable=False),
    comment="Plans that answer no more, permanently: what they promised stays promised.",
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("plan_id", sa.ForeignKey(plans.c.id), nullable=False),
    sa.Column("name", sa.String(200), nullable=False, comment="of one of its topics, with that after #"),
    sa.Column("answers", sa.Integer, nullable=False, comment="how many answers the plan's noise was calibrated for"),
    sa.Column("charged", sa.Integer, nullable=False, server_default="0", comment="charges that are not voided"),
    # For reports; beside the enforcing counter, which a restore may set to `answers`.
    sa.Column("made", sa.BigInteger, nullable=False, server_default="0", comment="charges ever made"),
    sa.Column("voided", sa.BigInteger, nullable=False, server_default="0", comment="charges that are voided"),
    sa.Column(
        "shown", sa.BigInteger, nullable=False, server_default="0", comment="releases that show a fallback or none"
    ),
    sa.Column("fell_back", sa.BigInteger, nullable=False, server_default="0", comment="releases that show a fallback"),
    sa.UniqueConstraint("plan_id", "name"),
    sa.CheckConstraint("charged >= 0 AND charged <= answers", name="charged_within_answers"),
    comment="A plan's tasks, the counter that enforces each, and counts of their charges and releases.",
)

charges = sa.Table(
    "charges",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("task_id", sa.ForeignKey(tasks.c.id), nullable=False),
    sa.Column("query_digest", sa.LargeBinary, nullable=False),
    sa.Column("key_id", sa.String(200), nullable=False, comment="the API key that asked"),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("lease_until", UtcDateTime, nullable=False, comment="after this its holder is taken for dead"),
    sa.Column("settled_at", UtcDateTime, comment="when it left the state charged"),
    sa.Column("holder", sa.String(36), comment="the process at work on it; NULL: none that shows that it is"),
    sa.CheckConstraint("state IN ('charged', 'released', 'voided', 'lost')", name="state_known"),
    sa.Index(
        "uq_charges_open_query",
        "task_id",
        "query_digest",
        unique=True,
        sqlite_where=sa.text("state = 'charged'"),
        postgresql_where=sa.text("state = 'charged'"),
    ),
    sa.Index(None, "task_id", "created_at"),
    sa.Index(
        "ix_charges_lost",
        "task_id",
        sqlite_where=sa.text("state = 'lost'"),
        postgresql_where=sa.text("state = 'lost'"),
    ),
    comment="One answer's durable cost each; at most one open charge per task and query.",
)

holders = sa.Table(
    "holders",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("beats", sa.BigInteger, nullable=False),
    comment="Processes that have open charges, and a number of each that rises while it is at work.",
)

OPEN, LOST = (charges.c.state == sa.literal_column(f"'{state}'") for state in ("charged", "lost"))
"""Conditions that have an index. The state is written out: SQLite plans a statement anew for each value of it."""

releases = sa.Table(
    "releases",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("charge_id", sa.ForeignKey(charges.c.id), nullable=False, unique=True),
    sa.Column("task_id", sa.ForeignKey(tasks.c.id), nullable=False),
    sa.Column("query_digest", sa.LargeBinary, nullable=False),
    sa.Column("answer", sa.JSON, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Index(None, "task_id", "query_digest"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "task_id", "created_at", "id"),
    comment="Answers that left; one per charge at most.",
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key_id", sa.String(200), primary_key=True),
    sa.Column("idempotency_key", sa.String(300), primary_key=True),
    sa.Column("task_id", sa.ForeignKey(tasks.c.id), nullable=False),
    sa.Column("query_digest", sa.LargeBinary, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    comment="Which query each caller's Idempotency-Key stands for.",
)

quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("key_id", sa.String(200), primary_key=True),
    sa.Column("answers", sa.BigInteger, comment="how many answers the key may be charged; NULL: no limit of its own"),
    sa.Column("charged", sa.BigInteger, nullable=False, comment="its charges that are not voided"),
    sa.CheckConstraint("charged >= 0", name="charged_not_negative"),
    comment="Each API key's share of the budgets; never more than they have.",
)

charges_by_day = sa.Table(
    "charges_by_day",
    metadata,
    sa.Column("task_id", sa.ForeignKey(tasks.c.id), primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True, comment="in UTC, such as 2030-01-31"),
    sa.Column("key_id", sa.String(200), primary_key=True, comment="the API key that asked"),
    sa.Column("answers", sa.BigInteger, nullable=False, comment="charges that are not voided"),
    sqlite_with_rowid=False,
    comment="Charges by task, day and key, for reports.",
)

charges_by_minute = sa.Table(
    "charges_by_minute",
    metadata,
    sa.Column("task_id", sa.ForeignKey(tasks.c.id), primary_key=True),
    sa.Column("minute", sa.String(16), primary_key=True, comment="in UTC, such as 2030-01-31 22:30"),
    sa.Column("answers", sa.BigInteger, nullable=False, comment="charges that are not voided"),
    sa.Column("last_at", UtcDateTime, nullable=False, comment="time of the last charge"),
    sqlite_with_rowid=False,
    comment="Charges by task and minute, for reports.",
)

refusals = sa.Table(
    "refusals",
    metadata,
    sa.Column("task", sa.String(500), primary_key=True, comment="the task's address with its version"),
    sa.Column("key_id", sa.String(200), primary_key=True),
    sa.Column("reason", sa.String(100), primary_key=True),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("last_at", UtcDateTime, nullable=False),
    sa.Column("audited_times", sa.BigInteger, nullable=False, comment="how many of them the audit trail records"),
    sa.Column("audited_at", UtcDateTime, nullable=False),
    comment="Queries refused without a charge, counted.",
)

audit_events = sa.Table(
    "audit_events",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False, comment="JSON, byte for byte as hashed"),
    sa.Column("previous", sa.String(64), nullable=False, comment="the hash of the event before, in hexadecimal"),
    sa.Column("hash", sa.String(64), nullable=False, comment="SHA-256 over this event and the hash before"),
    # What pages of events are found by, from the body and the time.
    sa.Column("key_id", sa.Text, comment="the API key that it is about; NULL: none"),
    sa.Column("actor", sa.Text, comment="who asked for it, did it or signed; NULL: not recorded"),
    sa.Column("knowledge_base", sa.Text, comment="that it names, itself or in a task; NULL: none"),
    sa.Column("day", sa.Date, nullable=False, comment="in UTC"),
    sa.Index(None, "kind", "sequence"),
    *(
        sa.Index(None, name, "sequence", sqlite_where=sa.text(there), postgresql_where=sa.text(there))
        for name, there in (("key_id", "key_id IS NOT NULL"), ("actor", "actor IS NOT NULL"))
    ),
    sa.Index(None, "knowledge_base", "sequence"),
    sa.Index(None, "knowledge_base", "kind", "sequence"),
    sa.Index(None, "day", "sequence"),
    comment="The audit trail: what was granted, spent, released and refused, each bound to all before it.",
)

audit_blocks = sa.Table(
    "audit_blocks",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False, comment="from 0"),
    sa.Column("root", sa.LargeBinary, nullable=False, comment="RFC 6962 root over the block's events"),
    comment="Whole blocks of the audit trail, so that its root is computed without reading all events.",
)

audit_checkpoints = sa.Table(
    "audit_checkpoints",
    metadata,
    sa.Column("origin", sa.String(200), primary_key=True, comment="name of the key that signed"),
    sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False, comment="number of events"),
    sa.Column("note", sa.Text, nullable=False, comment="the signed checkpoint"),
    comment="Signed checkpoints of the audit trail.",
)

_HAS_PLANS = "EXISTS (SELECT 1 FROM plans WHERE plans.knowledge_base = OLD.knowledge_base)"

GUARDS = (
    Guard("budgets_no_update", "budgets", "UPDATE", "a lifetime budget cannot be changed"),
    Guard(
        "budgets_no_delete",
        "budgets",
        "DELETE",
        "a lifetime budget that was promised to plans cannot be deleted",
        _HAS_PLANS,
        looks_up=True,
    ),
    Guard(
        "cohorts_only_closed",
        "cohorts",
        "UPDATE OF knowledge_base, number, epsilon, delta, opened_at",
        "a cohort cannot be changed, only closed",
    ),
    Guard(
        "cohorts_closed_once",
        "cohorts",
        "UPDATE OF closed_at",
        "a closed cohort stays closed",
        "OLD.closed_at IS NOT NULL",
    ),
    Guard(
        "cohorts_no_delete",
        "cohorts",
        "DELETE",
        "a cohort of a knowledge base with plans cannot be deleted",
        _HAS_PLANS,
        looks_up=True,
    ),
    Guard("budget_groups_no_update", "budget_groups", "UPDATE", "a group keeps its budget"),
    Guard("budget_groups_no_delete", "budget_groups", "DELETE", "a group cannot be deleted"),
    Guard("group_members_no_update", "budget_group_members", "UPDATE", "a knowledge base stays in its group"),
    Guard("group_members_no_delete", "budget_group_members", "DELETE", "a knowledge base stays in its group"),
    Guard("plans_no_update", "plans", "UPDATE", "a signed plan cannot be changed: sign another"),
    Guard("plans_no_delete", "plans", "DELETE", "a signed plan cannot be deleted"),
    Guard("plan_retirements_no_update", "plan_retirements", "UPDATE", "a plan stays retired"),
    Guard("plan_retirements_no_delete", "plan_retirements", "DELETE", "a plan stays retired"),
    Guard("tasks_only_charged", "tasks", "UPDATE OF id, plan_id, name, answers", "a signed task cannot be changed"),
    Guard("tasks_no_delete", "tasks", "DELETE", "a signed task cannot be deleted"),
    Guard(
        "charges_only_settled",
        "charges",
        "UPDATE OF id, task_id, query_digest, key_id, created_at, lease_until, holder",
        "a charge cannot be changed, only settled",
    ),
    Guard(
        "charges_transition",
        "charges",
        "UPDATE OF state",
        "this charge is settled already",
        "NOT (OLD.state = 'charged' OR (OLD.state = 'lost' AND NEW.state = 'released'))",
    ),
    Guard("charges_no_delete", "charges", "DELETE", "a charge cannot be deleted"),
    Guard("releases_no_update", "releases", "UPDATE", "a release cannot be changed"),
    Guard("releases_no_delete", "releases", "DELETE", "a release cannot be deleted"),
    Guard("audit_events_no_update", "audit_events", "UPDATE", "the audit trail cannot be changed"),
    Guard("audit_events_no_delete", "audit_events", "DELETE", "the audit trail cannot be shortened"),
    Guard("audit_blocks_no_update", "audit_blocks", "UPDATE", "the audit trail cannot be changed"),
    Guard("audit_blocks_no_delete", "audit_blocks", "DELETE", "the audit trail cannot be shortened"),
    Guard("audit_checkpoints_no_update", "audit_checkpoints", "UPDATE", "a signed checkpoint cannot be changed"),
    Guard("audit_checkpoints_no_delete", "audit_checkpoints", "DELETE", "a signed checkpoint cannot be deleted"),
)

COUNTS = (
    Count(
        "charges_counted",
        "charges",
        "INSERT",
        (
            "UPDATE tasks SET made = made + 1 WHERE id = NEW.task_id",
            "INSERT INTO charges_by_day (task_id, day, key_id, answers) VALUES (NEW.task_id, {day}, NEW.key_id, 1) "
            "ON CONFLICT (task_id, day, key_id) DO UPDATE SET answers = charges_by_day.answers + 1",
            "INSERT INTO charges_by_minute (task_id, minute, answers, last_at) "
            "VALUES (NEW.task_id, {minute}, 1, NEW.created_at) "
            "ON CONFLICT (task_id, minute) DO UPDATE SET answers = charges_by_minute.answers + 1, "
            "last_at = excluded.last_at",
        ),
    ),
    Count(
        "charges_counted_back",
        "charges",
        "UPDATE OF state",
        (
            "UPDATE tasks SET voided = voided + 1 WHERE id = NEW.task_id",
            "UPDATE charges_by_day SET answers = answers - 1 "
            "WHERE task_id = NEW.task_id AND day = {day} AND key_id = NEW.key_id",
            "UPDATE charges_by_minute SET answers = answers - 1 WHERE task_id = NEW.task_id AND minute = {minute}",
        ),
        "NEW.state = 'voided'",
    ),
    Count(
        "releases_counted",
        "releases",
        "INSERT",
        ("UPDATE tasks SET shown = shown + 1, fell_back = fell_back + {fallback} WHERE id = NEW.task_id",),
        "{fallback} IS NOT NULL",
    ),
)

TRIGGERS = (*GUARDS, *COUNTS)
create_with(metadata, TRIGGERS)
