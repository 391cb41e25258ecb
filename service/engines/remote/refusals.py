"""What a server's refusal of a request means.

Refusals have the shapes of OpenAI, Azure, vLLM, SGLang, Ollama, llama.cpp, LiteLLM, text-generation-inference, Mistral
and Gemini.

A server may quote the prompt. So nothing of its text is kept: a refusal is one of a few kinds, and the parameter that
it names is one that was sent.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Reason(Enum):
    """A reason of a server not to take a request."""

    LENGTH = auto()
    """Prompt and answer have more tokens than the model takes."""
    CONTENT = auto()
    """A content filter refuses the prompt."""
    MODEL = auto()
    """The server does not have the model."""
    PARAMETER = auto()
    """A parameter, or its value, is not supported."""
    ACCOUNT = auto()
    """The key or its account is not let in, or has no credit."""


@dataclass(frozen=True)
class Refusal:
    """A server's refusal.

    Attributes:
        reason: reason that it gives.
        parameter: parameter that it refuses, if it is one that was sent.
    """

    reason: Reason
    parameter: str = ""


_ALIASES = {
    **dict.fromkeys(("max_new_tokens", "max_output_tokens"), "max_tokens"),
    **dict.fromkeys(("json_schema", "json schema", "grammar"), "response_format"),
}
_CODES = {
    Reason.CONTENT: "content_filter|responsibleaipolicyviolation|content_policy_violation|contentpolicyviolationerror"
    "|data_inspection_failed",
    Reason.ACCOUNT: "invalid_api_key|authentication_error|insufficient_quota|billing_hard_limit_reached"
    "|billing_not_active|organization_restricted|unsupported_country_region_territory",
    Reason.LENGTH: "context_length_exceeded|exceed_context_size_error|string_above_max_length|request_too_large"
    "|context_window_exceeded|contextwindowexceedederror",
    Reason.MODEL: "model_not_found|deploymentnotfound|invalid_model|model_not_available|unknown_model"
    "|model_decommissioned",
    Reason.PARAMETER: "unsupported_parameter|unsupported_value|unknown_parameter|invalid_value|extra_forbidden"
    "|unsupportedparamserror|unsupported_param",
}
_TEXTS = {
    Reason.CONTENT: r"content (management policy|filter)|contentpolicyviolation|safety (system|filter)|usage polic"
    r"|content exists risk|inappropriate content|prohibited_content"
    r"|\b(input|prompt|request|message)s? (was|were) flagged",
    Reason.ACCOUNT: r"(invalid|incorrect|no|missing) (api|access)[ _-]?key"
    r"|api[ _-]?key (is )?(not valid|invalid|missing)"
    r"|credit balance|out of credits?|location is not supported|organization has been",
    Reason.LENGTH: r"contextwindowexceeded|context[ _](length|size|window)"
    r"|(maximum|max) (model|input|prompt|sequence) length|prompt too long|exceeds? [^.]{0,60}(tokens?( limit)?|n_ctx)\b"
    r"|(input|prompt|request|message)s?( \([^)]*\))? (is|are) (too (long|large)|longer than)"
    r"|too many (input |prompt )?tokens|`?inputs`? (tokens|must have less)|reduce the length"
    r"|maximum (number of )?(input )?tokens|token count [^.]{0,40}exceed"
    r"|(input|prompt|token) length (is )?(too long|exceeds|should be)|expected maxlength|request too large",
    Reason.MODEL: r"model\b.{0,200}? (does not exist|not found|is not (a valid|available|loaded|served))"
    r"|model not exist"
    r"|model\b.{0,200}? decommissioned"
    r"|(invalid|unknown|no such) model|not a valid model|try pulling it|does not support (chat|completions)",
    Reason.PARAMETER: r"(unsupported|unrecognized|unknown|unexpected|invalid|additional|extra) (request |query )?"
    r"(arg|param|name|prop|field|key|value|input)|not (supported|support|permitted|allowed)|unsupported"
    r"|cannot unmarshal|does(n't| not) support|is too (large|small)|must be|should be|deserialize|unknown variant",
}
_NOT_TAKEN = r"not (support|permitted|allowed)|unsupported|does(n't| not) support|invalid|failed to parse"
"""Words in an error of the server itself that is about a parameter."""
_ONLY = {401: (), 402: (), 403: (Reason.CONTENT,), 408: (), 409: (), 429: (Reason.ACCOUNT,)}
"""The reasons that some statuses may have besides the one that they stand for."""


def read_refusal(status: int, body: bytes, sent: Mapping[str, Any]) -> Refusal | None:
    """What a refusal means; None: it gives no reason that is known.

    Args:
        status: status of HTTP, or the code of an error that came with status 200.
        body: body of the response; a part of it will do.
        sent: request that was sent.
    """
    refusal = _refusal(status, body, sent) if 400 <= status <= 500 else None
    return None if refusal is None or refusal.reason not in _ONLY.get(status, Reason) else refusal


def _refusal(status: int, body: bytes, sent: Mapping[str, Any]) -> Refusal | None:
    document = _document(body)
    prompt = str(sent["messages"][0]["content"])
    codes, named, texts = _parts(document)
    # The prompt may hold any of the words looked for, and may be quoted as JSON, or in Python's way.
    for quoted in (prompt, json.dumps(prompt)[1:-1], json.dumps(prompt, ensure_ascii=False)[1:-1], repr(prompt)[1:-1]):
        texts = [text.replace(quoted, " ") for text in texts] if quoted else texts
    text = " ".join(texts).lower()
    parameter = _parameter(named, text, sent)
    if parameter and (
        (parameter in named and parameter != "max_tokens")
        or re.search(rf"\W?{parameter}\W.{{0,60}}?\bis too large|^\W*{parameter}\W+must be", text)
    ):
        return Refusal(Reason.PARAMETER, parameter)  # which may mention a length, too
    for reason, known in _CODES.items():
        if any(re.fullmatch(known, code) for code in codes):
            return Refusal(reason, parameter if reason is Reason.PARAMETER else "")
    for reason in (Reason.CONTENT, Reason.LENGTH, Reason.ACCOUNT):
        if re.search(_TEXTS[reason], text):
            return Refusal(reason)
    if status == 413:
        return Refusal(Reason.LENGTH)
    if status < 500 and ("model" in named or re.search(_TEXTS[Reason.MODEL], text)):
        return Refusal(Reason.MODEL)
    if status == 500:  # of which most pass
        return Refusal(Reason.PARAMETER, parameter) if parameter and re.search(_NOT_TAKEN, text) else None
    if parameter or re.search(_TEXTS[Reason.PARAMETER], text):
        return Refusal(Reason.PARAMETER, parameter)
    return Refusal(Reason.MODEL) if status == 404 and text.strip() else None


def _document(body: bytes) -> Any:
    text = body.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parts(document: Any) -> tuple[set[str], list[str], list[str]]:
    """A refusal's codes, the names of parameters in it, and its texts."""
    codes, named, texts = set[str](), list[str](), list[str]()
    for key, value in _leaves(document):
        if key in ("code", "type", "error_type"):
            codes.add(value.lower())
        elif key in ("param", "loc"):
            named.append(re.split(r"[.\[]", value)[0])
        elif key != "input":  # what pydantic found there, which may be the prompt
            texts.append(value)
    return codes, named, texts


def _leaves(document: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The texts of a document, each with the key that it stands under; at most so deep as any server goes."""
    if isinstance(document, str):
        yield key, document
    elif depth < 8:
        if isinstance(document, Mapping):
            for name, value in document.items():
                yield from _leaves(value, str(name), depth + 1)
        elif isinstance(document, list):
            for value in document:
                yield from _leaves(value, key, depth + 1)


def _parameter(named: list[str], text: str, sent: Mapping[str, Any]) -> str:
    """The first of the sent parameters that a refusal names; empty if it names none."""
    known = {name: name for name in sent if name not in ("messages", "model")}
    known |= {alias: name for alias, name in _ALIASES.items() if name in known}
    for name in named:
        if name in known:
            return known[name]
    places = {name: re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) for name in known}
    found = [(place.start(), known[name]) for name, place in places.items() if place]
    return min(found)[1] if found else ""
