"""The texts a language model is asked, from a task's templates.

Source of the way keywords are asked for: DP-ICL (Wu, Panda, Wang, Mittal 2023, arXiv 2305.01639), appendix D.2.2.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from service.engines.protocol import Prompt

if TYPE_CHECKING:
    from exemplar_store import Slot

RANKED = "Word suggestions, ranked by their frequency from high to low: {keywords}"
UNRANKED = "Word suggestions: {keywords}"
BETWEEN = "\n\n"
"""What stands between a prompt's parts."""


def render(prompt: Prompt, query: Mapping[str, str], slot: Slot = ()) -> str:
    """The instruction, a slot's exemplars, and the query, an empty line between them."""
    exemplars = [prompt.exemplar.format_map(exemplar.fields) for exemplar in slot]
    return _join([prompt.instruction, *exemplars, prompt.query.format_map(query)])


def shorten(prompt: Prompt, slot: Slot, characters: int) -> Slot:
    """A slot without the exemplars at its end that make it longer, rendered, than so many characters; 0: any length."""
    if not characters:
        return slot
    lengths = itertools.accumulate(len(prompt.exemplar.format_map(exemplar.fields)) for exemplar in slot)
    return slot[: sum(length <= characters for length in lengths)]


def render_keywords(prompt: Prompt, query: Mapping[str, str], keywords: Sequence[str], ordered: bool) -> str:
    """Ask for an answer made of released words. No exemplar is shown.

    Args:
        prompt: without a template for keywords, one is made from ``prompt.query``: a line with the words comes before
            its last line, where the answer begins.
        query: the query's fields.
        keywords: the words, none of which has a space in it.
        ordered: whether to say that they are ranked.
    """
    template = prompt.keywords
    if not template:
        before, _, cue = prompt.query.rpartition("\n")
        template = "\n".join(part for part in (before, RANKED if ordered else UNRANKED, cue) if part)
    return _join([prompt.instruction, template.format_map({**query, "keywords": ", ".join(keywords)})])


def around_answer(prompt: Prompt, answer_field: str) -> tuple[str, str, str]:
    """What stands around an answer that follows the query, read off the exemplar template.

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


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Each placeholder with the text before it; the last part may have none."""
    return [(literal, name) for literal, name, _, _ in string.Formatter().parse(template)]


def _join(parts: Sequence[str]) -> str:
    return BETWEEN.join(part for part in parts if part)
