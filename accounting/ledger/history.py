"""The history of a ledger's budgets: releases, and answers charged per day.

Everything here is public: it shows nothing of queries, and the ledger knows nothing of exemplars.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import sqlalchemy as sa

from accounting.ledger.budgets import address_of
from accounting.ledger.charges import RELEASES, Release, release_of
from accounting.ledger.dialects import reading
from accounting.ledger.entries import SEPARATOR
from accounting.ledger.errors import LedgerError
from accounting.ledger.tables import charges, plans, releases, tasks


class UnknownCursorError(LedgerError):
    """The entry to read on from is not there."""


@dataclass(frozen=True)
class Day:
    """The number of a task's answers spent on a day (UTC), without voided ones. Days without any are left out."""

    day: date
    task: str
    answers: int


@dataclass(frozen=True)
class Minute:
    """The number of a task's answers spent within a minute, without voided ones, and the time of the last of them."""

    last: datetime
    task: str
    answers: int


@dataclass(frozen=True)
class Use:
    """The number of a task's answers charged to a key on a day (UTC), without voided ones."""

    day: date
    task: str
    key_id: str
    answers: int


@dataclass(frozen=True)
class Fallbacks:
    """The number of a task's releases, and of those that fell back to no exemplars, for tasks whose answers show it."""

    task: str
    releases: int
    fallbacks: int


class History:
    """Reads what :class:`accounting.ledger.charges.Ledger` wrote. Pages run from the newest entry to the oldest.

    Args:
        database: see :class:`accounting.ledger.budgets.Budgets`.
    """

    def __init__(self, database: sa.Engine) -> None:
        self._database = database
        self._day = _period(database.dialect.name, "%Y-%m-%d", "YYYY-MM-DD")
        self._minute = _period(database.dialect.name, "%Y-%m-%d %H:%M", "YYYY-MM-DD HH24:MI")

    def releases(
        self,
        *,
        knowledge_base: str | None = None,
        task: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[Release]:
        """Answers that left; those of equal times are ordered by id.

        Args:
            knowledge_base: the only knowledge base to read; None: all.
            task: the only task to read: ``knowledge_base.task`` in every plan, or ``...@version`` in one; None: all.
            after: id of the release to go on behind.
            limit: greatest number of releases.

        Raises:
            UnknownCursorError: no release has the id ``after``.
        """
        when, name = releases.c.created_at, releases.c.id
        query = RELEASES.where(*_of(knowledge_base, task)).order_by(when.desc(), name.desc()).limit(limit)
        with reading(self._database) as connection:
            if after is not None:
                last = connection.execute(sa.select(when, name).where(name == after)).first()
                if last is None:
                    raise UnknownCursorError(f"nothing has the id {after!r} to go on from; begin without `after`")
                query = query.where(sa.or_(when < last.created_at, sa.and_(when == last.created_at, name < last.id)))
            return [release_of(row) for row in connection.execute(query)]

    def charges_per_day(self, *, knowledge_base: str | None = None, since: datetime | None = None) -> list[Day]:
        """Answers spent per day and task, by day and then by task.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
            since: time of the first charges to count; None: all.
        """
        rows = self._charged(self._day, _TASK, knowledge_base, since)
        return [Day(date.fromisoformat(row.period), address_of(row), row.answers) for row in rows]

    def charges_per_minute(self, *, knowledge_base: str | None = None, since: datetime) -> list[Minute]:
        """Answers spent per minute and task, by minute and then by task.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
            since: time of the first charges to count.
        """
        rows = self._charged(self._minute, _TASK, knowledge_base, since)
        return [Minute(row.last, address_of(row), row.answers) for row in rows]

    def usage(self, *, knowledge_base: str | None = None, since: datetime) -> list[Use]:
        """Answers spent per day, task and key, by day; only charges at or after ``since``.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
            since: time of the first charges to count.
        """
        rows = self._charged(self._day, (*_TASK, charges.c.key_id), knowledge_base, since)
        return [Use(date.fromisoformat(row.period), address_of(row), row.key_id, row.answers) for row in rows]

    def _charged(
        self,
        period: sa.ColumnElement[str],
        by: Sequence[sa.Column[Any]],
        knowledge_base: str | None,
        since: datetime | None,
    ) -> Sequence[sa.Row[Any]]:
        """Answers spent per period and ``by``, in this order."""
        columns = (period.label("period"), *by)
        recent = () if since is None else (charges.c.created_at >= since,)
        query: sa.Select[Any] = (
            sa.select(*columns, sa.func.count().label("answers"), sa.func.max(charges.c.created_at).label("last"))
            .select_from(charges.join(tasks).join(plans))
            .where(charges.c.state != "voided", *_of(knowledge_base, None), *recent)
            .group_by(*columns)
            .order_by(*columns)
        )
        with reading(self._database) as connection:
            return connection.execute(query).all()

    def fallbacks(self, *, knowledge_base: str) -> list[Fallbacks]:
        """The number of fallbacks by task; their callers' answers showed each."""
        fell_back = releases.c.answer["fallback"].as_boolean()
        query = (
            sa.select(*_TASK, sa.func.count().label("all"), sa.func.count().filter(fell_back).label("fallbacks"))
            .select_from(releases.join(tasks).join(plans))
            .where(fell_back.is_not(None), *_of(knowledge_base, None))
            .group_by(*_TASK)
            .order_by(*_TASK)
        )
        with reading(self._database) as connection:
            rows = connection.execute(query).all()
        return [Fallbacks(address_of(row), row.all, row.fallbacks) for row in rows]


def midnight(day: date) -> datetime:
    """The beginning of a day, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


_TASK = (plans.c.knowledge_base, tasks.c.name, plans.c.version)


def _of(knowledge_base: str | None, task: str | None) -> list[sa.ColumnElement[bool]]:
    conditions = [] if knowledge_base is None else [plans.c.knowledge_base == knowledge_base]
    if task is not None:
        named, _, version = task.partition("@")
        owner, _, name = named.partition(".")
        within = f"{name}{SEPARATOR}"
        of_topics = sa.func.substr(tasks.c.name, 1, len(within)) == within
        conditions += [plans.c.knowledge_base == owner, sa.or_(tasks.c.name == name, of_topics)]
        if version:
            conditions.append(sa.cast(plans.c.version, sa.Text) == version)
    return conditions


def _period(dialect: str, sqlite: str, postgresql: str) -> sa.ColumnElement[str]:
    """The UTC day or minute of a charge, as ISO text."""
    if dialect == "sqlite":
        return sa.func.strftime(sqlite, charges.c.created_at, type_=sa.Text)  # stored in UTC
    return sa.func.to_char(sa.func.timezone("UTC", charges.c.created_at), postgresql, type_=sa.Text)
