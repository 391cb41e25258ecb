"""A sentence sanitised as ε moves: what becomes of its words, and what an attacker could tell. Nothing is stored."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from starlette.responses import Response

from sanitization.attacks import Attacked, attack
from sanitization.mechanisms import RESPONSES
from sanitization.text import TextSanitizer
from sanitization.tokens import KEEPABLE, KEPT
from sanitization.vocabulary import FloatArray
from sanitization.whole import NAME as WHOLE
from service.engines.embedding.sanitizers import Sanitizers
from service.gateway.dashboard.pages import Pages, Visit

pages = Pages()

MOST_CHARACTERS = 1000
LEAST, LARGEST, STEP = 0.5, 16.0, 0.5
MOST_TEXTS = 100
"""That are listed of those that can come out."""
_EXAMPLE = "My landlord in Boston keeps the deposit of 1,250 dollars."
_USUAL = "medoid_rr"
_SHOWN = (*RESPONSES, WHOLE)


@pages.get("/sanitising")
@pages.post("/sanitising")
async def sanitising(visit: Visit) -> Response:
    """The page, with an example or another sentence; htmx gets the part that shows what comes of it."""
    sanitizers, text = visit.services.sanitizers, visit.field("text", _EXAMPLE)[:MOST_CHARACTERS]
    try:
        epsilon = min(max(LEAST, float(visit.field("epsilon"))), LARGEST)  # in this order, NaN becomes the least
    except ValueError:
        epsilon = 8.0
    keep = tuple(name for name in KEEPABLE if name in visit.fields("keep")) if visit.form else KEPT
    mechanisms = [name for name in sanitizers.mechanisms if name in _SHOWN]
    mechanism = visit.field("mechanism")
    if mechanism not in mechanisms:
        mechanism = _USUAL if _USUAL in mechanisms or not mechanisms else mechanisms[0]
    shown: dict[str, Any] = {}
    with visit.refusals():
        # In steps, or moving ε would make tables without end.
        steps = STEP * round(epsilon / STEP)
        shown = await asyncio.to_thread(show, sanitizers, text, steps, mechanism, keep)
    return visit.page(
        "sanitising_shown.html" if visit.is_htmx else "sanitising.html",
        200,
        here="sanitising",
        text=text,
        epsilon=epsilon,
        mechanism=mechanism,
        keep=keep,
        mechanisms=mechanisms,
        whole=WHOLE,
        keepable=KEEPABLE,
        limits=(LEAST, LARGEST, STEP),
        most=MOST_CHARACTERS,
        **shown,
    )


def show(sanitizers: Sanitizers, text: str, epsilon: float, mechanism: str, keep: tuple[str, ...]) -> dict[str, Any]:
    """Sanitise a sentence once, and say how likely that was.

    Returns:
        For the template: the ``sanitizer``; one text ``drawn``; the ``words`` of the sentence, unless it is sanitised
        as a whole, and else the ``texts`` that it can become; what is told to somebody who ``attacked`` outputs.

    Raises:
        SanitizersUnavailableError: there are no sanitisers, or not yet.
        TextError: the text has too many unknown words.
    """
    sanitizer = sanitizers.open(mechanism, epsilon, () if mechanism == WHOLE else keep)
    laws, by_word = sanitizer.laws(text), sanitizer.unit == "word"
    return {
        "sanitizer": sanitizer,
        "drawn": sanitizer.sanitize(text),
        "words": _words(sanitizer, laws) if by_word else [],
        "texts": [] if by_word else _likeliest(sanitizer, laws[0][1]),
        "attacked": _attacked(sanitizer),
    }


def _words(sanitizer: TextSanitizer, laws: Sequence[tuple[str, FloatArray]]) -> list[tuple[str, float, str, float]]:
    """Each word once, with the chance that it stays, and what it most probably becomes, with the chance of that."""
    outputs = sanitizer.served.channel.outputs
    words = []
    for lower, (word, law) in {word.lower(): (word, law) for word, law in laws}.items():
        stays, at = float(law[outputs.index(lower)]) if lower in outputs else 0.0, int(np.argmax(law))
        words.append((word, stays, outputs[at], float(law[at])))
    return words


def _likeliest(sanitizer: TextSanitizer, law: FloatArray) -> list[tuple[str, float]]:
    outputs = sanitizer.served.channel.outputs
    return [(outputs[at], float(law[at])) for at in np.argsort(-law, kind="stable")[:MOST_TEXTS]]


@lru_cache(maxsize=64)
def _attacked(sanitizer: TextSanitizer) -> Attacked:
    return attack(sanitizer.served.channel, sanitizer.served.vocabulary)
