"""OpenAI's Responses API, as far as one question without a memory needs it: a task is a model.

The members and the order of a stream's events are those of the Open Responses specification (openresponses.org), which
OpenAI's clients and Agents SDK read. Nothing is remembered, so a request that refers to another one is refused.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from service.gateway.api.answers import ASKING_RESPONSES, MayAsk
from service.gateway.bodies import ExactRoute
from service.gateway.openai.requests import AS_RELEASED, NO_SCORES, NO_TOOLS, Asked, Message, Only, StrictBody
from service.gateway.openai.surface import IGNORING, ask_question, refusal_of, streamed, text_of
from service.operations.answers import AnswerView

router = APIRouter(prefix="/v1", tags=["openai"], route_class=ExactRoute)

_NO_MEMORY = "nothing is remembered between questions: send the question alone"


class InputMessage(Message):
    """A message of the input. Items of other types, such as results of tools, are refused."""

    model_config = ConfigDict(extra="ignore")

    type: Annotated[Any, Only("message", why=NO_TOOLS)] = None


class ResponsesStreamOptions(StrictBody):
    """Options of a stream, which change nothing here."""

    include_obfuscation: bool | None = None


class TextOptions(StrictBody):
    """Options of the text. How wordy it is to be changes nothing, as in chat completions."""

    model_config = ConfigDict(extra="forbid")

    format: Annotated[Any, Only({"type": "text"}, why=AS_RELEASED)] = None
    verbosity: str | None = None


def _without_reasoning(given: Any) -> Any:
    """The input without the thoughts that another model had before a message: they are not a part of the question."""
    if not isinstance(given, list):
        return given
    return [item for item in given if not (isinstance(item, dict) and item.get("type") == "reasoning")]


def _no_scores(include: list[str] | None) -> list[str] | None:
    if "message.output_text.logprobs" in (include or ()):
        raise ValueError(NO_SCORES)
    return include


class ResponsesRequest(Asked):
    """A question. The input, or its newest message, which must be the user's, is the query, or ends a conversation."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"model": "support.queue", "input": "I was charged twice for my subscription in March."}]
        },
    )

    input: Annotated[
        str | Annotated[list[InputMessage], Field(min_length=1)],
        BeforeValidator(_without_reasoning),
        Field(description="Items of the type `reasoning` are left out."),
    ]
    instructions: str | None = Field(
        default=None, description="Refused like a system message, unless `x-dpicl-context: ignore` allows to ignore it."
    )
    stream_options: ResponsesStreamOptions | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[dict[str, Any]] | None = None
    previous_response_id: Annotated[Any, Only(why=_NO_MEMORY)] = None
    conversation: Annotated[Any, Only(why=_NO_MEMORY)] = None
    background: Annotated[Any, Only(False, why="an answer is waited for; send it with an Idempotency-Key")] = None
    prompt: Annotated[Any, Only(why="the signed plan has the prompt")] = None
    include: Annotated[
        list[str] | None,
        AfterValidator(_no_scores),
        Field(description="An answer has neither reasoning nor results of tools to include; scores are refused."),
    ] = None
    text: TextOptions | None = None


class OutputText(BaseModel):
    """The label or the text."""

    type: Literal["output_text"] = "output_text"
    text: str = Field(examples=["Billing"])
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputRefusal(BaseModel):
    """The reason why no label is shown: an abstention."""

    type: Literal["refusal"] = "refusal"
    refusal: str


class OutputMessage(BaseModel):
    """The one message of a response."""

    type: Literal["message"] = "message"
    id: str
    status: Literal["in_progress", "completed"] = "completed"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText | OutputRefusal]


class ResponseUsage(BaseModel):
    """Always zero: an answer does not cost tokens here, and counts of private prompts' tokens would reveal something.

    The cost is in `dp_icl.cost`.
    """

    input_tokens: Literal[0] = 0
    input_tokens_details: dict[str, int] = {"cached_tokens": 0, "cache_write_tokens": 0}
    output_tokens: Literal[0] = 0
    output_tokens_details: dict[str, int] = {"reasoning_tokens": 0}
    total_tokens: Literal[0] = 0


