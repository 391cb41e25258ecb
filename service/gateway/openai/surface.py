"""The part of OpenAI's API that programs and chat interfaces need to ask a task: a task is a model."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from service.gateway.api.answers import ASKING_RESPONSES, NO_TASK, Asking, MayAsk, TaskAddress
from service.gateway.api.dependencies import AnyKey
from service.gateway.bodies import ExactRoute
from service.gateway.openai.requests import Asked, ChatRequest, Message, question_in
from service.operations import tasks
from service.operations.answers import AnswerView
from service.operations.tasks import ListedTask, TaskView

router = APIRouter(prefix="/v1", tags=["openai"], route_class=ExactRoute)

IGNORING = (
    "With `ignore`, all messages but the newest are left out. Otherwise instructions are refused, and earlier turns, "
    "too, unless the task rewrites them."
)
"""Description of the header ``x-dpicl-context``."""


class ReplyMessage(BaseModel):
    """The label or the text; for an abstention neither, but a `refusal`."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(examples=["Billing"])
    refusal: str | None = None


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: ReplyMessage
    logprobs: None = None
    finish_reason: Literal["stop"] = "stop"


class Usage(BaseModel):
    """Always zero: an answer does not cost tokens here, and counts of private prompts' tokens would reveal something.

    The cost is in `dp_icl.cost`.
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


class Delta(BaseModel):
    """The addition of a chunk to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None


class ChunkChoice(BaseModel):
    """The one answer, in a chunk."""

    index: Literal[0]
    delta: Delta
    logprobs: None
    finish_reason: Literal["stop"] | None


class ChatCompletionChunk(BaseModel):
    """The data of an event of a stream. `dp_icl` comes with the end, `usage` in a chunk of its own on request."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str = Field(examples=["support.queue@1"])
    choices: list[ChunkChoice]
    usage: Usage | None = None
    dp_icl: AnswerView | None = None


_EVENTS = {
    "schema": {
        "type": "object",
        "description": "With `stream`: one of the server-sent events.",
        "required": ["data"],
        "properties": {
            "data": {
                "anyOf": [
                    {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": {"$ref": "#/components/schemas/ChatCompletionChunk"},
                    },
                    {"type": "string", "const": "[DONE]", "description": "The last."},
                ]
            }
        },
    },
    "example": "data: {...}\n\ndata: [DONE]\n\n",
}
_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": _EVENTS}}}


@router.post(
    "/chat/completions",
    summary="Ask, in OpenAI's shape",
    response_model=ChatCompletion,
    responses={**ASKING_RESPONSES, **_STREAM},
)
async def create_chat_completion(
    body: ChatRequest,
    asking: MayAsk,
    response: Response,
    x_dpicl_context: Annotated[
        Literal["refuse", "ignore"],
        Header(description=IGNORING),
    ] = "refuse",
) -> ChatCompletion | StreamingResponse:
    """The newest user message is the query; a task that asks for several fields takes them as a JSON object in it.

    A task with `earlier_turns: rewrite` also takes the turns before it: a language model rewrites them as one question,
    which is in `dp_icl.question`.

    With `stream` the answer comes as server-sent events, whole in one chunk: it is released whole.
    """
    completion = _completion(await ask_question(asking, body, body.messages, x_dpicl_context))
    if not body.stream:
        return completion
    with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return streamed(response, _events(completion, with_usage))


async def ask_question(
    asking: Asking, body: Asked, messages: Sequence[Message], context: Literal["refuse", "ignore"]
) -> AnswerView:
    """Ask the question in some messages of the task that a request names as its model.

    Args:
        asking: the caller.
        body: the request.
        messages: messages of the request, the newest last.
        context: treatment of the other messages.
    """
    return await asking(body.model, question_in(messages, ignore_context=context == "ignore"), body.abstain_below)


def streamed(response: Response, events: Iterator[str]) -> StreamingResponse:
    """Server-sent events as a response. It takes over the headers that dependencies have set on another one."""
    headers = {**response.headers, "cache-control": "no-store"}
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


def _completion(answer: AnswerView) -> ChatCompletion:
    message = ReplyMessage(content=text_of(answer), refusal=refusal_of(answer))
    return ChatCompletion(
        id=answer.id,
        created=int(answer.created_at.timestamp()),
        model=answer.task,
        choices=[Choice(message=message)],
        dp_icl=answer,
    )


def text_of(answer: AnswerView) -> str | None:
    """The label or the text, fitted to the question where that was done; None for an abstention."""
    return answer.label or answer.realigned or answer.text


def refusal_of(answer: AnswerView) -> str | None:
    """The sentence that stands for the label of an abstention; None for other answers."""
    if not answer.abstained:
        return None
    sure = f"a score of {answer.score}" if answer.probability is None else f"a probability of {answer.probability}"
    return f"Abstained: the label has {sure}, less than the threshold."


def _events(completion: ChatCompletion, with_usage: bool) -> Iterator[str]:
    """The completion as server-sent events: its text, its end with our members, its usage if wanted, and the mark."""
    whole = completion.model_dump(mode="json")
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    head |= {"usage": None} if with_usage else {}

    def event(**members: Any) -> str:
        return f"data: {json.dumps(head | members)}\n\n"

    def choice(delta: dict[str, str | None], finish_reason: str | None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]

    message = whole["choices"][0]["message"]
    refused = {"refusal": message["refusal"]} if message["refusal"] else {}
    yield event(choices=choice({"role": "assistant", "content": message["content"], **refused}, None))
    yield event(choices=choice({}, "stop"), dp_icl=whole["dp_icl"])
    if with_usage:
        yield event(choices=[], usage=whole["usage"])
    yield "data: [DONE]\n\n"


class Model(BaseModel):
    """A task as a model. `id` without a version is the task of the newest plan; `dp_icl` describes it."""

    id: str = Field(examples=["support.queue"])
    object: Literal["model"] = "model"
    created: int = Field(description="Time of the plan's signature, in seconds since 1970.")
    owned_by: str = Field(examples=["support"], description="Name of the knowledge base.")
    dp_icl: TaskView


class Models(BaseModel):
    """All tasks as models: OpenAI's clients do not request a second page."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models", summary="List the tasks, in OpenAI's shape")
async def list_models(caller: AnyKey) -> Models:
    """Every task that the key is for, by name; a task that a newer plan replaced, with its version."""
    return Models(data=[_model(task) for task in await caller.do(tasks.list_)])


@router.get("/models/{model}", summary="Describe a task, in OpenAI's shape", responses=NO_TASK)
async def get_model(model: TaskAddress, caller: AnyKey) -> Model:
    """The task, under the requested name."""
    return _model(await caller.do(tasks.find, model))


def _model(task: ListedTask) -> Model:
    return Model(id=task.name, created=int(task.signed_at.timestamp()), owned_by=task.knowledge_base, dp_icl=task.view)
