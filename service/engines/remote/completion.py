"""The content of a chat completion: its text, or why there is none to use.

A model that thinks aloud is not read past its thoughts: how long it thinks differs from prompt to prompt, so a probe
that ended in time would predict nothing about the slots.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from service.engines.remote.refusals import Refusal, read_refusal

_NO_THINKING = (
    "switch its thinking off by extra_body, such as {chat_template_kwargs: {enable_thinking: false}} or "
    "{reasoning_effort: none}"
)


class Unusable(Enum):
    """A defect of a completion that came in order: asked again, the model would reply the same.

    Attributes:
        said: description of it, to follow "the remote language model".
        advice: change that the operator can make.
    """

    def __init__(self, said: str, advice: str) -> None:
        self.said = said
        self.advice = advice

    THOUGHTS = (
        "thinks aloud instead of answering",
        f"{_NO_THINKING}, or have the server keep thoughts apart from the answer, as vLLM does with --reasoning-parser",
    )
    CUT = (
        "was cut off by its limit of tokens before it gave an answer",
        f"{_NO_THINKING}, let extra_body allow more tokens, or for labels set constrain_labels: true",
    )
    REFUSED = "refuses this question", "ask another question, or change the server's content filter"
    TOOL_CALL = "calls a tool instead of answering", "take the tools out of extra_body and of the server's settings"
    EMPTY = "replies with no text", "check that model names a chat model, and what extra_body asks for"
    NO_LABEL = (
        "replies with no label of the task",
        "set constrain_labels: true if the server takes a JSON schema, or have the plan's instruction ask for the "
        "label alone",
    )
    OFF_SCHEMA = (
        "does not follow the JSON schema of the labels",
        "set constrain_labels: false, or use a server that supports response_format",
    )
    NO_CHOICES = "replies with an empty list of choices", "check the server's content filter, and base_url"
    NO_COMPLETION = (
        "replies with something that is not a chat completion",
        "check base_url and model, and that extra_body asks for no stream",
    )


@dataclass(frozen=True)
class Reply:
    """A text.

    Attributes:
        text: text that is not blank.
        cut: whether a limit of tokens ended it.
    """

    text: str
    cut: bool = False


@dataclass(frozen=True)
class Failure:
    """Why there is no reply.

    Attributes:
        status: status of HTTP; None if nothing came back, or a reply in order.
        retry_after_s: seconds for which the server asks not to be called.
        unusable: defect of a reply that came in order.
        refusal: meaning of a refused request, if it is known.
    """

    status: int | None = None
    retry_after_s: float = 0.0
    unusable: Unusable | None = None
    refusal: Refusal | None = None

    @property
    def passing(self) -> bool:
        """Whether another try may succeed."""
        if self.unusable is not None or self.refusal is not None:
            return False
        return self.status is None or self.status in (408, 409, 429) or self.status >= 500


_EVENTS = re.compile(rb"\s*(data|event|id|retry)?:")
"""The beginning of server-sent events."""
_THOUGHTS = re.compile(r"\s*(<think(ing)?>|\[THINK\]|<\|channel)|.*</think(ing)?>", re.IGNORECASE | re.DOTALL)


def read_completion(body: bytes, sent: Mapping[str, Any]) -> Reply | Failure:
    """The reply, or the failure, in a server's response with status 200.

    Args:
        body: body of the response.
        sent: request that was sent.

    Raises:
        ValueError: it is not JSON, or its text is not Unicode.
        RecursionError: it is nested too deeply.
    """
    if _EVENTS.match(body):
        return Failure(unusable=Unusable.NO_COMPLETION)
    document = json.loads(body)
    if (status := _status(document)) is not None:
        return Failure(status, refusal=read_refusal(status, body, sent))
    try:
        if document["choices"] == []:
            return Failure(unusable=Unusable.NO_CHOICES)
        choice = document["choices"][0]
        message = choice["message"]
        finish, content = choice.get("finish_reason"), message.get("content")
    except (LookupError, TypeError, AttributeError):
        return Failure(unusable=Unusable.NO_COMPLETION)
    text = _text(content)
    if text is None:
        return Failure(unusable=Unusable.NO_COMPLETION)
    text.encode()  # half a surrogate pair is not text either, and could not be stored
    if message.get("refusal") or finish == "content_filter":
        return Failure(unusable=Unusable.REFUSED)
    if _THOUGHTS.match(text):
        return Failure(unusable=Unusable.THOUGHTS)
    if text.strip():
        return Reply(text, cut=finish == "length")
    if finish == "length":
        return Failure(unusable=Unusable.CUT)
    if message.get("tool_calls") or message.get("function_call"):
        return Failure(unusable=Unusable.TOOL_CALL)
    thought = message.get("reasoning_content") or message.get("reasoning")
    return Failure(unusable=Unusable.THOUGHTS if thought else Unusable.EMPTY)


def _status(document: Any) -> int | None:
    """The status of an error that a gateway wraps in a 200."""
    error = document.get("error") if isinstance(document, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and re.fullmatch("[45][0-9]{2}", code):
        return int(code)
    return code if isinstance(code, int) and 400 <= code <= 599 else None


def _text(content: Any) -> str | None:
    """A message's content as one text: that of its text parts, without thoughts and refusals. None if it is neither."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    texts: list[Any] = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None
