"""Questions in, released answers out; and tasks tried on public exemplars."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Response
from pydantic import BaseModel, Field

from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import Ledger
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.latency import Measured
from service.gateway.api.dependencies import AnalystKey, AnyKey, TrialKey
from service.gateway.api.problems import may_meet
from service.gateway.api.releases import ReleaseView, view
from service.operations import answers, trials
from service.operations.fields import ABSENT, inputs
from service.operations.trials import TrialView, Trying
from service.problem_kinds import ProblemKind
from service.records.engine_record import EngineView
from service.records.signed import read_signed

router = APIRouter(prefix="/v1", tags=["answers"])

TaskAddress = Annotated[
    str, Path(examples=["support.queue"], description="`knowledge_base.task`, or `knowledge_base.task@version`.")
]

AbstainBelow = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Show an abstention where the label's score, or its probability, is below this, instead of below "
        "the task's own threshold. It changes what you are shown, not what is released: an abstention is charged, and "
        "asking again with another threshold is free.",
    ),
]


class Question(BaseModel):
    """What to answer: a text, or an object with the fields of the task's query template."""

    model_config = inputs(query="I was charged twice for my subscription in March.")
    query: str | dict[str, str]
    abstain_below: AbstainBelow = None


class Cost(BaseModel):
    """What an answer cost and what is left.

    Attributes:
        charged: answers charged by this request: 1, or 0 for a repeat, and for whatever comes from a release that is
            made once.
        answers_left: how many answers the task may still give to everybody together, on the question's topic if it has
            topics; null if their number is not limited.
        source: the mechanism of the release that the answer comes from, if that is made once.
    """

    charged: int
    answers_left: int | None
    source: str | None = Field(**ABSENT, examples=["prototypes"])


class AnswerView(ReleaseView):
    """An answer with its cost."""

    abstained: bool | None = Field(
        **ABSENT,
        description="Where a threshold is set: whether the label's score is lower than that, and the label left out.",
    )
    realigned: str | None = Field(
        **ABSENT,
        description="`text`, fitted to your question by a model beside the service, where the remote one saw a "
        "sanitised question. It is for you alone: it may hold words of your question, and is no part of the release.",
    )
    cost: Cost
    engine: EngineView


@dataclass(frozen=True)
class Asking:
    """Asks on behalf of the key that calls: the one way from an endpoint to a charge, with the caller's headers."""

    caller: AnalystKey
    response: Response
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=255, description="Your name for this question; refused for another one."),
    ] = None

    async def __call__(
        self, task: str, query: str | Mapping[str, str], abstain_below: float | None = None
    ) -> AnswerView:
        """Ask; see :meth:`service.answering.answering.Answering.answer`."""
        answering, name = self.caller.services.answering, self.idempotency_key
        answer = await answers.ask(
            self.caller.actor, answering, task, query, idempotency_key=name, abstain_below=abstain_below
        )
        # Repeating is harmless, but nothing should ask again by itself after a charge.
        self.response.headers["x-should-retry"] = "false"
        return AnswerView(
            **view(answer.release).model_dump() | ({"label": None} if answer.abstained else {}),
            abstained=answer.abstained,
            realigned=answer.realigned,
            cost=Cost(charged=int(answer.charged), answers_left=answer.answers_left, source=answer.source),
            engine=EngineView.of(await self.caller.services.engine.describe()),
        )


MayAsk = Annotated[Asking, Depends()]

NO_TASK = may_meet(ProblemKind.UNKNOWN_TASK)
ASKING_RESPONSES = may_meet(
    ProblemKind.ANSWERS_EXHAUSTED,
    ProblemKind.QUOTA_EXHAUSTED,
    ProblemKind.WRONG_ROLE,
    ProblemKind.OUT_OF_SCOPE,
    ProblemKind.REMOTE_ENGINE_FORBIDDEN,
    ProblemKind.UNKNOWN_TASK,
    ProblemKind.INVALID_QUERY,
    ProblemKind.IDEMPOTENCY_CONFLICT,
    ProblemKind.BUSY,
    ProblemKind.STILL_ANSWERING,
    ProblemKind.ENGINE_UNAVAILABLE,
    ProblemKind.UNUSABLE_REPLY,
)
"""What a question may meet."""


