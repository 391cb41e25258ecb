"""The texts a language model is asked, from a task's templates.

Source of the way keywords are asked for: DP-ICL (Wu, Panda, Wang, Mittal 2023, arXiv 2305.01639), appendix D.2.2.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from accounting.plans.labels import spellings
from service.engines.task import Prompt

if TYPE_CHECKING:
    from exemplar_store import Slot

RANKED = "Word suggestions, ranked by their frequency from high to low: {keywords}"
UNRANKED = "Word suggestions: {keywords}"
BETWEEN = "\n\n"
"""The text between a prompt's parts."""
CHARACTERS_PER_TOKEN = 4
"""Roughly, where no tokenizer is at hand."""


def render(prompt: Prompt, query: Mapping[str, str], slot: Slot = ()) -> str:
    """The instruction, the public exemplars, a slot's, and the query, an empty line between them."""
    exemplars = [_shown(prompt, exemplar.fields) for exemplar in slot]
    return _join([prompt.instruction, *prompt.public, *exemplars, prompt.query.format_map(query)])


def showing(prompt: Prompt, exemplars: Sequence[Mapping[str, str]]) -> Prompt:
    """The prompt with these public exemplars, given by their fields, in their order."""
    return replace(prompt, public=tuple(_shown(prompt, fields) for fields in exemplars))


def filled(prompt: Prompt, query: Mapping[str, str], slot: Slot, characters: int) -> str:
    """The same with a slot's text cut at this length, for measurements of prompts as long as any can be."""
    exemplars = BETWEEN.join(_shown(prompt, exemplar.fields) for exemplar in slot)
    return _join([prompt.instruction, *prompt.public, exemplars[:characters], prompt.query.format_map(query)])


def fitting(slot: Slot, lengths: Sequence[int], room: int) -> Slot:
    """A slot's exemplars that fit, in their order: from the last one on, each that no longer does is left out.

    The last one stands next to the question, and where exemplars are ranked, it is the nearest.

    Args:
        slot: slot with any exemplars.
        lengths: lengths of its exemplars.
        room: length that they may have together.
    """
    kept = []
    for exemplar, length in zip(reversed(slot), reversed(lengths), strict=True):
        if length <= room:
            kept.append(exemplar)
            room -= length
    return tuple(reversed(kept))


def rendered(prompt: Prompt, slot: Slot) -> list[str]:
    """Each exemplar as it stands in a prompt, with what separates it from the next."""
    return [_shown(prompt, exemplar.fields) + BETWEEN for exemplar in slot]


def with_keywords(
    prompt: Prompt, query: Mapping[str, str], keywords: Sequence[str], ordered: bool
) -> tuple[Prompt, Mapping[str, str]]:
    """A prompt that asks for an answer made of released words, and the fields that are to be filled in.

    Args:
        prompt: prompt of the task; without a template for keywords, one is made from ``prompt.query``: a line with the
            words comes before its last line, where the answer begins.
        query: fields of the query.
        keywords: the words, none of which has a space in it.
        ordered: whether to note that they are ranked.
    """
    template = prompt.keywords
    if not template:
        before, _, cue = prompt.query.rpartition("\n")
        template = "\n".join(part for part in (before, RANKED if ordered else UNRANKED, cue) if part)
    return replace(prompt, query=template), {**query, "keywords": ", ".join(keywords)}


def render_keywords(prompt: Prompt, query: Mapping[str, str], keywords: Sequence[str], ordered: bool) -> str:
    """The same as a text; no exemplar is shown."""
    return render(*with_keywords(prompt, query, keywords, ordered))


def around_answer(prompt: Prompt, answer_field: str) -> tuple[str, str, str]:
    """The text around an answer that follows the query, read off the exemplar template.

    Returns:
        The query's last words, without trailing white space; what is between them and the answer; and what follows it.
        For the exemplar ``"Q: {text}\\nA: {label}."`` and the query ``"Q: {text}\\nA:"`` these are ``"\\nA:"``, a space
        and ``"."``.
    """
    parts = _parts(prompt.exemplar)
    at = [name for _, name in parts].index(answer_field)
    leading = parts[at][0]
    after = parts[at + 1][0] if at + 1 < len(parts) else ""
    tail, name = _parts(prompt.query)[-1]
    before = "" if name else tail.rstrip()
    shared = max(n for n in range(len(leading) + 1) if before.endswith(leading[:n]))
    # Templates that have nothing in common there still agree on the white space before an answer.
    return before, leading[shared:] if shared else leading[len(leading.rstrip()) :], after


@lru_cache(maxsize=256)
def cues(prompt: Prompt) -> tuple[str, ...]:
    """The words that lines of a prompt begin with, such as ``Reply:``, in its exemplars, queries and released words.

    These are a line's words before a field, if no letter or digit is last, and those after which an answer begins. A
    text that goes on with one of them imitates the prompt.
    """
    templates = [prompt.exemplar, prompt.query, prompt.keywords, RANKED, UNRANKED]
    lines = [line.split(_FIELD) for template in templates for line in _with_marks(template).split("\n")]
    begun = {words[0].strip() for words in lines if len(words) > 1 and not words[0].rstrip()[-1:].isalnum()}
    return tuple(sorted(cue for cue in {*begun, _answer_cue(prompt)} if any(map(str.isalpha, cue))))


def own_words(prompt: Prompt, text: str) -> str:
    """What a model wrote itself: it may begin with the cue of an answer again, and ends where another line of the
    prompt is imitated.
    """
    text = text.strip().removeprefix(_answer_cue(prompt)).lstrip()
    begins = [f"\n{text}".find(f"\n{cue}") for cue in cues(prompt)]
    end = min((at for at in begins if at >= 0), default=len(text) + 1)
    return text[: max(end - 1, 0)].rstrip()


def _answer_cue(prompt: Prompt) -> str:
    """The words of a query's last line that follow its last field: there the answer begins."""
    return _with_marks(prompt.query).rpartition("\n")[2].rpartition(_FIELD)[2].lstrip(" \t.,;!?").rstrip()


def exemplar_fields(prompt: Prompt) -> list[str]:
    """The fields that an exemplar shows, in order."""
    return [name for _, name in _parts(prompt.exemplar) if name is not None]


def _shown(prompt: Prompt, fields: Mapping[str, str]) -> str:
    """An exemplar, its label as the plan spells it."""
    at = prompt.label_field
    if prompt.labels and at in fields:
        fields = {**fields, at: spellings(prompt.labels).spelt(fields[at])}
    return prompt.exemplar.format_map(fields)


_FIELD = "\0"
"""Stands for a field in a template."""


def _with_marks(template: str) -> str:
    return "".join(literal + (_FIELD if name is not None else "") for literal, name in _parts(template))


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Each placeholder with the text before it; the last part may have none."""
    return [(literal, name) for literal, name, _, _ in string.Formatter().parse(template)]


def _join(parts: Sequence[str]) -> str:
    return BETWEEN.join(part for part in parts if part)
