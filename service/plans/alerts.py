"""Which alerts are due: a task has given so many percent of its answers, or they last no longer than so many days.

All of it is computed from what is public, apart from any query: how many answers are left, and on which days they were
spent. Each alert is raised once per task, version and threshold: of all replicas one writes it down, together with the
messages that tell of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Literal

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.dialects import insert, reading
from accounting.ledger.events import AlertsChanged
from accounting.ledger.history import History
from service import wording
from service.plans.forecast import HISTORY, Forecast, forecast
from service.records.records import Records
from service.records.signed import read_signed
from service.records.tables import alert_settings, alerts
from service.records.webhooks import Webhooks

MOST_PERCENTS = 10
LONGEST_DAYS = 365


@dataclass(frozen=True)
class Thresholds:
    """What to alert at.

    Attributes:
        percents: of a task's answers, ascending, 1 to 100.
        days: that a task's answers are to last; None: no such alert.

    Raises:
        ValueError: there cannot be such; begins with which of the two.
    """

    percents: tuple[int, ...] = (75, 90, 100)
    days: int | None = 14

    def __post_init__(self) -> None:
        if len(self.percents) > MOST_PERCENTS or not all(1 <= percent <= 100 for percent in self.percents):
            raise ValueError(f"percents: at most {MOST_PERCENTS} whole numbers from 1 to 100, such as 75, 90, 100")
        if list(self.percents) != sorted(set(self.percents)):
            raise ValueError("percents: name each once, in ascending order")
        if self.days is not None and not 1 <= self.days <= LONGEST_DAYS:
            raise ValueError(f"days: a whole number from 1 to {LONGEST_DAYS}, or nothing for no forecast")


@dataclass(frozen=True)
class Alert:
    """A threshold that a task has reached.

    Attributes:
        of: the task, and how long its answers last.
        rule: what the threshold is of.
        threshold: percent of its answers, or days.
    """

    of: Forecast
    rule: Literal["percent", "days"]
    threshold: int

    @property
    def text(self) -> str:
        """In a sentence without its end, as chat services show it."""
        left = f"{self.of.left:,} of {self.of.answers:,} are left"
        if self.rule == "percent":
            return f"{self.of.task} has given {self.threshold} % of its answers: {left}"
        ends = "" if self.of.runs_out is None else wording.day(self.of.runs_out)
        return f"At this rate the answers of {self.of.task} last until {ends}: {left}"

    @property
    def message(self) -> dict[str, Any]:
        """What webhooks are sent."""
        if self.rule == "percent":
            about: dict[str, Any] = {"event": "budget.alert", "percent": self.threshold}
        else:
            ends = self.of.runs_out
            about = {"event": "budget.forecast", "days": self.threshold, "runs_out": ends and ends.date().isoformat()}
        knowledge_base = self.of.task.partition("@")[0].rpartition(".")[0]
        numbers = {"answers": self.of.answers, "left": self.of.left}
        return {**about, "task": self.of.task, "knowledge_base": knowledge_base, **numbers, "text": self.text}


@dataclass(frozen=True)
class Raised:
    """An alert that was raised."""

    raised_at: datetime
    text: str


def thresholds(database: sa.Engine) -> Thresholds:
    """What is alerted at."""
    with reading(database) as connection:
        row = connection.execute(sa.select(alert_settings.c.percents, alert_settings.c.days)).first()
    return Thresholds() if row is None else Thresholds(row.percents, row.days)


def change(database: sa.Engine, to: Thresholds, now: datetime, *, by: str) -> None:
    """Alert at other thresholds from now on."""
    new = insert(database.dialect.name, alert_settings).values(id=1, **vars(to))
    with database.begin() as connection:
        connection.execute(new.on_conflict_do_update(index_elements=[alert_settings.c.id], set_=vars(to)))
        trail.append(connection, now, AlertsChanged(percents=to.percents, days=to.days, by=by))


def recent(database: sa.Engine, limit: int = 10) -> list[Raised]:
    """The newest alerts, the newest first."""
    told = sa.select(alerts.c.raised_at, alerts.c.text).where(alerts.c.text.is_not(None))
    newest = told.order_by(alerts.c.raised_at.desc(), alerts.c.task, alerts.c.threshold.desc()).limit(limit)
    with reading(database) as connection:
        return [Raised(row.raised_at, row.text) for row in connection.execute(newest)]


def due(tasks: Sequence[Forecast], at: Thresholds, now: datetime) -> list[Alert]:
    """Every threshold that these tasks have reached, by task and rule, the highest first."""
    found = []
    for task in sorted(tasks, key=lambda one: one.task):
        spent = task.answers - task.left
        if task.left and at.days and task.runs_out and task.runs_out - now <= timedelta(days=at.days):
            found.append(Alert(task, "days", at.days))
        reached = [percent for percent in at.percents if 100 * spent >= percent * task.answers]
        found += [Alert(task, "percent", percent) for percent in reversed(reached)]
    return found


def counted(records: Records, now: datetime) -> list[Forecast]:
    """The tasks whose answers are counted, each in its newest version; none of what is archived or made once."""
    found = []
    days = History(records.database).charges_per_day(since=now - HISTORY)
    for status in records.ledger.budgets.statuses():
        if status.archived_at is not None:
            continue
        name = status.knowledge_base
        written = {plan.version: read_signed(plan.document).plan for plan in records.ledger.budgets.plans(name)}
        newest = {task.name: task for task in sorted(status.tasks, key=lambda task: task.version)}
        found += [
            forecast(task.address, task.answers, task.left, days, now)
            for task in newest.values()
            if not written[task.version].tasks[task.name].once
        ]
    return found


def raise_due(records: Records, webhooks: Webhooks, now: datetime, *, unlisted: bool) -> list[Alert]:
    """Raise what is due and was not raised before, with the messages that tell of it; what this call raised.

    Of several thresholds that a task has reached since, only the highest is told, and the others count as raised.

    Args:
        records: where it is written.
        webhooks: of the same database.
        now: the present.
        unlisted: whether to tell the webhook of the settings, too.
    """
    reached = due(counted(records, now), thresholds(records.database), now)
    with reading(records.database) as connection:
        known = {tuple(row) for row in connection.execute(sa.select(alerts.c.task, alerts.c.rule, alerts.c.threshold))}
    if all((one.of.task, one.rule, one.threshold) in known for one in reached):  # the usual case takes no lock
        return []
    told = []
    with records.database.begin() as connection:
        for _, group in groupby(reached, key=lambda one: (one.of.task, one.rule)):
            for place, one in enumerate(group):
                if _first(connection, one, now, tells=not place) and not place:
                    told.append(one)
        for one in told:
            webhooks.tell(connection, one.message, unlisted=unlisted)
    return told


def _first(connection: sa.Connection, alert: Alert, now: datetime, *, tells: bool) -> bool:
    """Write an alert down; whether nobody had."""
    text = alert.text if tells else None
    place = {"task": alert.of.task, "rule": alert.rule, "threshold": alert.threshold}
    new = insert(connection.dialect.name, alerts).values(**place, raised_at=now, text=text)
    once = new.on_conflict_do_nothing(index_elements=list(alerts.primary_key))
    return connection.execute(once.returning(alerts.c.task)).first() is not None
