"""Replaying the ledger: does what it counts agree with what it wrote down?

The counters enforce the plans, the charges are the record. Every statement below must hold in every committed state of
the database, whatever crashed or raced; a privacy engineer can check it on a running service.
"""

import json
from collections import Counter, defaultdict
from typing import Any

import sqlalchemy as sa

from accounting.ledger import events, trail
from accounting.ledger.amounts import rest
from accounting.ledger.budgets import address, digest
from accounting.ledger.cohorts import cohorts_of
from accounting.ledger.dialects import period
from accounting.ledger.promised import charged_to, left_by, plans_of
from accounting.ledger.tables import (
    audit_events,
    budgets,
    charges,
    charges_by_day,
    charges_by_minute,
    cohorts,
    group_members,
    groups,
    plans,
    releases,
    retirements,
    tasks,
)


def violations(connection: sa.Connection) -> list[str]:
    """The ledger's problems, in words; an empty list if there are none.

    Checked: signed plans stay within the lifetime budget of each cohort that they name, and within that of their
    knowledge base's group; each plan's document has its digest; each task's ``released ≤ charges not voided = counter ≤
    answers``, except that a restore which ends a knowledge base, or its tasks with topics, sets their
    counters to ``answers``; releases and charges in
    state ``released`` are paired one to one, with the same task and query; the counts for reports are those of the
    charges and releases; and the audit trail has as many
    budgets, groups, plans, charges, voids and releases as there are (:mod:`accounting.replay.trail` follows it event by
    event), each found by its time and its body.

    Args:
        connection: connection whose reads should see one snapshot: a SQLite transaction does, on PostgreSQL use
            REPEATABLE READ while others write.
    """
    return [
        *_budgets(connection),
        *_groups(connection),
        *_tasks(connection),
        *_releases(connection),
        *_counts(connection),
        *_audit_trail(connection),
        *_found(connection),
    ]


def _budgets(connection: sa.Connection) -> list[str]:
    wrong = []
    for lifetime in connection.execute(sa.select(budgets)).all():
        signed = connection.execute(plans_of(lifetime.knowledge_base)).all()
        granted = {
            number: (cohort.epsilon, cohort.delta)
            for number, cohort in cohorts_of(connection, lifetime.knowledge_base).items()
        }
        for number, budget in granted.items():
            promised, free = rest(budget, charged_to(number, signed))
            if min(free) < 0:
                where = lifetime.knowledge_base + (f", cohort {number}" if len(granted) > 1 else "")
                wrong.append(f"{where}: plans promise {promised}, more than the lifetime budget")
        numbers = list(granted)
        if numbers != list(range(1, len(numbers) + 1)) or granted.get(1) != (lifetime.epsilon, lifetime.delta):
            wrong.append(f"{lifetime.knowledge_base}: cohorts {numbers} are not those that were opened")
        wrong += [
            f"{lifetime.knowledge_base}: plan {plan.version} draws on cohorts {plan.cohorts}, which are not all there"
            for plan in signed
            if not plan.cohorts or not set(plan.cohorts) <= set(numbers)
        ]
        wrong += [
            f"{lifetime.knowledge_base}: the document of plan {plan.version} does not have the digest that was signed"
            for plan in signed
            if digest(plan.document) != plan.digest
        ]
    return wrong


def _groups(connection: sa.Connection) -> list[str]:
    every = connection.execute(sa.select(groups)).all()
    return [
        f"group {group.name}: plans promise more than its budget"
        for group in every
        if min(left_by(connection, group)) < 0
    ]


def _tasks(connection: sa.Connection) -> list[str]:
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    by_state = sa.select(charges.c.task_id, charges.c.state, sa.func.count()).group_by("task_id", "state")
    for task_id, state, number in connection.execute(by_state):
        counted[task_id][state] = number
    wrong = []
    restores = trail.restores(connection)
    ended, used_up = (
        {name for one in restores for name in one.ended},
        {where for one in restores for where in one.spent},
    )
    for task in connection.execute(sa.select(tasks, plans.c.knowledge_base, plans.c.version).join(plans)):
        states = counted[task.id]
        spent = states.total() - states["voided"]
        where = address(task.knowledge_base, task.name, task.version)
        counter = task.answers if task.knowledge_base in ended or where in used_up else spent
        if not spent <= task.charged == counter <= task.answers:
            wrong.append(f"{where}: {spent} charges not voided, counter {task.charged}, {task.answers} answers")
    return wrong