class OpenResponse(BaseModel):
    """An answer in the shape of a response; `dp_icl` holds the answer with its cost in ours. `id` is the release's.

    Members that describe how a model was sampled have the value that asks for nothing.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed"] = "completed"
    error: None = None
    incomplete_details: None = None
    instructions: None = None
    model: str = Field(examples=["support.queue@1"])
    output: list[OutputMessage]
    previous_response_id: None = None
    tools: list[Any] = []
    tool_choice: Literal["none"] = "none"
    parallel_tool_calls: Literal[False] = False
    max_output_tokens: None = None
    max_tool_calls: None = None
    truncation: Literal["disabled"] = "disabled"
    text: dict[str, Any] = {"format": {"type": "text"}}
    reasoning: None = None
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: Literal[0] = 0
    store: Literal[False] = False
    background: Literal[False] = False
    service_tier: Literal["default"] = "default"
    metadata: dict[str, str] = {}
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    usage: ResponseUsage | None = ResponseUsage()
    dp_icl: AnswerView | None


_EVENTS = {
    "schema": {
        "type": "object",
        "description": "With `stream`: one of the server-sent events.",
        "required": ["event", "data"],
        "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    },
    "example": "event: response.completed\ndata: {...}\n\ndata: [DONE]\n\n",
}
_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": _EVENTS}}}


@router.post(
    "/responses",
    summary="Ask, in the shape of OpenAI's Responses API",
    response_model=OpenResponse,
    responses={**ASKING_RESPONSES, **_STREAM},
)
async def create_response(
    body: ResponsesRequest,
    asking: MayAsk,
    response: Response,
    x_dpicl_context: Annotated[
        Literal["refuse", "ignore"],
        Header(description=IGNORING),
    ] = "refuse",
) -> OpenResponse | StreamingResponse:
    """The input is the query; a task that asks for several fields takes them as a JSON object in it.

    A task with `earlier_turns: rewrite` also takes several messages: a language model rewrites them as one question,
    which is in `dp_icl.question`.

    With `stream` the answer comes as server-sent events, whole in one delta: it is released whole.
    """
    given = body.input
    messages: list[Message] = [Message(role="user", content=given)] if isinstance(given, str) else [*given]
    if body.instructions:
        messages.insert(0, Message(role="developer", content=body.instructions))
    answered = _response(await ask_question(asking, body, messages, x_dpicl_context), body)
    return streamed(response, _events(answered)) if body.stream else answered


def _response(answer: AnswerView, asked: ResponsesRequest) -> OpenResponse:
    refusal = refusal_of(answer)
    content = OutputRefusal(refusal=refusal) if refusal else OutputText(text=text_of(answer) or "")
    created = int(answer.created_at.timestamp())
    return OpenResponse(
        id=answer.id,
        created_at=created,
        completed_at=created,
        model=answer.task,
        output=[OutputMessage(id=f"msg_{answer.id}", content=[content])],
        metadata=asked.metadata or {},
        user=asked.user,
        safety_identifier=asked.safety_identifier,
        prompt_cache_key=asked.prompt_cache_key,
        dp_icl=answer,
    )


def _events(answered: OpenResponse) -> Iterator[str]:
    """The response as server-sent events: the beginning, the message, its one part, the end of each, and the mark."""
    (message,) = answered.output
    (part,) = message.content
    begun = answered.model_copy(
        update={"status": "in_progress", "completed_at": None, "output": [], "usage": None, "dp_icl": None}
    )
    started = message.model_copy(update={"status": "in_progress", "content": []})
    where = {"output_index": 0, "item_id": message.id, "content_index": 0}
    name, scores = ("text", {"logprobs": []}) if isinstance(part, OutputText) else ("refusal", dict[str, Any]())
    words = part.text if isinstance(part, OutputText) else part.refusal
    events: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": begun}),
        ("in_progress", {"response": begun}),
        ("output_item.added", {"output_index": 0, "item": started}),
        ("content_part.added", {**where, "part": part.model_copy(update={name: ""})}),
        (f"{part.type}.delta", {**where, "delta": words, **scores}),
        (f"{part.type}.done", {**where, name: words, **scores}),
        ("content_part.done", {**where, "part": part}),
        ("output_item.done", {"output_index": 0, "item": message}),
        ("completed", {"response": answered}),
    ]
    for number, (kind, members) in enumerate(events):
        data = {"type": f"response.{kind}", "sequence_number": number}
        data |= {
            key: one.model_dump(mode="json") if isinstance(one, BaseModel) else one for key, one in members.items()
        }
        yield f"event: response.{kind}\ndata: {json.dumps(data)}\n\n"
    yield "data: [DONE]\n\n"
