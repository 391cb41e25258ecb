"""The history of a ledger's budgets: releases, and answers charged per day, as the database counted them.

Everything here is public: it shows nothing of queries, and the ledger knows nothing of exemplars.
"""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import sqlalchemy as sa

from accounting.ledger.budgets import address_of
from accounting.ledger.charges import RELEASES, Release, release_of
from accounting.ledger.dialects import reading
from accounting.ledger.entries import SEPARATOR
from accounting.ledger.errors import LedgerError
from accounting.ledger.events import AnswerCharged
from accounting.ledger.tables import audit_events, charges, charges_by_day, charges_by_minute, plans, releases, tasks


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
    """The number of a task's answers spent within a minute, without voided ones, and the time of the last charge."""

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


@dataclass(frozen=True)
class OwnCharge:
    """A charge of a key, with its release.

    Attributes:
        number: sequence number of its event, larger for later charges.
        at: time of the charge.
        task: address that was charged, with its version.
        state: ``charged``, ``released``, ``voided`` or ``lost``.
        release: the release; None: there is none.
    """

    number: int
    at: datetime
    task: str
    state: str
    release: Release | None


class History:
    """Reads what :class:`accounting.ledger.charges.Ledger` wrote. Pages run from the newest entry to the oldest.

    Args:
        database: see :class:`accounting.ledger.budgets.Budgets`.
    """

    def __init__(self, database: sa.Engine) -> None:
        self._database = database

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
        page = sa.select(when, name).order_by(when.desc(), name.desc()).limit(limit)
        with reading(self._database) as connection:
            if after is not None:
                last = connection.execute(sa.select(when, name).where(name == after)).first()
                if last is None:
                    raise UnknownCursorError(f"nothing has the id {after!r} to go on from; begin without `after`")
                page = page.where(sa.or_(when < last.created_at, sa.and_(when == last.created_at, name < last.id)))
            pages = [page]
            if knowledge_base is not None or task is not None:  # a page of each task, from an index
                answered = _ANSWERED.where(*_of(knowledge_base, task))
                pages = [page.where(releases.c.task_id == task_id) for task_id in connection.scalars(answered).all()]
            found = sorted((tuple(row) for one in pages for row in connection.execute(one)), reverse=True)
            # Of releases of one moment the database knows the order.
            ids = [this for at, this in found if at >= found[:limit][-1][0]]
            chosen = RELEASES.where(name.in_(ids)).order_by(when.desc(), name.desc()).limit(limit)
            return [release_of(row) for row in connection.execute(chosen)]

    def charges_of(self, key_id: str, *, before: int | None = None, limit: int = 50) -> list[OwnCharge]:
        """Charges of a key, the newest first. Answers that were free are not recorded, so they are not among them.

        Args:
            key_id: id of the key.
            before: number of the charge to go on behind; None: from the newest on.
            limit: greatest number of charges.
        """
        events = audit_events.c
        # Not compared as it is: SQLite would look through all charges, by the index of kinds, instead of this key's.
        is_charge = sa.func.coalesce(events.kind, "") == AnswerCharged.kind
        theirs = sa.select(events.sequence, events.at, events.body).where(events.key_id == key_id, is_charge)
        if before is not None:
            theirs = theirs.where(events.sequence < before)
        with reading(self._database) as connection:
            found = connection.execute(theirs.order_by(events.sequence.desc()).limit(limit)).all()
            bodies = [json.loads(row.body) for row in found]
            ids = [body["charge"] for body in bodies]
            standing = connection.execute(sa.select(charges.c.id, charges.c.state).where(charges.c.id.in_(ids)))
            states = {row.id: row.state for row in standing}
            rows = connection.execute(RELEASES.where(releases.c.charge_id.in_(ids)))
            released = {row.charge_id: release_of(row) for row in rows}
        return [
            OwnCharge(row.sequence, row.at, body["task"], states.get(id_, "lost"), released.get(id_))
            for row, body, id_ in zip(found, bodies, ids, strict=True)
        ]

    def charges_per_day(self, *, knowledge_base: str | None = None, since: date = date.min) -> list[Day]:
        """Answers spent per day and task, by day and then by task.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
            since: the first day to count.
        """
        counted = self._counted(_DAYS, knowledge_base, since)
        return [Day(date.fromisoformat(row.period), task, row.answers) for task, row in counted]

    def charges_per_minute(self, *, knowledge_base: str | None = None, since: date) -> list[Minute]:
        """Answers spent per minute and task, by minute and then by task.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
            since: the first day to count.
        """
        counted = self._counted(_MINUTES, knowledge_base, since)
        return [Minute(row.last_at, task, row.answers) for task, row in counted]

    def usage(self, *, knowledge_base: str | None = None, since: date) -> list[Use]:
        """Answers spent per day, task and key, by day.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
            since: the first day to count.
        """
        counted = self._counted(_USES, knowledge_base, since)
        return [Use(date.fromisoformat(row.period), task, row.key_id, row.answers) for task, row in counted]

    def fallbacks(self, *, knowledge_base: str | None = None) -> list[Fallbacks]:
        """The number of fallbacks by task; their callers' answers showed each.

        Args:
            knowledge_base: the only knowledge base to count; None: all.
        """
        with reading(self._database) as connection:
            rows = connection.execute(_FALLBACKS.where(*_of(knowledge_base, None)))
            return [Fallbacks(address_of(row), row.shown, row.fell_back) for row in rows]

    def _counted(
        self, counts: sa.Select[Any], knowledge_base: str | None, since: date
    ) -> list[tuple[str, sa.Row[Any]]]:
        """Pairs (address of a task, counts of a period), by period and then by knowledge base, task and version."""
        with reading(self._database) as connection:
            named = connection.execute(_NAMED.where(*_of(knowledge_base, None)))
            places = {row.id: (place, address_of(row)) for place, row in enumerate(named)}
            chosen = {"tasks": list(places), "since": since.isoformat()}
            rows = connection.execute(counts, chosen).all()
        rows = sorted(rows, key=lambda row: (row.period, places[row.task_id][0]))
        return [(places[row.task_id][1], row) for row in rows]


def midnight(day: date) -> datetime:
    """The beginning of a day, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


_TASK = (plans.c.knowledge_base, tasks.c.name, plans.c.version)


_NAMED = sa.select(tasks.c.id, *_TASK).select_from(tasks.join(plans)).order_by(*_TASK)


def _by_period(period: sa.Column[str], *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Counts of a table by task and period, in the order of its key, for given tasks and from a period on."""
    task = period.table.c.task_id
    named = task.in_(sa.bindparam("tasks", expanding=True)), period >= sa.bindparam("since")
    return sa.select(task, period.label("period"), *columns).where(*named, period.table.c.answers > 0)


_DAY, _ANSWERS = charges_by_day.c.day, charges_by_day.c.answers
_DAYS = _by_period(_DAY, sa.func.sum(_ANSWERS).label("answers")).group_by(charges_by_day.c.task_id, _DAY)
_USES = _by_period(_DAY, charges_by_day.c.key_id, _ANSWERS).order_by(*charges_by_day.primary_key)
_MINUTES = _by_period(charges_by_minute.c.minute, charges_by_minute.c.answers, charges_by_minute.c.last_at)
_ANSWERED = sa.select(tasks.c.id).select_from(tasks.join(plans)).where(tasks.c.made > 0)
_FALLBACKS = _NAMED.add_columns(tasks.c.shown, tasks.c.fell_back).where(tasks.c.shown > 0)


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
