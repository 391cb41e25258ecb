"""The label that a language model's written reply means, if any."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from accounting.plans.labels import plain, spellings
from service.engines.task import Prompt

# Quotes, brackets and marks of emphasis that may come around a label, as they are folded, with what may end it.
_PAIRS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "<": ">",
    "‘": "’",
    "「": "」",
    "『": "』",
    "【": "】",
    "'": "'",
    "*": "*",
    "_": "_",
    "~": "~",
}
_OPENING, _CLOSING = "".join(_PAIRS), "".join(_PAIRS.values())
_STOPS = ".,;:!?。、，："
_END = rf"(?=$|\s|[{re.escape(_CLOSING + _STOPS)}|<](?!\w))"
# Another label right behind the first, perhaps after a short word such as "or".
_NEXT = r"\W*(?:\w{1,4}\W+)?"


def match_label(reply: str, labels: Sequence[str], cut: bool = False) -> int | None:
    """The label that a reply begins with.

    What reads alike is equal (:data:`spelling.lookalikes.LABEL`), and quotes, brackets or emphasis around the label
    make no difference, unless the reply as a whole is a label with them. The label must end where a word ends; of
    labels that begin with each other the longest counts, or the one that is emphasised as a whole. A reply that then
    names another label, or fits two labels alike, means none; nor does one that was cut off where it could still have
    become another label.

    Args:
        reply: reply of the model.
        labels: labels of the task.
        cut: whether a limit of tokens ended the reply.

    Returns:
        The label's number, or None.
    """
    whole, known = plain(reply), spellings(tuple(labels)).compared
    text = whole.lstrip(_OPENING + " ")
    around = whole[: len(whole) - len(text)].replace(" ", "")
    forms = _forms(known)
    if exact := [form for form in (whole, whole.rstrip(_STOPS)) if form and form in known]:
        text, length, number = whole, len(exact[0]), known.index(exact[0])
    else:
        closing = "".join(_PAIRS[mark] for mark in reversed(around))
        matches = [
            (bool(closing) and _closes(text[len(form) :], closing), len(form), number)
            for form, number in forms.items()
            if re.match(re.escape(form) + _END, text)
        ]
        if not matches:
            return None
        _, length, number = max(matches)
    if known.count(known[number]) > 1:
        return None
    if cut and any(len(label) > length and label.startswith(text) for label in (*known, *forms)):
        return None
    others = "|".join(re.escape(form) for form, other in forms.items() if other != number)
    if others and re.match(f"{_NEXT}(?:{others}){_END}", text[length:]):
        return None
    return number


def _forms(known: Sequence[str]) -> dict[str, int]:
    """The ways in which a reply may begin with each label, its marks left out in front, or in front and behind.

    A form that two labels would share is left out, and so is a label of nothing but marks.
    """
    begun = [label.lstrip(_OPENING + " ") for label in known]
    forms = {form: number for number, form in enumerate(begun) if form.strip(_CLOSING) and begun.count(form) == 1}
    bare = [form.rstrip(_CLOSING + " ") for form in begun]
    return {form: number for number, form in enumerate(bare) if form and bare.count(form) == 1} | forms


def _closes(rest: str, closing: str) -> bool:
    return rest.startswith(closing) and not rest[len(closing) :].startswith(tuple(_CLOSING))


def read_label(reply: str, labels: Sequence[str]) -> int | None:
    """The label of a reply that follows :func:`label_schema`, or None if it does not."""
    try:
        answer = json.loads(reply)
    except (ValueError, RecursionError):
        return None
    label = answer.get("label") if isinstance(answer, dict) else None
    return spellings(tuple(labels)).number(label) if isinstance(label, str) else None


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
