"""Groups: knowledge bases that may hold the same people share one budget (ε, δ) for life.

A person in several knowledge bases pays for the plans of each. A group bounds the sum: whatever cohorts a person
belongs to, all plans of its knowledge bases together stay within its budget (:mod:`accounting.ledger.promised`). A
knowledge base joins one group at most, with whatever it has promised, and never leaves it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.amounts import Number, checked, in_words, rest
from accounting.ledger.clock import Clock
from accounting.ledger.cohorts import lock
from accounting.ledger.dialects import reading
from accounting.ledger.errors import GroupError, UnknownGroupError, did_you_mean
from accounting.ledger.events import GroupJoined, GroupOpened
from accounting.ledger.promised import Row, group_of, left_by, members_of, most_paid, plans_of
from accounting.ledger.tables import group_members, groups


@dataclass(frozen=True)
class GroupStatus:
    """A group's budget: in all, promised to a person who is in all of its knowledge bases, and free for more plans."""

    name: str
    knowledge_bases: tuple[str, ...]
    epsilon: Decimal
    delta: Decimal
    promised_epsilon: Decimal
    promised_delta: Decimal
    free_epsilon: Decimal
    free_delta: Decimal
    opened_at: datetime


class Groups:
    """Budgets that knowledge bases share (:attr:`accounting.ledger.charges.Ledger.groups`).

    Args:
        database: see :class:`accounting.ledger.budgets.Budgets`.
        clock: a function that returns the present as an aware datetime.
    """

    def __init__(self, database: sa.Engine, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def open(self, name: str, epsilon: Number, delta: Number, *, by: str) -> None:
        """Make a group, with a permanent budget and without knowledge bases.

        Args:
            name: name of the group, 1 to 200 characters.
            epsilon: ε for its whole life, above 0.
            delta: δ for its whole life, in [0, 1).
            by: the actor that makes it, for the audit trail.

        Raises:
            GroupError: there is a group of this name.
            ValueError: the name is too short or too long, or a number is out of range.
        """
        asked = checked(epsilon, delta)
        if not 0 < len(name) <= 200:
            raise ValueError("name: a group needs a name of at most 200 characters")
        now = self._clock()
        row = {"name": name, "epsilon": asked[0], "delta": asked[1], "opened_at": now}
        try:
            with self._database.begin() as connection:
                connection.execute(sa.insert(groups).values(row))
                opened = GroupOpened(group=name, epsilon=str(asked[0]), delta=str(asked[1]), by=by)
                trail.append(connection, now, opened)
        except sa.exc.IntegrityError:
            raise GroupError(f"there is a group {name!r} already; its budget cannot be changed") from None

    def join(self, name: str, knowledge_base: str, *, by: str) -> None:
        """Put a knowledge base into a group, permanently, with every plan that it has signed.

        Args:
            name: name of the group.
            knowledge_base: name of the knowledge base.
            by: the actor that decides it, for the audit trail.

        Raises:
            UnknownGroupError: no such group.
            UnknownBudgetError: no such knowledge base.
            GroupError: it is in a group already, a restore has closed the group, or the plans promise more than it has
                left.
        """
        with self._database.begin() as connection:
            lock(connection, knowledge_base)
            if (standing := group_of(connection, knowledge_base)) is not None:
                raise GroupError(f"knowledge base {knowledge_base!r} is in group {standing.name!r} permanently")
            group = _named(connection, name, locked=True)
            if any(name in one.closed for one in trail.restores(connection)):
                raise GroupError(
                    f"no further knowledge base joins group {name!r}: it ended with a restore that found two "
                    "histories of it; use another"
                )
            paid, left = most_paid(connection.execute(plans_of(knowledge_base)).all()), left_by(connection, group)
            if paid[0] > left[0] or paid[1] > left[1]:
                raise GroupError(
                    f"the plans of {knowledge_base!r} promise {in_words(paid)}, and group {name!r} has only "
                    f"{in_words(left)} left"
                )
            now = self._clock()
            row = {"knowledge_base": knowledge_base, "group": name, "joined_at": now}
            connection.execute(sa.insert(group_members).values(row))
            trail.append(connection, now, GroupJoined(group=name, knowledge_base=knowledge_base, by=by))

    def status(self, name: str) -> GroupStatus:
        """One group.

        Raises:
            UnknownGroupError: no such group.
        """
        with reading(self._database) as connection:
            return status_of(connection, _named(connection, name))

    def statuses(self) -> list[GroupStatus]:
        """Every group, by name."""
        with reading(self._database) as connection:
            every: Sequence[Row] = connection.execute(sa.select(groups).order_by(groups.c.name)).all()
            return [status_of(connection, group) for group in every]


def status_of(connection: sa.Connection, group: Row) -> GroupStatus:
    """A group's budget and its use."""
    free = left_by(connection, group)
    promised = rest((group.epsilon, group.delta), [free])[1]
    names = tuple(members_of(connection, group.name))
    return GroupStatus(group.name, names, group.epsilon, group.delta, *promised, *free, group.opened_at)


def _named(connection: sa.Connection, name: str, *, locked: bool = False) -> Row:
    which = sa.select(groups).where(groups.c.name == name)
    found = connection.execute(which.with_for_update(key_share=True) if locked else which).first()
    if found is None:
        every = connection.scalars(sa.select(groups.c.name).order_by(groups.c.name)).all()
        raise UnknownGroupError(f"there is no group {name!r}{did_you_mean(name, every)}")
    return found
