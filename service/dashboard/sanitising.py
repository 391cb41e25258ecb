"""A sentence sanitised as ε moves: what becomes of its words, and what an attacker could tell. Nothing is stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from starlette.responses import Response

from sanitization.attacks import Attacked, attack
from sanitization.mechanisms import RESPONSES
from sanitization.text import Sanitized, TextError, TextSanitizer
from sanitization.tokens import KEEPABLE
from service.dashboard.pages import Pages, Visit
from service.embedding.sanitizers import EpsilonNotAttainableError, Sanitizers, SanitizersUnavailableError

pages = Pages()

MOST_CHARACTERS = 1000
LEAST, LARGEST, STEP = 0.5, 16.0, 0.5
_EXAMPLE = "My landlord in Boston keeps the deposit of 1,250 dollars."
_KEEP = ("stopwords", "punctuation")


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
        words: of the sentence, each once.
        attacked: what outputs tell of a word, as frequent as words are.
    """

    sanitizer: TextSanitizer
    drawn: Sanitized
    words: list[Word]
    attacked: Attacked


@pages.get("/sanitising")
async def write(visit: Visit) -> Response:
    """The page, with an example."""
    return await _page(visit, _EXAMPLE, 8.0, RESPONSES[1], _KEEP)


@pages.post("/sanitising")
async def see(visit: Visit) -> Response:
    """The same for another sentence; htmx gets the part that shows what comes of it."""
    try:
        epsilon = min(max(float(visit.field("epsilon")), LEAST), LARGEST)
    except ValueError:
        epsilon = 8.0
    mechanism = visit.field("mechanism")
    keep = tuple(name for name in visit.fields("keep") if name in KEEPABLE)
    name = mechanism if mechanism in RESPONSES else RESPONSES[1]
    return await _page(visit, visit.field("text")[:MOST_CHARACTERS], epsilon, name, keep)


async def _page(visit: Visit, text: str, epsilon: float, mechanism: str, keep: tuple[str, ...]) -> Response:
    problem, shown = "", None
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
        mechanisms=RESPONSES,
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
    sanitizer = sanitizers.open(mechanism, epsilon, keep)
    outputs = sanitizer.served.channel.outputs
    laws = {word.lower(): law for word, law in sanitizer.laws(text)}
    words = [
        Word(word, float(law[outputs.index(word)]) if word in outputs else 0.0, outputs[at], float(law[at]))
        for word, law in laws.items()
        if (at := int(np.argmax(law))) >= 0
    ]
    return Shown(sanitizer, sanitizer.sanitize(text), words, _attacked(sanitizer))


@lru_cache(maxsize=64)
def _attacked(sanitizer: TextSanitizer) -> Attacked:
    return attack(sanitizer.served.channel, sanitizer.served.vocabulary)
