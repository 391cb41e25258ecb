"""Questions in, released answers out; and tasks tried on public exemplars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Response
from pydantic import BaseModel, Field

from service.gateway.api.dependencies import AnalystKey, AnyKey, TrialKey
from service.gateway.api.problems import may_meet
from service.gateway.bodies import ExactRoute
from service.operations import answers, tasks, trials
from service.operations.answers import AnswerView, Query
from service.operations.fields import inputs
from service.operations.tasks import TasksView, TaskView
from service.operations.trials import TrialView, Trying
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1", tags=["answers"], route_class=ExactRoute)

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
    """A query to answer: a text, or an object with the fields of the task's query template."""

    model_config = inputs(query="I was charged twice for my subscription in March.")
    query: str | dict[str, str]
    abstain_below: AbstainBelow = None


@dataclass(frozen=True)
class Asking:
    """Asks on behalf of the calling key: the one way from an endpoint to a charge, with the caller's headers."""

    caller: AnalystKey
    response: Response
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=255, description="Your name for this question; refused for another question."),
    ] = None

    async def __call__(self, task: str, query: Query, abstain_below: float | None = None) -> AnswerView:
        """Ask a question; arguments and errors as of :func:`service.operations.answers.ask`."""
        actor, services, name = self.caller.actor, self.caller.services, self.idempotency_key
        answer = await answers.ask(actor, services, task, query, idempotency_key=name, abstain_below=abstain_below)
        # Repeating is harmless, but nothing should ask again by itself after a charge.
        self.response.headers["x-should-retry"] = "false"
        return answer


MayAsk = Annotated[Asking, Depends()]

NO_TASK = may_meet(ProblemKind.UNKNOWN_TASK, ProblemKind.PLAN_RETIRED, ProblemKind.OUT_OF_SCOPE)
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
    ProblemKind.LATENCY_GRAIN_TOO_SMALL,
    ProblemKind.PLAN_RETIRED,
)
"""Refusals that a question may meet, as responses of the OpenAPI document."""


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
        ProblemKind.PLAN_RETIRED,
    ),
)
async def preview_task(task: TaskAddress, body: Trying, caller: TrialKey) -> TrialView:
    """Try a task on a query, with public exemplars.

    The engine, the prompts, the mechanism and its noise are those of the signed plan; the exemplars are the ones you
    send, dealt to slots of the sizes that a knowledge base of the declared size would give. Nothing is charged, no
    release is stored, no private exemplar is read. Analysts and admins may; it counts toward the key's rate limit.
    """
    return await trials.try_signed(caller.actor, caller.services, task, body)


@router.get("/tasks", summary="List the tasks")
async def list_tasks(caller: AnyKey) -> TasksView:
    """Every task that the key may ask, with the fields of a question, the labels, and the answers left."""
    return TasksView(tasks=[task.view for task in await caller.do(tasks.list_)])


@router.get("/tasks/{task}", summary="Describe a task", responses=NO_TASK)
async def get_task(task: TaskAddress, caller: AnyKey) -> TaskView:
    """Description of a task, with the fields of its queries, and the answers left."""
    return await caller.do(tasks.describe, task, caller.services.grains)
