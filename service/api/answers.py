"""Questions in, released answers out."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field

from accounting.ledger import Release
from accounting.tasks import ClassifyTask
from service.answering import signed_plan
from service.api.dependencies import AnalystKey, AnyKey, TheServices
from service.engine_record import EngineView

router = APIRouter(prefix="/v1", tags=["answers"])

_EXAMPLE: dict[str, Any] = {"query": "I was charged twice for my subscription in March."}


class Question(BaseModel):
    """What to answer: a text, or an object with the fields of the task's query template."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})
    query: str | dict[str, str]


class Cost(BaseModel):
    """What an answer cost and what is left.

    Attributes:
        charged: answers charged by this request: 1, or 0 for a repeat.
        answers_left: how many answers the task may still give to everybody together.
    """

    charged: int
    answers_left: int


class ReleaseView(BaseModel):
    """An answer that left."""

    id: str = Field(examples=["8b7e8f43-9a3c-4f0e-9d0b-7a7b4f1f3c55"])
    task: str = Field(examples=["support.queue@1"])
    label: str | None = Field(default=None, examples=["Billing"], description="Of a task that classifies.")
    text: str | None = Field(default=None, description="Of a task that generates text.")
    keywords: list[str] | None = Field(
        default=None,
        description="The words the text is made of, where the mechanism releases words: the most frequent first "
        "(keyword_joint_em), or in alphabetical order (keyword_ptr).",
    )
    fallback: bool | None = Field(
        default=None, description="Of keyword_ptr: true if no words stood out, and the text saw no exemplar."
    )
    method: str | None = Field(default=None, description="How the text came about.")
    created_at: datetime


class AnswerView(ReleaseView):
    """An answer with its cost."""

    cost: Cost
    engine: EngineView


_RESPONSES: dict[int | str, dict[str, Any]] = {
    402: {"description": "The task has no answers left, and this query was never answered before."},
    403: {"description": "The engine is remote, and the knowledge base does not allow that. Nothing was charged."},
    404: {"description": "No such task."},
    422: {"description": "The query does not fit the task. Nothing was charged."},
    429: {"description": "Busy, or the same query is being answered: come back after Retry-After seconds."},
    503: {"description": "The engine does not answer. Nothing was charged."},
}


@router.post("/tasks/{task}/answers", summary="Ask", responses=_RESPONSES, response_model_exclude_none=True)
async def ask(
    task: str,
    body: Question,
    services: TheServices,
    key: AnalystKey,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> AnswerView:
    """Answer one query under the task's budget.

    `task` is `knowledge_base.task`, or `knowledge_base.task@version` for a plan that is not the newest. A query that
    was answered before returns its stored release and costs nothing.
    """
    answer = await services.answering.answer(task, body.query, key_id=key.id, idempotency_key=idempotency_key)
    # Repeating is harmless, but nothing should ask again by itself after a charge.
    response.headers["x-should-retry"] = "false"
    return AnswerView(
        **view(answer.release).model_dump(),
        cost=Cost(charged=int(answer.charged), answers_left=answer.answers_left),
        engine=EngineView.of(await services.engine.describe()),
    )


class TaskView(BaseModel):
    """A task, as whoever asks it needs to know it."""

    task: str = Field(examples=["support.queue@1"])
    kind: str
    mechanism: str
    labels: list[str] = Field(description="Empty where the answer is free text.")
    query_fields: list[str]
    answers: int
    answers_left: int


@router.get("/tasks/{task}", summary="Describe a task")
async def get_task(task: str, services: TheServices, _key: AnyKey) -> TaskView:
    """What it gives, the fields a query brings, and the answers left."""
    signed = await asyncio.to_thread(services.records.ledger.task, task)
    described = signed_plan(signed).plan.tasks[signed.name]
    return TaskView(
        task=signed.address,
        kind=described.kind,
        mechanism=described.mechanism.type,
        labels=list(described.labels) if isinstance(described, ClassifyTask) else [],
        query_fields=list(described.query_fields),
        answers=signed.answers,
        answers_left=await asyncio.to_thread(services.records.ledger.answers_left, signed),
    )


@router.get(
    "/releases/{release_id}",
    summary="Read a release again",
    responses={404: {"description": "No such release."}},
    response_model_exclude_none=True,
)
async def get_release(release_id: str, services: TheServices, _key: AnyKey) -> ReleaseView:
    """Releases are public: reading one again costs nothing."""
    return view(await asyncio.to_thread(services.records.ledger.get_release, release_id))


def view(release: Release) -> ReleaseView:
    """A release as it may be shown."""
    return ReleaseView(id=release.id, task=release.task, created_at=release.created_at, **release.answer)
