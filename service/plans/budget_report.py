"""The state of every budget, the same for REST and the command line."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel, Field

from accounting.ledger.budgets import BudgetStatus, SignedPlan
from service.plans.preview import epsilon_spent
from service.records.records import Records


class Pair(BaseModel):
    """A budget (ε, δ)."""

    epsilon: float
    delta: float


class TaskBudget(BaseModel):
    """A task's answers. `spent` are charged, answered or not; `lost` of them were charged and never answered."""

    task: str = Field(examples=["support.queue@1"])
    answers: int
    spent: int
    left: int
    lost: int


class PlanBudget(BaseModel):
    """A signed plan. `epsilon_spent` is the ε of the charges so far, for information; `promised` is what counts."""

    version: int
    promised: Pair
    accountant: str
    epsilon_spent: float
    tasks: list[TaskBudget]


class KnowledgeBaseBudget(BaseModel):
    """A knowledge base's lifetime budget: in all, promised to plans, free for further plans."""

    knowledge_base: str
    lifetime: Pair
    promised: Pair
    free: Pair
    plans: list[PlanBudget]


def budget_report(records: Records) -> list[KnowledgeBaseBudget]:
    """Every knowledge base's budget, by name."""
    records.ledger.expire_leases()  # so that charges whose holder died show as lost
    return [
        _knowledge_base(status, records.ledger.budgets.plans(status.knowledge_base))
        for status in records.ledger.budgets.statuses()
    ]


def _knowledge_base(status: BudgetStatus, plans: list[SignedPlan]) -> KnowledgeBaseBudget:
    return KnowledgeBaseBudget(
        knowledge_base=status.knowledge_base,
        lifetime=_pair(status.epsilon, status.delta),
        promised=_pair(status.promised_epsilon, status.promised_delta),
        free=_pair(status.free_epsilon, status.free_delta),
        plans=[_plan(status, plan) for plan in plans],
    )


def _plan(status: BudgetStatus, plan: SignedPlan) -> PlanBudget:
    tasks = [task for task in status.tasks if task.version == plan.version]
    return PlanBudget(
        version=plan.version,
        promised=_pair(plan.epsilon, plan.delta),
        accountant=plan.accountant,
        epsilon_spent=epsilon_spent(plan.document, {task.name: task.charged for task in tasks}),
        tasks=[
            TaskBudget(
                task=task.address,
                answers=task.answers,
                spent=task.charged,
                left=task.left,
                lost=task.states["lost"],
            )
            for task in tasks
        ],
    )


def _pair(epsilon: Decimal, delta: Decimal) -> Pair:
    return Pair(epsilon=float(epsilon), delta=float(delta))