@router.post("/tasks/{task}/answers", summary="Ask", responses=ASKING_RESPONSES)
async def ask_task(task: TaskAddress, body: Question, asking: MayAsk) -> AnswerView:
    """Answer one query under the task's budget.

    `task` is `knowledge_base.task`, or `knowledge_base.task@version` for a plan that is not the newest. A query that
    was answered before returns its stored release and costs nothing.
    """
    return await asking(task, body.query, body.abstain_below)


@router.post(
    "/tasks/{task}/preview",
    summary="Try a task on public exemplars, free",
    responses=may_meet(
        ProblemKind.OUT_OF_SCOPE,
        ProblemKind.UNKNOWN_TASK,
        ProblemKind.INVALID_QUERY,
        ProblemKind.BUSY,
        ProblemKind.RATE_LIMITED,
        ProblemKind.ENGINE_UNAVAILABLE,
        ProblemKind.UNUSABLE_REPLY,
    ),
)
async def preview_task(task: TaskAddress, body: Trying, caller: TrialKey) -> TrialView:
    """See what a task makes of a query, on exemplars that are public.

    The engine, the prompts, the mechanism and its noise are those of the signed plan; the exemplars are the ones you
    send, dealt to slots of the sizes that a knowledge base of the declared size would give. Nothing is charged, no
    release is stored, no private exemplar is read. Analysts and admins may; it counts toward the key's rate limit.
    """
    caller.actor.require_task(task)
    records = caller.services.records
    signed = await asyncio.to_thread(records.ledger.budgets.task, task)
    described = await asyncio.to_thread(records.store.get, signed.knowledge_base)
    fields = described.embedded_field, described.response_field
    plan = read_signed(signed.document)
    return TrialView.of(
        signed.address, await trials.try_(caller.actor, caller.services.trials, plan, signed.name, body, *fields)
    )


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


@router.get("/tasks/{task}", summary="Describe a task", responses=NO_TASK)
async def get_task(task: TaskAddress, caller: AnyKey) -> TaskView:
    """What it gives, the fields a query brings, and the answers left."""
    services = caller.services
    signed = await asyncio.to_thread(services.records.ledger.budgets.task, task)
    left = await asyncio.to_thread(answers_left, services.records.ledger, signed)
    shown = task_view(signed.address, read_signed(signed.document).plan.tasks[signed.name], left)
    for latency in services.grains.report or ():
        if latency.task == signed.whole and not latency.problem:
            return shown.model_copy(update={"latency": LatencyView.of(latency)})
    return shown


def answers_left(ledger: Ledger, signed: SignedTask) -> int | dict[str, int]:
    """Of a task, or by topic if it has topics."""
    return ledger.answers_left(signed) if signed.id is not None else ledger.topics_left(signed)


def task_view(address: str, task: ClassifyTask | GenerateTask, left: int | dict[str, int]) -> TaskView:
    """A task as it may be shown.

    Args:
        address: the task's.
        task: as signed.
        left: answers, or by topic if it has topics.
    """
    topics = left if isinstance(left, dict) else None
    answers_left = sum(left.values()) if isinstance(left, dict) else left
    return TaskView(
        task=address,
        kind=task.kind,
        mechanism=task.mechanism.type,
        labels=list(task.labels) if isinstance(task, ClassifyTask) else [],
        query_fields=list(task.query_fields),
        abstain_below=task.abstain_below if isinstance(task, ClassifyTask) else None,
        fitted_to=task.mechanism.fitted if isinstance(task, ClassifyTask) else None,
        answers=None if task.once else task.answers,
        answers_left=None if task.once else answers_left,
        topics=topics,
    )
