"""The texts a language model is asked, from a task's templates.

Source of the way keywords are asked for: DP-ICL (Wu, Panda, Wang, Mittal 2023, arXiv 2305.01639), appendix D.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from service.engines import Prompt

if TYPE_CHECKING:
    from exemplar_store import Slot

RANKED = "Word suggestions, ranked by their frequency from high to low: {keywords}"
UNRANKED = "Word suggestions: {keywords}"
_BETWEEN = "\n\n"


def render(prompt: Prompt, query: Mapping[str, str], slot: Slot = ()) -> str:
    """The instruction, a slot's exemplars, and the query, an empty line between them."""
    exemplars = [prompt.exemplar.format_map(exemplar.fields) for exemplar in slot]
    return _join([prompt.instruction, *exemplars, prompt.query.format_map(query)])


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


def _join(parts: Sequence[str]) -> str:
    return _BETWEEN.join(part for part in parts if part)
