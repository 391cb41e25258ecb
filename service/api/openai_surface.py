"""The part of OpenAI's API that programs and chat interfaces need to ask a task: a task is a model.

What the API means and a signed plan cannot do is refused with a reason (several choices, tools, a system message that
would have to change the prompt): an answer is charged, so a question that would be misread must not be asked. What
only tunes a model's sampling changes nothing here and is accepted and ignored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

from accounting.ledger import SignedPlan
from accounting.plan import CalibratedPlan
from service.answering import signed_plan
from service.api.answers import ASKING_RESPONSES, AnswerView, Asking, TaskAddress, TaskView, task_view
from service.api.dependencies import AnyKey, TheServices
from service.api.problems import Problem
from service.queries import InvalidQueryError
from service.services import Records

router = APIRouter(prefix="/v1", tags=["openai"])


class Only:
    """Marks a parameter that is understood and cannot be granted: values that ask for nothing pass, others are refused.

    Args:
        neutral: what passes, besides None.
        why: the reason, told to whoever sends something else.
    """

    def __init__(self, *neutral: Any, why: str):
        self._neutral = neutral
        self._why = why

    def _check(self, value: Any) -> Any:
        same_kind = [one for one in (None, *self._neutral) if isinstance(one, bool) == isinstance(value, bool)]
        if value not in same_kind:
            raise ValueError(self._why)
        return value

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        return {"enum": [None, *self._neutral], "description": f"Anything else is refused: {self._why}."}


_NO_TOOLS = "an answer is one release, no tool can be called"
_NO_SCORES = "votes and probabilities are private, only the answer leaves"
_AS_RELEASED = "the answer is released as it is; shape it on your side"


class Strict(BaseModel):
    """A part of a body: no silent conversions."""

    model_config = ConfigDict(strict=True)


class Ignored(Strict):
    """Parameters that are accepted and change nothing: the task's signed plan says how an answer comes about."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    metadata: dict[str, str] | None = None


class Part(Strict):
    """A piece of a message."""

    type: str = Field(examples=["text"])
    text: str | None = None


class Message(Strict):
    """A message: a text, or parts that are all text. Members besides these are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None


class StreamOptions(Strict):
    """How to stream."""

    include_usage: bool | None = None


class ChatRequest(Ignored):
    """A question. The newest message, which must be the user's, is the query."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "support.queue",
                    "messages": [{"role": "user", "content": "I was charged twice for my subscription in March."}],
                }
            ]
        },
    )

    model: str = Field(
        pattern=r"^[^\x00]{1,200}$", description="A task: `knowledge_base.task`, or `knowledge_base.task@version`."
    )
    messages: list[Message] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[Any, Only(1, why="a question has one answer")] = None
    tools: Annotated[Any, Only([], why=_NO_TOOLS)] = None
    tool_choice: Annotated[Any, Only("none", "auto", why=_NO_TOOLS)] = None
    functions: Annotated[Any, Only([], why=_NO_TOOLS)] = None
    function_call: Annotated[Any, Only("none", "auto", why=_NO_TOOLS)] = None
    response_format: Annotated[Any, Only({"type": "text"}, why=_AS_RELEASED)] = None
    stop: Annotated[Any, Only([], why=_AS_RELEASED)] = None
    logit_bias: Annotated[Any, Only({}, why="the plan's labels and mechanism decide, nothing can be favoured")] = None
    logprobs: Annotated[Any, Only(False, why=_NO_SCORES)] = None
    top_logprobs: Annotated[Any, Only(0, why=_NO_SCORES)] = None
    modalities: Annotated[Any, Only(["text"], why="answers are text")] = None
    audio: Annotated[Any, Only(why="answers are text")] = None
    prediction: Annotated[Any, Only(why=_AS_RELEASED)] = None
    web_search_options: Annotated[Any, Only(why="answers come from the knowledge base alone")] = None


class ReplyMessage(BaseModel):
    """The label or the text."""

    role: Literal["assistant"] = "assistant"
    content: str = Field(examples=["Billing"])
    refusal: None = None


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: ReplyMessage
    logprobs: None = None
    finish_reason: Literal["stop"] = "stop"


class Usage(BaseModel):
    """Always zero: tokens are not what an answer costs here, and counting those of private prompts would tell of them.

    What it cost is in `dp_icl.cost`.
    """

    prompt_tokens: Literal[0] = 0
    completion_tokens: Literal[0] = 0
    total_tokens: Literal[0] = 0


