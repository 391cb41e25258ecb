"""The label that a language model's written reply means, if any."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from accounting.plans.labels import plain, spellings
from service.engines.task import Prompt

# Quotes, brackets and marks of emphasis that may come before a label, and what may end it.
_OPENING = "\"'`*_([{<“‘«「 \t\r\n"
_END = r"(?=$|\s|[\"'`*_)\]}>”’»」.,;:!?|<。、，：](?!\w))"
# Another label right behind the first, perhaps after a short word such as "or".
_NEXT = r"\W*(?:\w{1,4}\W+)?"


def match_label(reply: str, labels: Sequence[str], cut: bool = False) -> int | None:
    """The label that a reply begins with.

    Upper and lower case, Unicode's ways of writing the same letter, and quotes or emphasis around the label make no
    difference. The label must end where a word ends; of labels that begin with each other the longest counts. A reply
    that then names another label, or fits two labels alike, means none; nor does one that was cut off where it could
    still have become another label.

    Args:
        reply: reply of the model.
        labels: labels of the task.
        cut: whether a limit of tokens ended the reply.

    Returns:
        The label's number, or None.
    """
    text, known = plain(reply).lstrip(_OPENING), spellings(tuple(labels)).compared
    matches = [(len(label), i) for i, label in enumerate(known) if label and re.match(re.escape(label) + _END, text)]
    if not matches:
        return None
    length, number = max(matches)
    if known.count(known[number]) > 1:
        return None
    if cut and any(len(label) > length and label.startswith(text) for label in known):
        return None
    others = "|".join(re.escape(label) for label in known if label and label != known[number])
    if others and re.match(f"{_NEXT}(?:{others}){_END}", text[length:]):
        return None
    return number


def read_label(reply: str, labels: Sequence[str]) -> int | None:
    """The label of a reply that follows :func:`label_schema`, or None if it does not."""
    try:
        answer = json.loads(reply)
    except (ValueError, RecursionError):
        return None
    label = answer.get("label") if isinstance(answer, dict) else None
    return labels.index(label) if isinstance(label, str) and label in labels else None


def label_schema(labels: Sequence[str]) -> dict[str, Any]:
    """A chat completion's ``response_format`` that allows nothing but one of the labels."""
    schema = {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": list(labels)}},
        "required": ["label"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def naming(prompt: Prompt, labels: Sequence[str]) -> Prompt:
    """The prompt with its labels named in the instruction, unless its templates name them all."""
    said = plain(f"{prompt.instruction}\n{prompt.query}")
    if all(re.search(rf"(?<!\w){re.escape(plain(label))}(?!\w)", said) for label in labels):
        return prompt
    named = f"Answer with one of: {', '.join(labels)}."
    return replace(prompt, instruction=f"{prompt.instruction}\n{named}" if prompt.instruction else named)
