"""The state of every budget, in one form for REST and the command line."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, Field

from accounting.ledger.amounts import exact, rest
from accounting.ledger.budgets import BudgetStatus, SignedPlan, TaskStatus
from accounting.ledger.cohorts import CohortStatus
from accounting.ledger.entries import entry
from accounting.ledger.groups import GroupStatus
from accounting.plans.releases import OneRelease, Releases
from service.answering.plans.preview import epsilon_spent
from service.records.records import Records
from service.records.signed import read_signed


class Pair(BaseModel):
    """A budget (ε, δ)."""

    epsilon: float
    delta: float


class TaskBudget(BaseModel):
    """A task's answers. `spent` are charged, answered or not: `open` of them have no answer yet, and `lost` have none.

    For a task with a one-time release, `spent` counts that release, and `answers` and `left` are null: any number.
    """

    task: str = Field(examples=["support.queue@1"])
    topic: str | None = Field(
        default=None,
        exclude_if=lambda topic: topic is None,
        description="Topic of the task: each has answers of its own. The busiest comes first.",
    )
    answers: int | None
    spent: int
    left: int | None
    open: int = Field(
        description="Charged, and not answered yet. If the process that answers one has died, it counts as lost after "
        "about five minutes (seven times `DPICL_QUERY_TIMEOUT_S` and the latency grain, and a minute)."
    )
    lost: int
    one_release: OneRelease | None = Field(
        default=None,
        exclude_if=lambda state: state is None,
        description="State of the task's one-time release, if it has one. A lost release stays lost, and charged.",
    )


class PlanBudget(BaseModel):
    """A signed plan. Each of its cohorts pays what it promised; `epsilon_spent` is the cost of the charges so far."""

    version: int
    retired_at: datetime | None = Field(
        default=None,
        exclude_if=lambda at: at is None,
        description="Time since which its tasks answer no more; absent: they do.",
    )
    cohorts: list[int]
    promised: Pair
    accountant: str
    epsilon_spent: float
    tasks: list[TaskBudget]


class CohortBudget(BaseModel):
    """A cohort's lifetime budget: all of it, the part promised to plans that name it, and the part still free."""

    cohort: int
    opened_at: datetime
    closed_at: datetime | None = Field(description="Time since which no further plan draws on it; null: plans may.")
    lifetime: Pair
    promised: Pair
    free: Pair

    @classmethod
    def of(cls, status: CohortStatus) -> CohortBudget:
        """A cohort as JSON shows it."""
        opened, closed = status.opened_at, status.closed_at
        return cls(cohort=status.number, opened_at=opened, closed_at=closed, **_amounts(status))


class GroupBudget(BaseModel):
    """A budget that knowledge bases share: all of it, the part promised to a person in all of them, and the rest."""

    group: str
    knowledge_bases: list[str]
    lifetime: Pair
    promised: Pair
    free: Pair

    @classmethod
    def of(cls, status: GroupStatus) -> GroupBudget:
        """A group as JSON shows it."""
        return cls(group=status.name, knowledge_bases=list(status.knowledge_bases), **_amounts(status))


class KnowledgeBaseBudget(BaseModel):
    """A knowledge base's lifetime budget: all of it, the part promised to plans, and the part free for further plans.

    With several cohorts, the amounts are those of `cohort`, the one with the least ε free among those that are not
    closed. Where the knowledge base's group has less left, that amount is free.
    """

    knowledge_base: str
    group: str | None = Field(
        default=None, exclude_if=lambda name: name is None, description="Group whose budget it shares; absent: none."
    )
    archived_at: datetime | None = Field(
        default=None,
        exclude_if=lambda at: at is None,
        description="Time since which it takes nothing new; absent: it does.",
    )
    cohort: int
    cohorts: list[CohortBudget]
    lifetime: Pair
    promised: Pair
    free: Pair
    plans: list[PlanBudget]

    @property
    def limited(self) -> bool:
        """Whether its group leaves less ε than it would have alone."""
        lifetime, promised, free = (
            (exact(part.epsilon), exact(part.delta)) for part in (self.lifetime, self.promised, self.free)
        )
        return free[0] < rest(lifetime, [promised])[1][0]


def budget_report(records: Records) -> list[KnowledgeBaseBudget]:
    """Every knowledge base's budget, by name."""
    records.ledger.expire_leases()  # so that charges whose holder died show as lost
    return [
        _knowledge_base(records, status, records.ledger.budgets.plans(status.knowledge_base))
        for status in records.ledger.budgets.statuses()
    ]


def budget_of(records: Records, name: str) -> KnowledgeBaseBudget:
    """One knowledge base's budget.

    Raises:
        accounting.ledger.errors.UnknownBudgetError: no knowledge base has this name.
    """
    records.ledger.expire_leases()
    return _knowledge_base(records, records.ledger.budgets.status(name), records.ledger.budgets.plans(name))


def _knowledge_base(records: Records, status: BudgetStatus, plans: list[SignedPlan]) -> KnowledgeBaseBudget:
    cohorts = [CohortBudget.of(cohort) for cohort in status.cohorts]
    tightest = cohorts[status.tightest.number - 1]
    retired = records.ledger.budgets.retired(status.knowledge_base)
    return KnowledgeBaseBudget(
        knowledge_base=status.knowledge_base,
        group=status.group,
        archived_at=status.archived_at,
        cohort=tightest.cohort,
        cohorts=cohorts,
        lifetime=tightest.lifetime,
        promised=tightest.promised,
        free=tightest.free,
        plans=[_plan(records, status, plan, retired.get(plan.version)) for plan in plans],
    )


def _plan(records: Records, status: BudgetStatus, plan: SignedPlan, retired_at: datetime | None) -> PlanBudget:
    tasks = [task for task in status.tasks if task.version == plan.version]
    written = read_signed(plan.document).plan.tasks
    return PlanBudget(
        version=plan.version,
        retired_at=retired_at,
        cohorts=list(plan.cohorts),
        promised=_pair(plan.epsilon, plan.delta),
        accountant=plan.accountant,
        epsilon_spent=epsilon_spent(plan.document, {entry(task.name, task.topic): task.charged for task in tasks}),
        tasks=[_task(records, task, written[task.name].releases) for task in _busiest_first(tasks)],
    )


def _busiest_first(tasks: list[TaskStatus]) -> list[TaskStatus]:
    """Tasks in the order of the plan; topics of a task by their charges, the most first."""
    order = list(dict.fromkeys(task.name for task in tasks))
    return sorted(tasks, key=lambda task: (order.index(task.name), -task.charged))


def _task(records: Records, task: TaskStatus, releases: Releases) -> TaskBudget:
    return TaskBudget(
        task=task.address,
        topic=task.topic,
        answers=releases.shown(task.answers),
        spent=task.charged,
        left=releases.shown(task.left),
        open=task.states["charged"],
        lost=task.states["lost"],
        one_release=releases.one_release(task.states),
    )


def _amounts(status: CohortStatus | GroupStatus) -> dict[str, Pair]:
    return {
        "lifetime": _pair(status.epsilon, status.delta),
        "promised": _pair(status.promised_epsilon, status.promised_delta),
        "free": _pair(status.free_epsilon, status.free_delta),
    }


def _pair(epsilon: Decimal, delta: Decimal) -> Pair:
    return Pair(epsilon=float(epsilon), delta=float(delta))
