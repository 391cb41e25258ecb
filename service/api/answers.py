"""Questions in, released answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from accounting.tasks import ClassifyTask, GenerateTask
from service.api.dependencies import AnalystKey, AnyKey, TheServices
from service.api.releases import ReleaseView, view
from service.commands.asking import ask as ask_command
from service.pipeline.latency import Measured
from service.records.api_keys import ApiKey
from service.records.engine_record import EngineView
from service.records.signed import read_signed
from service.services import Services

router = APIRouter(prefix="/v1", tags=["answers"])

TaskAddress = Annotated[
    str, Path(examples=["support.queue"], description="`knowledge_base.task`, or `knowledge_base.task@version`.")
]
_EXAMPLE: dict[str, Any] = {"query": "I was charged twice for my subscription in March."}


AbstainBelow = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Show an abstention where the label's probability is below this, instead of below the task's own "
        "threshold. It changes what you are shown, not what is released: an abstention is charged, and asking again "
        "with another threshold is free.",
    ),
]


class Question(BaseModel):
    """What to answer: a text, or an object with the fields of the task's query template."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})
    query: str | dict[str, str]
    abstain_below: AbstainBelow = None


class Cost(BaseModel):
    """What an answer cost and what is left.

    Attributes:
        charged: answers charged by this request: 1, or 0 for a repeat, and for whatever comes from a release that is
            made once.
        answers_left: how many answers the task may still give to everybody together; null if their number is not
            limited.
        source: the mechanism of the release that the answer comes from, if that is made once.
    """

    charged: int
    answers_left: int | None
    source: str | None = Field(default=None, exclude_if=lambda value: value is None, examples=["prototypes"])


class AnswerView(ReleaseView):
    """An answer with its cost."""

    abstained: bool | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Where a threshold is set: whether the label is less probable than that, and left out.",
    )
    realigned: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="`text`, fitted to your question by a model beside the service, where the remote one saw a "
        "sanitised question. It is for you alone: it may hold words of your question, and is no part of the release.",
    )
    cost: Cost
    engine: EngineView


@dataclass(frozen=True)
class Asking:
    """Asks on behalf of the key that calls: the one way from an endpoint to a charge, with the caller's headers."""

    services: Services
    key: ApiKey
    response: Response
    idempotency_key: str | None

    async def __call__(
        self, task: str, query: str | Mapping[str, str], abstain_below: float | None = None
    ) -> AnswerView:
        """Ask; see :meth:`service.pipeline.answering.Answering.answer`."""
        answering, name = self.services.answering, self.idempotency_key
        answer = await ask_command(
            self.key.actor, answering, task, query, idempotency_key=name, abstain_below=abstain_below
        )
        # Repeating is harmless, but nothing should ask again by itself after a charge.
        self.response.headers["x-should-retry"] = "false"
        return AnswerView(
            **view(answer.release).model_dump() | ({"label": None} if answer.abstained else {}),
            abstained=answer.abstained,
            realigned=answer.realigned,
            cost=Cost(charged=int(answer.charged), answers_left=answer.answers_left, source=answer.source),
            engine=EngineView.of(await self.services.engine.describe()),
        )


async def _asking(
    services: TheServices,
    key: AnalystKey,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=255, description="Your name for this question; refused for another one."),
    ] = None,
) -> Asking:
    return Asking(services, key, response, idempotency_key)


MayAsk = Annotated[Asking, Depends(_asking)]

ASKING_RESPONSES: dict[int | str, dict[str, Any]] = {
    402: {"description": "No answers are left, and this query was never answered before."},
    403: {
        "description": "Not an analyst's key, or one for other tasks; or the engine is remote, and the knowledge base "
        "does not allow that."
    },
    404: {"description": "The task does not exist."},
    422: {"description": "The query does not fit the task. Nothing was charged."},
    429: {"description": "Busy, or the same query is being answered: come back after Retry-After seconds."},
    503: {"description": "The engine does not answer. Nothing was charged."},
}
"""What a question may meet."""


@router.post("/tasks/{task}/answers", summary="Ask", responses=ASKING_RESPONSES)
async def ask(task: TaskAddress, body: Question, asking: MayAsk) -> AnswerView:
    """Answer one query under the task's budget.

    `task` is `knowledge_base.task`, or `knowledge_base.task@version` for a plan that is not the newest. A query that
    was answered before returns its stored release and costs nothing.
    """
    return await asking(task, body.query, body.abstain_below)


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
        default=None,
        exclude_if=lambda value: value is None,
        description="If set: less probable answers are shown as abstentions, unless a request says otherwise.",
    )
    answers: int | None = Field(description="null: any number, from a release that is made once.")
    answers_left: int | None
    latency: LatencyView | None = Field(
        default=None, exclude_if=lambda value: value is None, description="Once it was measured."
    )


@router.get("/tasks/{task}", summary="Describe a task", responses={404: ASKING_RESPONSES[404]})
async def get_task(task: TaskAddress, services: TheServices, _key: AnyKey) -> TaskView:
    """What it gives, the fields a query brings, and the answers left."""
    signed = await asyncio.to_thread(services.records.ledger.budgets.task, task)
    left = await asyncio.to_thread(services.records.ledger.answers_left, signed)
    shown = task_view(signed.address, read_signed(signed.document).plan.tasks[signed.name], left)
    for latency in services.grains.report or ():
        if latency.task == signed.address and not latency.problem:
            return shown.model_copy(update={"latency": LatencyView.of(latency)})
    return shown


def task_view(address: str, task: ClassifyTask | GenerateTask, answers_left: int) -> TaskView:
    """A task as it may be shown."""
    return TaskView(
        task=address,
        kind=task.kind,
        mechanism=task.mechanism.type,
        labels=list(task.labels) if isinstance(task, ClassifyTask) else [],
        query_fields=list(task.query_fields),
        abstain_below=task.abstain_below if isinstance(task, ClassifyTask) else None,
        answers=None if task.once else task.answers,
        answers_left=None if task.once else answers_left,
    )
