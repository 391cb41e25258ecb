"""Every knowledge base at a glance: its budget, forecasts of its answers, and matters that need attention."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from accounting.ledger.budgets import address
from accounting.ledger.entries import SEPARATOR, parts
from accounting.ledger.events import AnswerReleased, ExemplarsIngested, Particulars
from accounting.ledger.history import Day, Fallbacks, History, Minute, Use
from accounting.plans.tasks import ClassifyTask
from service.operations.accuracies import Recorded
from service.operations.accuracies import newest as newest_accuracies
from service.operations.attention import Matter, matters, newest
from service.operations.budget_report import KnowledgeBaseBudget, TaskBudget, budget_report
from service.operations.command import command
from service.operations.forecast import HISTORY, Course, Forecast, course, forecast, week
from service.operations.keys import distinct_names
from service.operations.measured import MeasuredView, measured
from service.operations.plans import names
from service.operations.roles import Actor, Right
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records
from service.records.signed import read_signed

Counted = TypeVar("Counted", Day, Minute)


@dataclass(frozen=True)
class Summary:
    """A knowledge base's budget, with forecasts of its answers.

    Attributes:
        budget: budget, in all and by plan.
        used_epsilon: ε of the charges so far, over all plans of the budget's cohort; for information.
        tasks: each task's budget by its address, the newest plan's first, and its forecast if its answers are counted.
        matters: matters that need an admin's attention, the most pressing first.
        courses: courses of the tasks whose answers are counted.
        asked_by: pairs (id of a key, answers charged to it today and on the six days before), the most answers first.
        accuracies: accuracy recorded last for each task that answers with labels, by its address; None: not measured.
        measured: accuracies of one-time releases by their own count, by the task's address.
        at: time of the summary, in UTC.
    """

    budget: KnowledgeBaseBudget
    used_epsilon: float
    tasks: dict[str, tuple[TaskBudget, Forecast | None]]
    matters: list[Matter]
    courses: list[Course]
    asked_by: list[tuple[str, int]]
    accuracies: Mapping[str, Recorded | None]
    measured: Mapping[str, MeasuredView]
    at: datetime

    @property
    def name(self) -> str:
        """Name of the knowledge base."""
        return self.budget.knowledge_base

    def whole(self, task: TaskBudget) -> str:
        """Address, with version, of a task, or of the task that it is a topic of."""
        named, _, version = task.task.partition("@")
        return f"{parts(named)[0]}@{version}"

    def has_accuracy(self, task: TaskBudget) -> bool:
        """Whether a task, or the task that it is a topic of, answers with labels, which are right or wrong."""
        return self.whole(task) in self.accuracies

    def accuracy(self, task: TaskBudget) -> Recorded | None:
        """The accuracy recorded last for a task, or for the task that it is a topic of; None: not measured."""
        return self.accuracies.get(self.whole(task))

    def of(self, task: str) -> list[tuple[TaskBudget, Forecast | None]]:
        """Budget and forecast of a task, by its address with version; of each of its topics, the busiest first."""
        named, _, version = task.partition("@")
        within = f"{named}{SEPARATOR}"
        return [
            one
            for where, one in self.tasks.items()
            if where == task or (where.startswith(within) and where.endswith(f"@{version}"))
        ]

    @property
    def listed(self) -> list[tuple[TaskBudget, Forecast | None, bool]]:
        """Tasks that an address without a version leads to, and then replaced tasks with answers left.

        Returns:
            Triples (budget, forecast, whether a newer plan replaced the task). A replaced task's answers are paid for,
            and given to callers who name its version.
        """
        current = [task.task for _, task in newest(self.budget).values()]
        unused = [
            address
            for address, (task, expected) in self.tasks.items()
            if expected is not None and expected.left and address not in current
        ]
        return [(*self.tasks[address], address in unused) for address in [*current, *unused]]


@dataclass(frozen=True)
class Overview:
    """Every knowledge base, and the engine.

    Attributes:
        summaries: summaries of all knowledge bases: the most pressing first, archived ones last.
        key_names: names of keys by id, no two alike; empty for actors who may not audit.
        engine: engine that serves, or served last; None: no engine served yet.
        trouble: reason why new questions are refused; None: they are answered.
        at: time of the overview, in UTC.
    """

    summaries: list[Summary]
    key_names: Mapping[str, str]
    engine: EngineView | None
    trouble: str | None
    at: datetime

    @property
    def pressing(self) -> list[Matter]:
        """Matters of all, the most pressing first."""
        return sorted((matter for summary in self.summaries for matter in summary.matters), key=lambda one: one.rank)


@dataclass(frozen=True)
class FirstSteps:
    """Steps to a first answer: whether each is done, by the audit trail."""

    created: bool
    ingested: bool
    signed: bool
    key_made: bool
    answered: bool


@command(Right.BROWSE)
def read(actor: Actor, records: Records) -> Overview:
    """Every knowledge base as it is now."""
    now = datetime.now(UTC)
    summaries = sorted(summarise(records, now), key=_pressing)
    trouble = records.witness.trouble if records.witness else None
    called = distinct_names(names(actor, records))
    return Overview(summaries, called, last_engine(records.database), str(trouble) if trouble else None, now)


@command(Right.BROWSE)
def read_one(_actor: Actor, records: Records, name: str) -> Summary:
    """One knowledge base as it is now.

    Raises:
        exemplar_store.UnknownKnowledgeBaseError: no knowledge base has this name.
    """
    records.store.get(name)
    (summary,) = summarise(records, datetime.now(UTC), name)
    return summary


@command(Right.DECIDE)
def first_steps(_actor: Actor, records: Records, summaries: Sequence[Summary]) -> FirstSteps:
    """Steps to a first answer, done or not."""

    def happened(particulars: type[Particulars]) -> bool:
        return bool(records.audit.events(kinds=[particulars.kind], limit=1))

    return FirstSteps(
        created=bool(summaries),
        ingested=happened(ExemplarsIngested),
        signed=any(summary.budget.plans for summary in summaries),
        key_made=any(key.role == "analyst" for key in records.keys.list()),
        answered=happened(AnswerReleased),
    )


def _pressing(summary: Summary) -> tuple[bool, int, str]:
    """Key that orders summaries: the most pressing first, archived ones last."""
    urgent = min((matter.rank for matter in summary.matters), default=9)
    return summary.budget.archived_at is not None, urgent, summary.name


def summarise(records: Records, now: datetime, only: str | None = None) -> list[Summary]:
    """Summaries of every knowledge base, or of only one.

    Args:
        records: opened records.
        now: the present, in UTC.
        only: name of the only one; None: all.
    """
    history = History(records.database)
    days = _by_task(history.charges_per_day(knowledge_base=only, since=(now - HISTORY).date()))
    today = _by_task(history.charges_per_minute(knowledge_base=only, since=now.date()))
    used = history.usage(knowledge_base=only, since=week(now).date())
    fallbacks = history.fallbacks(knowledge_base=only)
    accuracies = newest_accuracies(records)
    return [
        _summary(records, budget, days, today, used, fallbacks, accuracies, now)
        for budget in budget_report(records)
        if only is None or budget.knowledge_base == only
    ]


def _summary(
    records: Records,
    budget: KnowledgeBaseBudget,
    days: Mapping[str, list[Day]],
    today: Mapping[str, list[Minute]],
    used: list[Use],
    fallbacks: list[Fallbacks],
    accuracies: Mapping[str, Recorded],
    now: datetime,
) -> Summary:
    plans = records.ledger.budgets.plans(budget.knowledge_base)
    signed = {plan.version: plan.signed_at for plan in plans}
    tasks: dict[str, tuple[TaskBudget, Forecast | None]] = {}
    courses: list[Course] = []
    for plan in reversed(budget.plans):
        for task in plan.tasks:
            expected = None
            if task.answers is not None and task.left is not None:
                past = days.get(task.task, [])
                expected = forecast(task.task, task.answers, task.left, past, now)
                courses.append(course(expected, signed[plan.version], past, today.get(task.task, []), now))
            tasks[task.task] = task, expected
    return Summary(
        budget,
        sum(plan.epsilon_spent for plan in budget.plans if budget.cohort in plan.cohorts),
        tasks,
        matters(budget, {one.forecast.task: one.forecast for one in courses}, plans, fallbacks, records.settings, now),
        courses,
        _asked_by(use for use in used if use.task.startswith(f"{budget.knowledge_base}.")),
        {
            (where := address(plan.knowledge_base, name, plan.version)): accuracies.get(where)
            for plan in plans
            for name, task in read_signed(plan.document).plan.tasks.items()
            if isinstance(task, ClassifyTask)
        },
        measured(records.ledger, plans),
        now,
    )


def _by_task(counted: Iterable[Counted]) -> dict[str, list[Counted]]:
    """Counts by the task that they are of, in their order."""
    found: dict[str, list[Counted]] = {}
    for one in counted:
        found.setdefault(one.task, []).append(one)
    return found


def _asked_by(used: Iterable[Use]) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for use in used:
        if use.key_id:  # a one-time release is charged to none
            counts[use.key_id] += use.answers
    return counts.most_common()
