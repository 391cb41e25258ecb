"""Cohorts: a knowledge base's people in order of arrival, each cohort with one budget (ε, δ) for its whole life.

A plan is charged to every cohort that it names. The plans of a cohort add up by basic composition: the sums of the ε
and of the δ stay within its budget. That holds although a later plan is chosen after answers of earlier ones were seen,
and although their queries are interleaved (concurrent composition: Vadhan and Zhang, 2023).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.amounts import Number, Pair, checked, rest, smaller
from accounting.ledger.clock import Clock
from accounting.ledger.dialects import reading
from accounting.ledger.errors import BudgetExceededError, CohortError, KnowledgeBaseArchivedError, UnknownBudgetError
from accounting.ledger.events import CohortClosed, CohortOpened, KnowledgeBaseArchived, Particulars
from accounting.ledger.promised import Row, charged_to, group_of, left_by, promises_of
from accounting.ledger.tables import budgets, cohorts, groups


@dataclass(frozen=True)
class CohortStatus:
    """A cohort's lifetime budget: in all, promised to the signed plans that name it, and free for further plans.

    The free part is smaller than the rest where the knowledge base's group has less left.
    """

    number: int
    epsilon: Decimal
    delta: Decimal
    promised_epsilon: Decimal
    promised_delta: Decimal
    free_epsilon: Decimal
    free_delta: Decimal
    opened_at: datetime
    closed_at: datetime | None


class Cohorts:
    """Cohorts' lifetime budgets (:attr:`accounting.ledger.charges.Ledger.cohorts`).

    Args:
        database: see :class:`accounting.ledger.budgets.Budgets`.
        clock: a function that returns the present as an aware datetime.
    """

    def __init__(self, database: sa.Engine, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def open(
        self,
        connection: sa.Connection,
        knowledge_base: str,
        number: int,
        epsilon: Number,
        delta: Number,
        *,
        public_size: int,
        by: str,
    ) -> None:
        """Give a further cohort its lifetime budget, within the transaction that opens it in the exemplar store.

        Args:
            connection: a connection in a transaction.
            knowledge_base: name of the knowledge base.
            number: number of the cohort, from the exemplar store.
            epsilon: ε for its whole life, above 0.
            delta: δ for its whole life, in [0, 1).
            public_size: number of its exemplars declared as public, for the audit trail.
            by: the actor that opens it, for the audit trail.

        Raises:
            UnknownBudgetError: no such knowledge base.
            CohortError: this number is not the next.
            ValueError: ε is not above 0, or δ not in [0, 1).
        """
        asked = checked(epsilon, delta)
        self.check_open(connection, knowledge_base)
        newest = len(cohorts_of(connection, knowledge_base))
        if number != newest + 1:
            raise CohortError(
                f"{knowledge_base!r} has {newest} cohorts by its ledger and {number - 1} by its exemplars: one of them "
                "was changed outside this program"
            )
        now = self._clock()
        row = {"knowledge_base": knowledge_base, "number": number, "epsilon": asked[0], "delta": asked[1]}
        connection.execute(sa.insert(cohorts).values({**row, "opened_at": now}))
        granted = CohortOpened(
            knowledge_base=knowledge_base,
            cohort=number,
            epsilon=str(asked[0]),
            delta=str(asked[1]),
            public_size=public_size,
            by=by,
        )
        trail.append(connection, now, granted)

    def close(self, knowledge_base: str, number: int, *, by: str) -> None:
        """Close a cohort permanently: no further plan draws on it. Signed plans go on.

        Args:
            knowledge_base: name of the knowledge base.
            number: number of the cohort.
            by: the actor that closes it, for the audit trail.

        Raises:
            UnknownBudgetError: no such knowledge base.
            CohortError: there is no such cohort, it is closed already, or it is the newest, to which people arrive.
        """
        with self._database.begin() as connection:
            lock(connection, knowledge_base)
            standing = cohorts_of(connection, knowledge_base)
            check_not_archived(knowledge_base, standing)
            _open_one(knowledge_base, standing, number)
            if number == len(standing):
                raise CohortError(f"cohort {number} of {knowledge_base!r} is the newest: open the next one first")
            now = self._clock()
            close(connection, knowledge_base, number, now)
            trail.append(connection, now, CohortClosed(knowledge_base=knowledge_base, cohort=number, by=by))

    def archive(self, knowledge_base: str, *, by: str) -> None:
        """Close every cohort, the newest too, permanently: nothing new is signed, opened or stored. Signed plans go on.

        Args:
            knowledge_base: name of the knowledge base.
            by: the actor that archives it, for the audit trail.

        Raises:
            UnknownBudgetError: no such knowledge base.
            KnowledgeBaseArchivedError: it is archived already.
        """
        with self._database.begin() as connection:
            self.check_open(connection, knowledge_base)
            now = self._clock()
            trail.append(connection, now, *archived(connection, knowledge_base, now, by))

    def check_open(self, connection: sa.Connection, knowledge_base: str) -> None:
        """Check that a knowledge base is not archived, and keep it so until the caller's transaction ends.

        Args:
            connection: a connection in a transaction.
            knowledge_base: name of the knowledge base.

        Raises:
            UnknownBudgetError: no such knowledge base.
            KnowledgeBaseArchivedError: it is archived.
        """
        lock(connection, knowledge_base)
        check_not_archived(knowledge_base, cohorts_of(connection, knowledge_base))

    def not_closed(self, knowledge_base: str) -> tuple[int, ...]:
        """Numbers of the cohorts that further plans may draw on.

        Raises:
            UnknownBudgetError: no such knowledge base.
            KnowledgeBaseArchivedError: it is archived, so there are none.
        """
        with reading(self._database) as connection:
            standing = cohorts_of(connection, knowledge_base)
        if not standing:
            raise unknown_budget(knowledge_base)
        check_not_archived(knowledge_base, standing)
        return tuple(number for number, one in standing.items() if one.closed_at is None)

    def check_free(self, knowledge_base: str, cohorts: Sequence[int], *, epsilon: float, delta: float) -> None:
        """Check that a plan with this budget, which draws on these cohorts, could be signed now.

        Raises:
            BudgetExceededError: the sum over a cohort's signed plans would exceed its lifetime budget.
            CohortError: there is no such cohort, or it is closed.
        """
        with reading(self._database) as connection:
            check_free(connection, knowledge_base, cohorts, checked(epsilon, delta))


def lock(connection: sa.Connection, knowledge_base: str) -> None:
    """Let transactions that sign plans, or open or close cohorts, take turns, so that no two see the same rest.

    Those in other knowledge bases of its group wait, too. A knowledge base is always locked before its group.
    """
    if connection.execute(budget_of(knowledge_base).with_for_update(key_share=True)).first() is None:
        raise unknown_budget(knowledge_base)
    if (group := group_of(connection, knowledge_base)) is not None:
        connection.execute(sa.select(groups).where(groups.c.name == group.name).with_for_update(key_share=True))


def cohorts_of(connection: sa.Connection, knowledge_base: str) -> dict[int, Row]:
    """A knowledge base's cohorts by number, in order."""
    of = sa.select(cohorts).where(cohorts.c.knowledge_base == knowledge_base).order_by(cohorts.c.number)
    return {row.number: row for row in connection.execute(of)}


