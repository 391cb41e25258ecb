"""A sentence sanitised as ε moves: what becomes of its words, and what an attacker could tell. Nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from starlette.responses import Response

from sanitization.attacks import Attacked, attack
from sanitization.mechanisms import RESPONSES
from sanitization.text import Sanitized, TextError, TextSanitizer
from sanitization.tokens import KEEPABLE, KEPT
from sanitization.vocabulary import FloatArray
from sanitization.whole import NAME as WHOLE
from service.dashboard.pages import Pages, Visit
from service.embedding.sanitizers import EpsilonNotAttainableError, Sanitizers, SanitizersUnavailableError

pages = Pages()

MOST_CHARACTERS = 1000
LEAST, LARGEST, STEP = 0.5, 16.0, 0.5
MOST_TEXTS = 100
"""That are listed of those that can come out."""
_EXAMPLE = "My landlord in Boston keeps the deposit of 1,250 dollars."
_USUAL = "medoid_rr"
_SHOWN = (*RESPONSES, WHOLE)


@dataclass(frozen=True)
class Word:
    """A word of the sentence.

    Attributes:
        text: itself.
        stays: the chance that it stays as it is.
        likeliest: what it most probably becomes.
        chance: of that.
    """

    text: str
    stays: float
    likeliest: str
    chance: float


@dataclass(frozen=True)
class Shown:
    """What comes of a sentence.

    Attributes:
        sanitizer: what did it.
        drawn: one draw.
        words: of the sentence, each once, unless it is sanitised as a whole.
        texts: else what it can become, with the chances, the likeliest first.
        attacked: what outputs tell of a word, as frequent as words are; or of a whole text.
    """

    sanitizer: TextSanitizer
    drawn: Sanitized
    words: list[Word]
    texts: list[tuple[str, float]]
    attacked: Attacked


@pages.get("/sanitising")
async def write(visit: Visit) -> Response:
    """The page, with an example."""
    return await _page(visit, _EXAMPLE, 8.0, "", KEPT)


@pages.post("/sanitising")
async def see(visit: Visit) -> Response:
    """The same for another sentence; htmx gets the part that shows what comes of it."""
    try:
        epsilon = min(max(LEAST, float(visit.field("epsilon"))), LARGEST)  # in this order, NaN becomes the least
    except ValueError:
        epsilon = 8.0
    keep = tuple(name for name in KEEPABLE if name in visit.fields("keep"))
    return await _page(visit, visit.field("text")[:MOST_CHARACTERS], epsilon, visit.field("mechanism"), keep)


async def _page(visit: Visit, text: str, epsilon: float, mechanism: str, keep: tuple[str, ...]) -> Response:
    problem, shown = "", None
    mechanisms = [name for name in visit.services.sanitizers.mechanisms if name in _SHOWN]
    if mechanism not in mechanisms:
        mechanism = _USUAL if _USUAL in mechanisms or not mechanisms else mechanisms[0]
    try:
        # In steps, or moving ε would make tables without end.
        steps = STEP * round(epsilon / STEP)
        shown = await asyncio.to_thread(show, visit.services.sanitizers, text, steps, mechanism, keep)
    except (SanitizersUnavailableError, EpsilonNotAttainableError, TextError) as error:
        problem = str(error)
    return visit.page(
        "sanitising_shown.html" if visit.is_htmx else "sanitising.html",
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
        problem=problem,
        shown=shown,
    )


def show(sanitizers: Sanitizers, text: str, epsilon: float, mechanism: str, keep: tuple[str, ...]) -> Shown:
    """Sanitise a sentence once, and say how likely that was.

    Raises:
        SanitizersUnavailableError: there are no sanitisers, or not yet.
        TextError: the text has too many unknown words.
    """
    sanitizer = sanitizers.open(mechanism, epsilon, () if mechanism == WHOLE else keep)
    laws, attacked = sanitizer.laws(text), _attacked(sanitizer)
    words = _words(sanitizer, laws) if sanitizer.unit == "word" else []
    texts = _likeliest(sanitizer, laws[0][1]) if sanitizer.unit == "text" else []
    return Shown(sanitizer, sanitizer.sanitize(text), words, texts, attacked)


def _words(sanitizer: TextSanitizer, laws: Sequence[tuple[str, FloatArray]]) -> list[Word]:
    outputs = sanitizer.served.channel.outputs
    return [
        Word(word, float(law[outputs.index(lower)]) if lower in outputs else 0.0, outputs[at], float(law[at]))
        for lower, (word, law) in {word.lower(): (word, law) for word, law in laws}.items()
        if (at := int(np.argmax(law))) >= 0
    ]


def _likeliest(sanitizer: TextSanitizer, law: FloatArray) -> list[tuple[str, float]]:
    outputs = sanitizer.served.channel.outputs
    return [(outputs[at], float(law[at])) for at in np.argsort(-law, kind="stable")[:MOST_TEXTS]]


@lru_cache(maxsize=64)
def _attacked(sanitizer: TextSanitizer) -> Attacked:
    return attack(sanitizer.served.channel, sanitizer.served.vocabulary)
