"""Signed tasks: what they give, the fields a query brings, and the answers left."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, Field

from accounting.ledger.budgets import BudgetStatus, SignedPlan, SignedTask, address
from accounting.ledger.charges import Ledger
from accounting.ledger.quotas import in_scope
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.latency import Grains, Measured
from service.operations.command import command
from service.operations.fields import ABSENT
from service.operations.roles import Actor, Right
from service.records.records import Records
from service.records.signed import read_signed

AnswersLeft = int | dict[str, int]
"""Of a task, or by topic if it has topics."""


class LatencyView(BaseModel):
    """How long the task's answers take, in seconds, as it was measured with made-up exemplars."""

    typical_s: float | None = Field(
        description="Work with slots of an ordinary length, asked of a language model; null for other engines."
    )
    largest_s: float = Field(description="Work with the largest slots that there can be.")
    grain_s: float = Field(description="Answers leave after this, or a multiple.")
    kept_blocks: int = Field(description="Blocks that are read ahead, where the task draws blocks.")
    cold: str | None = Field(
        description="Why blocks are not read ahead, and what to do; null if they are, or are none."
    )

    @classmethod
    def of(cls, measured: Measured) -> LatencyView:
        """What was measured, as it may be shown."""
        return cls(
            typical_s=measured.typical_s or None,
            largest_s=measured.work_s,
            grain_s=measured.grain_s,
            kept_blocks=measured.blocks,
            cold=measured.cold or None,
        )


class TaskView(BaseModel):
    """What a caller needs to know about a task."""

    task: str = Field(examples=["support.queue@1"])
    kind: str
    mechanism: str
    labels: list[str] = Field(description="Empty where the answer is free text.")
    query_fields: list[str]
    abstain_below: float | None = Field(
        **ABSENT,
        description="If set: answers with a lower score are shown as abstentions, unless a request says otherwise.",
    )
    fitted_to: int | None = Field(
        **ABSENT,
        description="To how many labelled public rows the task was fitted: its answers carry a `probability`. Absent "
        "where it was not: they carry a `score`, or neither.",
    )
    answers: int | None = Field(
        description="On each topic, if it has topics; null: any number, from a release that is made once."
    )
    answers_left: int | None
    topics: dict[str, int] | None = Field(
        **ABSENT, description="Answers left on each topic, if it has topics; `answers_left` is their sum."
    )
    latency: LatencyView | None = Field(**ABSENT, description="Once it was measured.")

    @classmethod
    def of(cls, address: str, task: ClassifyTask | GenerateTask, left: AnswersLeft) -> TaskView:
        """A task as it may be shown.

        Args:
            address: the task's.
            task: as signed.
            left: answers.
        """
        topics = left if isinstance(left, dict) else None
        answers_left = sum(left.values()) if isinstance(left, dict) else left
        return cls(
            task=address,
            kind=task.kind,
            mechanism=task.mechanism.type,
            labels=list(task.labels) if isinstance(task, ClassifyTask) else [],
            query_fields=list(task.query_fields),
            abstain_below=task.abstain_below if isinstance(task, ClassifyTask) else None,
            fitted_to=task.mechanism.fitted if isinstance(task, ClassifyTask) else None,
            answers=task.releases.told(task.answers),
            answers_left=task.releases.told(answers_left),
            topics=topics,
        )


class TasksView(BaseModel):
    """The tasks that a key may ask, by name."""

    tasks: list[TaskView]


@dataclass(frozen=True)
class ListedTask:
    """A task beside others.

    Attributes:
        name: under which it is listed: without a version, the task of the newest plan.
        knowledge_base: name of the one it draws on.
        signed_at: when its plan was signed.
        view: description for callers.
    """

    name: str
    knowledge_base: str
    signed_at: datetime
    view: TaskView

    @classmethod
    def of(cls, name: str, plan: SignedPlan, task: str, left: AnswersLeft) -> ListedTask:
        """A task of a plan, listed under a name."""
        whole = address(plan.knowledge_base, task, plan.version)
        view = TaskView.of(whole, read_signed(plan.document).plan.tasks[task], left)
        return cls(name, plan.knowledge_base, plan.signed_at, view)


@command(Right.SEE)
def describe(_actor: Actor, records: Records, task: str, grains: Grains) -> TaskView:
    """A task, with how long its answers take once that was measured.

    Raises:
        accounting.ledger.errors.UnknownTaskError: no task has this address.
    """
    signed = records.ledger.budgets.task(task)
    written = read_signed(signed.document).plan.tasks[signed.name]
    shown = TaskView.of(signed.address, written, _left(records.ledger, signed))
    for latency in grains.report or ():
        if latency.task == signed.whole and not latency.problem:
            return shown.model_copy(update={"latency": LatencyView.of(latency)})
    return shown


@command(Right.SEE)
def find(_actor: Actor, records: Records, task: str) -> ListedTask:
    """A task, under the name that it is asked for by.

    Raises:
        accounting.ledger.errors.UnknownTaskError: no task has this address.
    """
    signed = records.ledger.budgets.task(task)
    return ListedTask.of(task, signed.plan, signed.name, _left(records.ledger, signed))


@command(Right.SEE)
def list_(actor: Actor, records: Records) -> list[ListedTask]:
    """Every task that the actor may ask, by name; a task that a newer plan replaced, with its version."""
    tasks = [
        task
        for status in records.ledger.budgets.statuses()
        for task in _listed(records.ledger.budgets.plans(status.knowledge_base), _left_by_task(status))
    ]
    return [task for task in tasks if in_scope(actor.scope, task.name)]


def query_fields(records: Records, task: str) -> tuple[str, tuple[str, ...]]:
    """A task's address with its version, and the fields that a query of it brings.

    Raises:
        accounting.ledger.errors.UnknownTaskError: no task has this address.
    """
    signed = records.ledger.budgets.task(task)
    return signed.address, read_signed(signed.document).plan.tasks[signed.name].query_fields


def _left(ledger: Ledger, signed: SignedTask) -> AnswersLeft:
    return ledger.answers_left(signed) if signed.id is not None else ledger.topics_left(signed)


def _left_by_task(status: BudgetStatus) -> dict[str, AnswersLeft]:
    """By the task's address."""
    left: dict[str, AnswersLeft] = {}
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for counted in status.tasks:
        whole = address(status.knowledge_base, counted.name, counted.version)
        if counted.topic is None:
            left[whole] = counted.left
        else:
            topics[whole][counted.topic] = counted.left
    return {**left, **topics}


def _listed(plans: list[SignedPlan], left: dict[str, AnswersLeft]) -> list[ListedTask]:
    """The tasks of a knowledge base's plans, those of the newest plan first."""
    listed: list[ListedTask] = []
    named: set[str] = set()
    for plan in reversed(plans):
        for task in read_signed(plan.document).plan.tasks:
            whole = address(plan.knowledge_base, task, plan.version)
            if whole in left:  # else the plan was signed after its tasks were read
                name = whole if task in named else f"{plan.knowledge_base}.{task}"
                listed.append(ListedTask.of(name, plan, task, left[whole]))
                named.add(task)
    return listed