def _releases(connection: sa.Connection) -> list[str]:
    pairs = sa.select(charges.c.id, charges.c.state, releases.c.id.label("release_id")).select_from(
        charges.outerjoin(
            releases,
            sa.and_(
                releases.c.charge_id == charges.c.id,
                releases.c.task_id == charges.c.task_id,
                releases.c.query_digest == charges.c.query_digest,
            ),
        )
    )
    unpaired = pairs.where((charges.c.state == "released") != releases.c.id.is_not(None))
    wrong = [f"charge {row.id} is {row.state}, its release: {row.release_id}" for row in connection.execute(unpaired)]
    matched = connection.execute(
        sa.select(sa.func.count()).select_from(pairs.where(releases.c.id.is_not(None)).subquery())
    )
    stored = connection.execute(sa.select(sa.func.count()).select_from(releases)).scalar_one()
    if stored != matched.scalar_one():
        wrong.append("a release has no charge of the same task and query")
    return wrong


def _counts(connection: sa.Connection) -> list[str]:
    """Whether the counts for reports are what charges and releases add up to."""
    number, dialect, task = sa.func.count(), connection.dialect.name, charges.c.task_id
    spent = charges.c.state != "voided"
    day = sa.literal_column(period(dialect, "charges.created_at", "day"), sa.Text)
    minute = sa.literal_column(period(dialect, "charges.created_at", "minute"), sa.Text)
    shows = releases.c.answer["fallback"].as_boolean()
    kept_and_counted: dict[str, tuple[sa.Select[Any], sa.Select[Any]]] = {
        "charges": (
            sa.select(tasks.c.id.label("task_id"), tasks.c.made, tasks.c.voided).where(
                tasks.c.made + tasks.c.voided != 0
            ),
            sa.select(task, number, number.filter(~spent)).group_by(task),
        ),
        "fallbacks": (
            sa.select(tasks.c.id.label("task_id"), tasks.c.shown, tasks.c.fell_back).where(
                tasks.c.shown + tasks.c.fell_back != 0
            ),
            sa.select(releases.c.task_id, number, number.filter(shows))
            .where(shows.is_not(None))
            .group_by(releases.c.task_id),
        ),
        "charges by day": (
            sa.select(charges_by_day).where(charges_by_day.c.answers != 0),
            sa.select(task, day, charges.c.key_id, number).where(spent).group_by(task, day, charges.c.key_id),
        ),
        "charges by minute": (
            sa.select(charges_by_minute.c.task_id, charges_by_minute.c.minute, charges_by_minute.c.answers).where(
                charges_by_minute.c.answers != 0
            ),
            sa.select(task, minute, number).where(spent).group_by(task, minute),
        ),
    }
    wrong = []
    for what, (kept, counted) in kept_and_counted.items():
        differ = sa.except_(kept, counted), sa.except_(counted, kept)
        if ids := {row.task_id for query in differ for row in connection.execute(query)}:
            wrong.append(f"the {what} that are counted for reports are not those of the ledger: tasks {sorted(ids)}")
    return wrong


def _audit_trail(connection: sa.Connection) -> list[str]:
    by_kind = sa.select(audit_events.c.kind, sa.func.count().label("times")).group_by(audit_events.c.kind)
    told = {row.kind: row.times for row in connection.execute(by_kind)}

    def number(of: sa.Table, *where: sa.ColumnElement[bool]) -> int:
        return int(connection.execute(sa.select(sa.func.count()).select_from(of).where(*where)).scalar_one())

    of_deleted = sa.select(audit_events.c.body).where(audit_events.c.kind == events.KnowledgeBaseDeleted.kind)
    deleted = [events.KnowledgeBaseDeleted.model_validate_json(body) for body in connection.scalars(of_deleted)]
    recorded: dict[type[events.Particulars], int] = {
        events.BudgetOpened: number(budgets) + len(deleted),
        events.GroupOpened: number(groups),
        events.GroupJoined: number(group_members),
        events.CohortOpened: number(cohorts, cohorts.c.number > 1) + sum(one.cohorts - 1 for one in deleted),
        events.CohortClosed: number(cohorts, cohorts.c.closed_at.is_not(None)) + sum(one.closed for one in deleted),
        events.PlanSigned: number(plans),
        events.PlanRetired: number(retirements),
        events.AnswerCharged: number(charges),
        events.ChargeVoided: number(charges, charges.c.state == "voided"),
        events.AnswerReleased: number(releases),
    }
    return [
        f"the audit trail has {told.get(event.kind, 0)} events of kind {event.kind}, the ledger of {times}"
        for event, times in recorded.items()
        if told.get(event.kind, 0) != times
    ]


def _found(connection: sa.Connection) -> list[str]:
    """Whether each event is found by its time and its body."""
    after = 0
    query = sa.select(audit_events).order_by(audit_events.c.sequence).limit(trail.BATCH)
    while rows := connection.execute(query.where(audit_events.c.sequence > after)).all():
        after = rows[-1].sequence
        for row in rows:
            try:
                said = trail.found_by(row.at, json.loads(row.body))
            except (ValueError, AttributeError):
                return [f"event {row.sequence} of the audit trail has a body that is not an object in JSON"]
            if any(row._mapping[name] != value for name, value in said.items()):
                return [f"event {row.sequence} of the audit trail is not found by {said}"]
    return []
