"""Requests of OpenAI's clients, and the question in them.

Requests for something that a signed plan cannot do are refused with a reason (several choices, tools, a system message
that would have to change the prompt): an answer is charged, so a question that would be misread must not be asked.
Parameters that only tune a model's sampling change nothing here, and are accepted and ignored.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

from service.gateway.api.answers import AbstainBelow
from service.gateway.api.problems import Problem
from service.operations.answers import Conversation, Turn
from service.problem_kinds import ProblemKind


class Only:
    """Marks a parameter that is known but not supported: values that request nothing pass, others are refused.

    Args:
        neutral: values that pass, besides None.
        why: reason for the refusal of other values.
    """

    def __init__(self, *neutral: Any, why: str):
        self._neutral = neutral
        self._why = why

    def _check(self, value: Any) -> Any:
        same_kind = [
            neutral for neutral in (None, *self._neutral) if isinstance(neutral, bool) == isinstance(value, bool)
        ]
        if value not in same_kind:
            raise ValueError(self._why)
        return value

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        return {
            "anyOf": [_schema_of(value) for value in (None, *self._neutral)],
            "description": f"Anything else is refused: {self._why}.",
        }


def _schema_of(value: Any) -> dict[str, Any]:
    """The JSON schema of a value alone. It names the type, too, by which generated clients go."""
    match value:
        case None:
            return {"type": "null"}
        case bool():
            return {"type": "boolean", "enum": [value]}
        case int():
            return {"type": "integer", "enum": [value]}
        case str():
            return {"type": "string", "enum": [value]}
        case list():
            (of,) = [_schema_of(one) for one in value] or [{}]
            return {"type": "array", "items": of, "minItems": len(value), "maxItems": len(value)}
        case dict():
            return {
                "type": "object",
                "properties": {name: _schema_of(one) for name, one in value.items()},
                "required": list(value),
                "additionalProperties": False,
            }
    raise TypeError(f"{value!r} has no JSON schema here")


NO_TOOLS = "an answer is one release, no tool can be called"
NO_SCORES = "tokens have no probabilities here; dp_icl has a label's score, or its probability"
AS_RELEASED = "the answer is released as it is; shape it on your side"


class StrictBody(BaseModel):
    """A part of a body: no silent conversions."""

    model_config = ConfigDict(strict=True)


class Ignored(StrictBody):
    """Parameters that are accepted and change nothing: the task's signed plan determines how answers are made."""

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
    reasoning: dict[str, Any] | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None


class Part(StrictBody):
    """A piece of a message."""

    type: str = Field(examples=["text"])
    text: str | None = None


class Message(StrictBody):
    """A message: a text, or parts that are all text. Members besides these are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None


class StreamOptions(StrictBody):
    """Options of a stream."""

    include_usage: bool | None = None


class Asked(Ignored):
    """The parameters that a question has in both shapes, chat completions and responses."""

    model: str = Field(
        pattern=r"^[^\x00]{1,200}$", description="A task: `knowledge_base.task`, or `knowledge_base.task@version`."
    )
    abstain_below: AbstainBelow = None
    stream: bool | None = None
    tools: Annotated[Any, Only([], why=NO_TOOLS)] = None
    tool_choice: Annotated[Any, Only("none", "auto", why=NO_TOOLS)] = None
    top_logprobs: Annotated[Any, Only(0, why=NO_SCORES)] = None
    moderation: Annotated[Any, Only(why="nothing is moderated here")] = None


class ChatRequest(Asked):
    """A question. The newest message, which must be the user's, is the query, or the end of a conversation."""

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

    messages: list[Message] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    n: Annotated[Any, Only(1, why="a question has one answer")] = None
    functions: Annotated[Any, Only([], why=NO_TOOLS)] = None
    function_call: Annotated[Any, Only("none", "auto", why=NO_TOOLS)] = None
    response_format: Annotated[Any, Only({"type": "text"}, why=AS_RELEASED)] = None
    stop: Annotated[Any, Only([], why=AS_RELEASED)] = None
    logit_bias: Annotated[Any, Only({}, why="the plan's labels and mechanism decide, nothing can be favoured")] = None
    logprobs: Annotated[Any, Only(False, why=NO_SCORES)] = None
    modalities: Annotated[Any, Only(["text"], why="answers are text")] = None
    audio: Annotated[Any, Only(why="answers are text")] = None
    prediction: Annotated[Any, Only(why=AS_RELEASED)] = None
    web_search_options: Annotated[Any, Only(why="answers come from the knowledge base alone")] = None


def question_in(messages: Sequence[Message], *, ignore_context: bool) -> str | Conversation:
    """The text of the newest message; with the earlier turns of user and assistant, if there are any, a conversation.

    Args:
        messages: messages of the request, the newest last. Those without text are left out.
        ignore_context: whether all but the newest are left out.

    Raises:
        Problem: 422, the newest message is not the user's; an earlier one is neither the user's nor the assistant's; or
            one is not text.
    """
    *context, newest = messages
    if newest.role != "user":
        detail = f"the last message is the {newest.role}'s: the query is the user's last message"
        raise Problem(ProblemKind.INVALID_QUERY, detail)
    question = _text_of(newest)
    earlier = [] if ignore_context else [(message.role, text) for message in context if (text := _text_of(message))]
    turns = [Turn(role, text) for role, text in earlier if role in ("user", "assistant")]
    if len(turns) < len(earlier):
        raise Problem(ProblemKind.CONTEXT_NOT_SUPPORTED, _NO_INSTRUCTIONS)
    return Conversation((*turns, Turn("user", question))) if turns else question


def _text_of(message: Message) -> str:
    """The text of a message; empty if it has no content but white space.

    Raises:
        Problem: 422, it has something that is not text.
    """
    parts = message.content or []
    if isinstance(parts, str):
        return parts if parts.strip() else ""
    texts = [part for part in parts if part.type != "refusal"]  # how the assistant abstains
    if other := [part.type for part in texts if part.type not in _TEXT or part.text is None]:
        raise Problem(ProblemKind.INVALID_QUERY, f"the message holds {', '.join(other)}: a query is text")
    return "\n".join(str(part.text) for part in texts)


_TEXT = ("text", "input_text", "output_text")
"""Types of parts that are text: the first in chat completions, the others in responses."""

_NO_INSTRUCTIONS = (
    "a question is answered under the prompt its task was signed with: instructions, system messages and results of "
    "tools cannot be heeded. Leave them out; or send the header 'x-dpicl-context: ignore' if all that came before the "
    "newest message may be ignored"
)