def close(connection: sa.Connection, knowledge_base: str, number: int, now: datetime) -> None:
    """Let no further plan draw on a cohort."""
    this = sa.and_(cohorts.c.knowledge_base == knowledge_base, cohorts.c.number == number)
    connection.execute(sa.update(cohorts).where(this).values(closed_at=now))


def archived(connection: sa.Connection, knowledge_base: str, now: datetime, by: str) -> list[Particulars]:
    """Archive a knowledge base if it is not archived, in the caller's transaction; returns the events to append."""
    happened: list[Particulars] = []
    for number, one in cohorts_of(connection, knowledge_base).items():
        if one.closed_at is None:
            close(connection, knowledge_base, number, now)
            happened.append(CohortClosed(knowledge_base=knowledge_base, cohort=number, by=by))
    return [*happened, KnowledgeBaseArchived(knowledge_base=knowledge_base, by=by)] if happened else []


def check_free(connection: sa.Connection, knowledge_base: str, numbers: Sequence[int], asked: Pair) -> None:
    """Check that each of these cohorts may be drawn on and has this much left."""
    standing = cohorts_of(connection, knowledge_base)
    if not standing:
        raise unknown_budget(knowledge_base)
    check_not_archived(knowledge_base, standing)
    if not numbers:
        raise CohortError("a plan draws on one cohort at least")
    group = group_of(connection, knowledge_base)
    amounts = _amounts(connection, knowledge_base, standing.values(), group)
    for number in numbers:
        cohort = _open_one(knowledge_base, standing, number)
        promised, free = amounts[number]
        if asked[0] > free[0] or asked[1] > free[1]:
            named = number if len(standing) > 1 else None
            own = rest((cohort.epsilon, cohort.delta), [promised])[1]
            limits = any(part > left < alone for part, left, alone in zip(asked, free, own, strict=True))
            sharing = group.name if group and limits else None
            raise BudgetExceededError(knowledge_base, asked, promised, free, named, sharing)


