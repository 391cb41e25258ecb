"""The budgets that signed plans promise, added up per cohort, per knowledge base and per group of knowledge bases.

A person belongs to one cohort of a knowledge base. So a person pays for its plans at most what the cohort pays that
they cost most, and a person in every knowledge base of a group pays at most the sum of these.
"""

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from accounting.ledger.amounts import Pair, rest, total
from accounting.ledger.tables import group_members, groups, plans

Row = sa.Row[tuple[object, ...]]


def plans_of(knowledge_base: str) -> sa.Select[tuple[object, ...]]:
    """A query for a knowledge base's signed plans, oldest first."""
    return sa.select(plans).where(plans.c.knowledge_base == knowledge_base).order_by(plans.c.version)


def promises_of(knowledge_base: str) -> sa.Select[tuple[object, ...]]:
    """A query for what these plans promise, and to which cohorts, without their documents."""
    return plans_of(knowledge_base).with_only_columns(plans.c.epsilon, plans.c.delta, plans.c.cohorts)


def charged_to(number: int, signed: Iterable[Row]) -> list[Pair]:
    """The budget that each plan promises that names a cohort."""
    return [(plan.epsilon, plan.delta) for plan in signed if number in plan.cohorts]


def most_paid(signed: Sequence[Row]) -> Pair:
    """The most that a person pays for these plans of one knowledge base: of ε, and of δ."""
    numbers = {number for plan in signed for number in plan.cohorts}
    paid = [total(charged_to(number, signed)) for number in numbers] or [total([])]
    return max(epsilon for epsilon, _ in paid), max(delta for _, delta in paid)


def group_of(connection: sa.Connection, knowledge_base: str) -> Row | None:
    """The group that a knowledge base is in; None: it is not in a group."""
    of = sa.select(groups).join(group_members).where(group_members.c.knowledge_base == knowledge_base)
    return connection.execute(of).first()


def members_of(connection: sa.Connection, group: str) -> list[str]:
    """The knowledge bases in a group, by name."""
    of = sa.select(group_members.c.knowledge_base).where(group_members.c.group == group)
    return list(connection.scalars(of.order_by(group_members.c.knowledge_base)))


def left_by(connection: sa.Connection, group: Row, without: str | None = None) -> Pair:
    """The part of a group's budget that its knowledge bases leave, or all of them but the one named."""
    others = [name for name in members_of(connection, group.name) if name != without]
    paid = [most_paid(connection.execute(promises_of(name)).all()) for name in others]
    return rest((group.epsilon, group.delta), paid)[1]
