"""What mechanisms that release words have in common."""

from __future__ import annotations

from collections.abc import Sequence

from aggregation.keywords import keywords
from service.engines.protocol import Output
from service.pipeline.mechanisms.adapter import Reconstruct, said


def words_of(output: Output | None) -> frozenset[str] | None:
    """A slot's contribution: the keywords of what it says; None for an abstention."""
    text = said(output)
    return keywords(text) if text is not None else None


async def sentence(words: Sequence[str], ordered: bool, reconstruct: Reconstruct) -> dict[str, str | Sequence[str]]:
    """An answer of released words, and a sentence made of them."""
    made = await reconstruct(words, ordered)
    return {"text": made.text, "keywords": list(words), "method": made.method}
