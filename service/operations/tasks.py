"""Signed tasks: what they give, the fields a query brings, and the answers left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from accounting.ledger.budgets import BudgetStatus, SignedPlan, SignedTask, address
from accounting.ledger.charges import Ledger
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.latency import Grains, Measured
from service.operations.command import command
from service.operations.fields import ABSENT
from service.operations.measured import MeasuredView, measured
from service.operations.roles import Actor, Right
from service.records.records import Records
from service.records.signed import read_signed

AnswersLeft = int | dict[str, int]
"""Number of a task's answers left, or numbers by topic if it has topics."""


class LatencyView(BaseModel):
    """Times that the task's answers take, in seconds, measured with made-up exemplars."""

    typical_s: float | None = Field(
        description="Time of work on slots of ordinary length by a language model; null: another engine answers."
    )
    largest_s: float = Field(description="Time of work on the largest possible slots.")
    grain_s: float = Field(description="Answers leave after this time, or a multiple.")
    kept_blocks: int = Field(description="Number of blocks that are read ahead, where the task draws blocks.")
    cold: str | None = Field(
        description="Reason why blocks are not read ahead, and the remedy; null: they are, or the task draws no blocks."
    )

    @classmethod
    def of(cls, measured: Measured) -> LatencyView:
        """A measurement as it may be shown."""
        return cls(
            typical_s=measured.typical_s or None,
            largest_s=measured.work_s,
            grain_s=measured.grain_s,
            kept_blocks=measured.blocks,
            cold=measured.cold or None,
        )


class TaskView(BaseModel):
    """A task as callers need to know it."""

    task: str = Field(examples=["support.queue@1"])
    kind: str
    mechanism: str
    labels: list[str] = Field(description="The task's labels; empty where the answer is free text.")
    query_fields: list[str]
    abstain_below: float | None = Field(
        **ABSENT,
        description="Score below which answers are shown as abstentions, unless a request sets another threshold.",
    )
    earlier_turns: Literal["rewrite"] | None = Field(
        **ABSENT,
        description="Whether a conversation is rewritten as one question, by OpenAI's routes. Absent where earlier "
        "turns are refused.",
    )
    fitted_to: int | None = Field(
        **ABSENT,
        description="Number of labelled public rows that the task was fitted to: its answers carry a `probability`. "
        "Absent where it was not fitted: they carry a `score`, or neither.",
    )
    answers: int | None = Field(
        description="Number of answers, on each topic if it has topics; null: any number, from a one-time release."
    )
    answers_left: int | None
    topics: dict[str, int] | None = Field(
        **ABSENT, description="Answers left on each topic, if it has topics; `answers_left` is their sum."
    )
    measured: MeasuredView | None = Field(
        **ABSENT,
        description="How often its one-time release is right, by its own count. Absent where it is not measured.",
    )
    latency: LatencyView | None = Field(**ABSENT, description="Times of its answers, once they were measured.")

    @classmethod
    def of(
        cls,
        address: str,
        task: ClassifyTask | GenerateTask,
        left: AnswersLeft,
        measured: Mapping[str, MeasuredView],
    ) -> TaskView:
        """A task as it may be shown.

        Args:
            address: address of the task.
            task: the task as signed.
            left: answers left.
            measured: accuracies of one-time releases, by the task's address.
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
            earlier_turns=None if task.earlier_turns == "refuse" else task.earlier_turns,
            fitted_to=task.mechanism.fitted if isinstance(task, ClassifyTask) else None,
            answers=task.releases.shown(task.answers),
            answers_left=task.releases.shown(answers_left),
            topics=topics,
            measured=measured.get(address),
        )


class TasksView(BaseModel):
    """The tasks that a key may ask, by name."""

    tasks: list[TaskView]


@dataclass(frozen=True)
class ListedTask:
    """A task beside others.

    Attributes:
        name: name under which it is listed: without a version, the task of the newest plan.
        knowledge_base: name of the knowledge base that it draws on.
        signed_at: time of its plan's signature.
        view: description for callers.
    """

    name: str
    knowledge_base: str
    signed_at: datetime
    view: TaskView

    @classmethod
    def of(
        cls, name: str, plan: SignedPlan, task: str, left: AnswersLeft, measured: Mapping[str, MeasuredView]
    ) -> ListedTask:
        """A task of a plan, listed under a name; arguments as of :meth:`TaskView.of`."""
        whole = address(plan.knowledge_base, task, plan.version)
        view = TaskView.of(whole, read_signed(plan.document).plan.tasks[task], left, measured)
        return cls(name, plan.knowledge_base, plan.signed_at, view)


@command(Right.SEE)
def describe(actor: Actor, records: Records, task: str, grains: Grains) -> TaskView:
    """A task, with the times that its answers take once they were measured.

    Raises:
        service.operations.roles.OutOfScopeError: the task is not in the actor's scope.
        accounting.ledger.errors.UnknownTaskError: no task has this address.
    """
    actor.require_task(task)
    signed = records.ledger.budgets.task(task)
    written = read_signed(signed.document).plan.tasks[signed.name]
    own = measured(records.ledger, [signed.plan])
    shown = TaskView.of(signed.address, written, _left(records.ledger, signed), own)
    for latency in grains.report or ():
        if latency.task == signed.whole and not latency.problem:
            return shown.model_copy(update={"latency": LatencyView.of(latency)})
    return shown


@command(Right.SEE)
def find(actor: Actor, records: Records, task: str) -> ListedTask:
    """A task, under the name by which it was requested.

    Raises:
        service.operations.roles.OutOfScopeError: the task is not in the actor's scope.
        accounting.ledger.errors.UnknownTaskError: no task has this address.
    """
    actor.require_task(task)
    signed = records.ledger.budgets.task(task)
    own = measured(records.ledger, [signed.plan])
    return ListedTask.of(task, signed.plan, signed.name, _left(records.ledger, signed), own)


@command(Right.SEE)
def list_(actor: Actor, records: Records) -> list[ListedTask]:
    """Every task that the actor may ask, by name; the name of a task that a newer plan replaced has its version."""
    tasks = []
    for status in records.ledger.budgets.statuses():
        plans = records.ledger.budgets.plans(status.knowledge_base)
        tasks += _listed(plans, _left_by_task(status), measured(records.ledger, plans))
    return [task for task in tasks if actor.sees_task(task.name)]


def _left(ledger: Ledger, signed: SignedTask) -> AnswersLeft:
    return ledger.answers_left(signed) if signed.id is not None else ledger.topics_left(signed)


def _left_by_task(status: BudgetStatus) -> dict[str, AnswersLeft]:
    """Answers left, by the task's address."""
    left: dict[str, AnswersLeft] = {}
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for counted in (one for one in status.tasks if not one.retired):
        whole = address(status.knowledge_base, counted.name, counted.version)
        if counted.topic is None:
            left[whole] = counted.left
        else:
            topics[whole][counted.topic] = counted.left
    return {**left, **topics}


def _listed(
    plans: list[SignedPlan], left: dict[str, AnswersLeft], measured: Mapping[str, MeasuredView]
) -> list[ListedTask]:
    """The tasks of a knowledge base's plans, those of the newest plan first."""
    listed: list[ListedTask] = []
    named: set[str] = set()
    for plan in reversed(plans):
        for task in read_signed(plan.document).plan.tasks:
            whole = address(plan.knowledge_base, task, plan.version)
            if whole in left:  # else the plan was signed after its tasks were read
                name = whole if task in named else f"{plan.knowledge_base}.{task}"
                listed.append(ListedTask.of(name, plan, task, left[whole], measured))
                named.add(task)
    return listed
