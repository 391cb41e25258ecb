"""A knowledge base's statement: what was promised to the people in its rows, and what was used.

All of it comes from the ledger, the audit trail and other public records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial

from accounting.ledger.budgets import SignedPlan, address
from accounting.ledger.entries import SEPARATOR
from accounting.ledger.events import (
    BudgetOpened,
    CohortClosed,
    CohortOpened,
    ExemplarsIngested,
    GroupJoined,
    KnowledgeBaseArchived,
    KnowledgeBaseDeleted,
    LedgerRestored,
    PlanRetired,
    RemoteEngineChanged,
    UnitForgotten,
)
from accounting.ledger.history import History
from accounting.ledger.trail import AuditEvent, Tally, every
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.mechanisms.adapter import adapter_of
from service.operations.audit import EventInWords, in_quotes, in_words
from service.operations.budget_report import GroupBudget, KnowledgeBaseBudget, PlanBudget, TaskBudget, budget_of
from service.operations.budgets import CohortView, list_cohorts
from service.operations.command import command
from service.operations.knowledge_bases import KnowledgeBaseView, describe
from service.operations.measured import MeasuredView, measured
from service.operations.roles import Actor, Right
from service.records.engine_record import EngineView, engines_since
from service.records.records import Records
from service.records.signed import read_signed

_DECISIONS = tuple(
    decision.kind
    for decision in (
        *(BudgetOpened, CohortOpened, CohortClosed, GroupJoined, PlanRetired, RemoteEngineChanged),
        *(KnowledgeBaseArchived, KnowledgeBaseDeleted),
    )
)


@dataclass(frozen=True)
class StatedTask:
    """A task of a signed plan, and its answers.

    Attributes:
        address: address with version.
        task: the task as signed.
        by: description of its mechanism for readers who know no differential privacy.
        probability: probability with which a person takes part in an answer; of topics, the largest.
        counted: answers of the task, or of each of its topics.
        fallbacks: number of answers that no row had a part in, among those that show it.
        measured: accuracy of its one-time release by its own count; None: it has none.
    """

    address: str
    task: ClassifyTask | GenerateTask
    by: str
    probability: float
    counted: Sequence[TaskBudget]
    fallbacks: int
    measured: MeasuredView | None

    @property
    def given(self) -> int:
        """The number of answers that left."""
        return sum(one.spent - one.open - one.lost for one in self.counted)

    @property
    def lost(self) -> int:
        """The number of charges that ended without an answer."""
        return sum(one.lost for one in self.counted)

    @property
    def open(self) -> int:
        """The number of charges that have no answer yet."""
        return sum(one.open for one in self.counted)

    @property
    def left(self) -> int:
        """The number of answers left, if they are counted."""
        return sum(one.left or 0 for one in self.counted)

    @property
    def promised(self) -> int | None:
        """The number of answers at most, over all topics; None: any number, from a one-time release."""
        numbers = [one.answers for one in self.counted]
        return None if None in numbers else sum(one or 0 for one in numbers)


@dataclass(frozen=True)
class StatedPlan:
    """A signed plan.

    Attributes:
        plan: the plan as it was signed.
        signed_by: name of the signer, as in sentences on the audit trail.
        budget: promise of the plan, and what was spent of it.
        tasks: tasks of the plan.
    """

    plan: SignedPlan
    signed_by: str
    budget: PlanBudget
    tasks: Sequence[StatedTask]


@dataclass(frozen=True)
class Asker:
    """A key that was charged answers, by its name and id, with its first and last day, in UTC."""

    name: str
    answers: int
    first: date
    last: date


@dataclass(frozen=True)
class Head:
    """The newest event of the audit trail, which vouches for all before it; its time is in UTC."""

    events: int
    hash: str
    at: datetime


@dataclass(frozen=True)
class Statement:
    """The statement of a knowledge base.

    Attributes:
        about: public facts of the knowledge base.
        budget: budget of the knowledge base.
        cohorts: cohorts with their budgets.
        group: group whose budget it shares; None: none.
        plans: signed plans, oldest first.
        askers: keys that were charged answers, the most answers first.
        engines: pairs (time from which on it served, engine) since its creation, oldest first.
        uploads: uploads that were begun; None: none was.
        deletions: deletions of a person; None: there was none.
        decisions: decisions on it, oldest first, and restores of the whole ledger.
        head: end of the audit trail once all of this was read; None: nothing has happened.
        at: the time of the statement, in UTC.
    """

    about: KnowledgeBaseView
    budget: KnowledgeBaseBudget
    cohorts: Sequence[CohortView]
    group: GroupBudget | None
    plans: Sequence[StatedPlan]
    askers: Sequence[Asker]
    engines: Sequence[tuple[datetime, EngineView]]
    uploads: Tally | None
    deletions: Tally | None
    decisions: Sequence[EventInWords]
    head: Head | None
    at: datetime

    def used(self, cohort: int) -> float:
        """ε of the charges so far, over all plans of a cohort; for information."""
        return sum(stated.budget.epsilon_spent for stated in self.plans if cohort in stated.budget.cohorts)

    @property
    def given(self) -> int:
        """The number of answers that left, without one-time releases."""
        return sum(task.given for plan in self.plans for task in plan.tasks if not task.task.once)

    @property
    def once(self) -> int:
        """The number of one-time releases that were made."""
        return sum(task.given for plan in self.plans for task in plan.tasks if task.task.once)


@command(Right.AUDIT)
def draw_up(actor: Actor, records: Records, name: str) -> Statement:
    """Draw up the statement of a knowledge base.

    Raises:
        exemplar_store.UnknownKnowledgeBaseError: no knowledge base has this name.
    """
    about, budget, names = describe(actor, records, name), budget_of(records, name), records.keys.names()
    events = records.audit.tally(name, [ExemplarsIngested.kind, UnitForgotten.kind])
    return Statement(
        about=about,
        budget=budget,
        cohorts=list_cohorts(actor, records, name),
        group=None if budget.group is None else GroupBudget.of(records.ledger.groups.status(budget.group)),
        plans=_plans(records, budget, names),
        askers=_askers(records, name, names),
        engines=engines_since(records.database, about.created_at),
        uploads=events.get(ExemplarsIngested.kind),
        deletions=events.get(UnitForgotten.kind),
        decisions=[in_words(event, names) for event in _decisions(records, name, about.created_at)],
        head=_head(records),  # the last to be read, so that it vouches for all of this
        at=datetime.now(UTC),
    )


def _head(records: Records) -> Head | None:
    newest = records.audit.head()
    return None if newest is None else Head(newest.sequence, newest.hash, newest.at)


def _decisions(records: Records, name: str, created_at: datetime) -> list[AuditEvent]:
    own = every(partial(records.audit.events, kinds=_DECISIONS, knowledge_base=name))
    restores = every(partial(records.audit.events, kinds=[LedgerRestored.kind]))
    since = [event for event in restores if event.at >= created_at]
    return sorted([*own, *since], key=lambda event: event.sequence)


def _plans(records: Records, budget: KnowledgeBaseBudget, names: Mapping[str, str]) -> list[StatedPlan]:
    signed = {plan.version: plan for plan in records.ledger.budgets.plans(budget.knowledge_base)}
    accuracies = measured(records.ledger, signed.values())
    fallbacks = History(records.database).fallbacks(knowledge_base=budget.knowledge_base)
    fallen = {one.task: one.fallbacks for one in fallbacks}
    stated = []
    for of_plan in budget.plans:
        plan = signed[of_plan.version]
        by, tasks = in_quotes(plan.signed_by, names), _tasks(plan, of_plan, accuracies, fallen)
        stated.append(StatedPlan(plan, by, of_plan, tasks))
    return stated


def _tasks(
    plan: SignedPlan, of_plan: PlanBudget, accuracies: Mapping[str, MeasuredView], fallen: Mapping[str, int]
) -> list[StatedTask]:
    calibrated, stated = read_signed(plan.document), []
    for name, task in calibrated.plan.tasks.items():
        where, noise = address(plan.knowledge_base, name, plan.version), calibrated.noise[name]
        within = f"{plan.knowledge_base}.{name}{SEPARATOR}"
        counted = [one for one in of_plan.tasks if one.task == where or one.task.startswith(within)]
        stated.append(
            StatedTask(
                where,
                task,
                adapter_of(task, noise).plainly,
                noise.sampling_probability,
                counted,
                sum(fallen.get(one.task, 0) for one in counted),
                accuracies.get(where),
            )
        )
    return stated


def _askers(records: Records, name: str, names: Mapping[str, str]) -> list[Asker]:
    days: dict[str, list[tuple[date, int]]] = {}
    for use in History(records.database).usage(knowledge_base=name, since=date.min):
        if use.key_id:  # a one-time release is charged to none
            days.setdefault(use.key_id, []).append((use.day, use.answers))
    askers = [
        Asker(in_quotes(key, names), sum(answers for _, answers in used), used[0][0], used[-1][0])
        for key, used in days.items()
    ]
    return sorted(askers, key=lambda asker: -asker.answers)