def check_not_archived(knowledge_base: str, standing: Mapping[int, Row]) -> None:
    """Check that a knowledge base is not archived. Only that closes its newest cohort, which new people belong to."""
    if standing and standing[len(standing)].closed_at is not None:
        raise KnowledgeBaseArchivedError(knowledge_base)


def _open_one(knowledge_base: str, standing: Mapping[int, Row], number: int) -> Row:
    """The cohort of this number, if it may be drawn on."""
    cohort = standing.get(number)
    if cohort is None:
        raise CohortError(f"{knowledge_base!r} has no cohort {number}: it has {', '.join(map(str, standing))}")
    if cohort.closed_at is not None:
        raise CohortError(f"cohort {number} of {knowledge_base!r} is closed")
    return cohort


def statuses_of(connection: sa.Connection, knowledge_base: str, group: Row | None) -> tuple[CohortStatus, ...]:
    """The budgets of a knowledge base's cohorts, in order; ``group`` is the group that it is in."""
    standing = cohorts_of(connection, knowledge_base).values()
    amounts = _amounts(connection, knowledge_base, standing, group)
    found = []
    for one in standing:
        promised, free = amounts[one.number]
        found.append(CohortStatus(one.number, one.epsilon, one.delta, *promised, *free, one.opened_at, one.closed_at))
    return tuple(found)


def _amounts(
    connection: sa.Connection, knowledge_base: str, standing: Iterable[Row], group: Row | None
) -> dict[int, tuple[Pair, Pair]]:
    """The amounts, by cohort, that are promised and that a further plan may ask for.

    The part of a group's budget that its other knowledge bases leave limits each cohort by itself: the group pays for
    the cohort that promises most.
    """
    signed = connection.execute(promises_of(knowledge_base)).all()
    lifetimes = {one.number: (one.epsilon, one.delta) for one in standing}
    if group is not None:
        shared = left_by(connection, group, without=knowledge_base)
        lifetimes = {number: smaller(lifetime, shared) for number, lifetime in lifetimes.items()}
    return {number: rest(lifetime, charged_to(number, signed)) for number, lifetime in lifetimes.items()}


def budget_of(knowledge_base: str) -> sa.Select[tuple[object, ...]]:
    """A query for the row with a knowledge base's budget."""
    return sa.select(budgets).where(budgets.c.knowledge_base == knowledge_base)


def unknown_budget(knowledge_base: str) -> UnknownBudgetError:
    """The error for a name without a knowledge base."""
    return UnknownBudgetError(f"no knowledge base {knowledge_base!r} has a budget; create it first")