class ChatCompletion(BaseModel):
    """An answer in OpenAI's shape; `dp_icl` holds the answer with its cost in ours. `id` is the release's."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str = Field(examples=["support.queue@1"])
    choices: list[Choice]
    usage: Usage = Usage()
    dp_icl: AnswerView


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"example": "data: {...}\n\ndata: [DONE]\n\n"}}}
}


@router.post(
    "/chat/completions",
    summary="Ask, in OpenAI's shape",
    response_model=ChatCompletion,
    responses={**ASKING_RESPONSES, **_STREAM},
)
async def chat_completions(
    body: ChatRequest,
    services: TheServices,
    asking: Annotated[Asking, Depends()],
    response: Response,
    x_dpicl_context: Annotated[
        Literal["refuse", "ignore"],
        Header(description="What to do with messages besides the newest: a question is answered by itself."),
    ] = "refuse",
) -> ChatCompletion | StreamingResponse:
    """The newest user message is the query; a task that asks for several fields takes them as a JSON object in it.

    With `stream` the answer comes as server-sent events, whole in one chunk: it is released whole.
    """
    text = newest_message(body.messages, ignore_context=x_dpicl_context == "ignore")
    signed = await asyncio.to_thread(services.records.ledger.task, body.model)
    fields = signed_plan(signed).plan.tasks[signed.name].query_fields
    answer = await asking(signed.address, _query(text, fields))
    if not body.stream:
        return _completion(answer)
    with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    # A response made here does not take over the headers that dependencies have set.
    headers = {**response.headers, "cache-control": "no-store"}
    return StreamingResponse(_events(_completion(answer), with_usage), headers=headers, media_type="text/event-stream")


def newest_message(messages: list[Message], *, ignore_context: bool) -> str:
    """The text of the newest message.

    Raises:
        Problem: 422, there are others that would have to be ignored, and the caller did not allow it.
        InvalidQueryError: the newest is not the user's, or not text.
    """
    *context, newest = messages
    if newest.role != "user":
        raise InvalidQueryError(f"the last message is the {newest.role}'s: the query is the user's last message")
    if not ignore_context and any(_says_something(message) for message in context):
        raise Problem(422, "context-not-supported", _NO_CONTEXT)
    if isinstance(newest.content, str):
        return newest.content
    parts = newest.content or []
    if other := [part.type for part in parts if part.type != "text" or part.text is None]:
        raise InvalidQueryError(f"the message holds {', '.join(other)}: a query is text")
    return "\n".join(str(part.text) for part in parts)


_NO_CONTEXT = (
    "a question is answered by itself, under the prompt its task was signed with: system messages and earlier turns "
    "cannot be heeded. Send the newest user message alone (in a chat, start a new one); or send the header "
    "'x-dpicl-context: ignore' if what came before may be ignored"
)


def _says_something(message: Message) -> bool:
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)


def _query(text: str, fields: tuple[str, ...]) -> str | Mapping[str, str]:
    """The text; of a task with several fields, the object it writes."""
    if len(fields) == 1:
        return text
    wanted = f"this task needs the fields {', '.join(fields)}: send them as a JSON object in the message's text"
    try:
        query = json.loads(text)
    except ValueError:
        raise InvalidQueryError(wanted) from None
    if not isinstance(query, dict) or not all(isinstance(value, str) for value in query.values()):
        raise InvalidQueryError(f"{wanted}, each a string")
    return query


def _completion(answer: AnswerView) -> ChatCompletion:
    return ChatCompletion(
        id=answer.id,
        created=int(answer.created_at.timestamp()),
        model=answer.task,
        choices=[Choice(message=ReplyMessage(content=str(answer.text if answer.label is None else answer.label)))],
        dp_icl=answer,
    )


def _events(completion: ChatCompletion, with_usage: bool) -> Iterator[str]:
    """The completion as server-sent events: its text, its end with our members, its usage if wanted, and the mark."""
    whole = completion.model_dump(mode="json")
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    head |= {"usage": None} if with_usage else {}

    def event(**members: Any) -> str:
        return f"data: {json.dumps(head | members)}\n\n"

    def choice(delta: dict[str, str], finish_reason: str | None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]

    message = whole["choices"][0]["message"]
    yield event(choices=choice({"role": "assistant", "content": message["content"]}, None))
    yield event(choices=choice({}, "stop"), dp_icl=whole["dp_icl"])
    if with_usage:
        yield event(choices=[], usage=whole["usage"])
    yield "data: [DONE]\n\n"


class Model(BaseModel):
    """A task as a model. `id` without a version is the task of the newest plan; `dp_icl` describes it."""

    id: str = Field(examples=["support.queue"])
    object: Literal["model"] = "model"
    created: int = Field(description="When the plan was signed, in seconds since 1970.")
    owned_by: str = Field(examples=["support"], description="The knowledge base.")
    dp_icl: TaskView


class Models(BaseModel):
    """All of them: OpenAI's clients ask for no second page."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models", summary="List the tasks, in OpenAI's shape")
async def list_models(services: TheServices, _key: AnyKey) -> Models:
    """Every task by its name; those of plans that have a newer one of that name with their version."""
    return Models(data=await asyncio.to_thread(_models, services.records))


@router.get("/models/{model}", summary="Describe a task, in OpenAI's shape", responses={404: ASKING_RESPONSES[404]})
async def get_model(model: TaskAddress, services: TheServices, _key: AnyKey) -> Model:
    """The task, under the name it was asked for."""
    ledger = services.records.ledger
    signed = await asyncio.to_thread(ledger.task, model)
    return _model(model, signed.plan, signed.name, await asyncio.to_thread(ledger.answers_left, signed))


def _models(records: Records) -> list[Model]:
    found: list[Model] = []
    for budget in records.ledger.budgets():
        left = {task.address: task.left for task in budget.tasks}
        named: set[str] = set()
        for plan in reversed(records.ledger.plans(budget.knowledge_base)):
            for name, _ in plan.tasks:
                short = f"{plan.knowledge_base}.{name}"
                address = f"{short}@{plan.version}"
                found.append(_model(address if name in named else short, plan, name, left[address]))
            named.update(name for name, _ in plan.tasks)
    return found


def _model(model_id: str, plan: SignedPlan, name: str, answers_left: int) -> Model:
    task = CalibratedPlan.model_validate_json(plan.document).plan.tasks[name]
    return Model(
        id=model_id,
        created=int(plan.signed_at.timestamp()),
        owned_by=plan.knowledge_base,
        dp_icl=task_view(f"{plan.knowledge_base}.{name}@{plan.version}", task, answers_left),
    )
