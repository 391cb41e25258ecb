"""A preview of sanitising: the chances of a sentence's words or texts, and of an attacker. Nothing is stored."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from sanitization.attacks import Attacked, attack
from sanitization.mechanisms import RESPONSES
from sanitization.text import Sanitized, TextSanitizer
from sanitization.tokens import KEEPABLE, KEPT
from sanitization.vocabulary import FloatArray
from sanitization.whole import NAME as WHOLE
from service.answering.answering import Answering
from service.engines.embedding.sanitizers import Sanitizers
from service.operations.command import command
from service.operations.roles import Actor, Right
from service.operations.sanitising import beside_answers

LEAST, LARGEST, STEP = 0.5, 16.0, 0.5
"""Bounds and step of ε: without a step, each movement of the slider would make another table."""
MOST_TEXTS = 100
"""Number of possible texts that are listed, at most."""
_USUAL = "medoid_rr"
_SHOWN = (*RESPONSES, WHOLE)


@dataclass(frozen=True)
class SanitisingChoices:
    """Ways to sanitise a sentence here.

    Attributes:
        mechanisms: names of the available mechanisms.
        usual: name of the default mechanism.
        whole: name of the mechanism that replaces a whole sentence by one of the operator's public texts.
        keepable: kinds of tokens that can be released unchanged.
        kept: kinds of tokens that are released unchanged by default.
    """

    mechanisms: Sequence[str]
    usual: str
    whole: str
    keepable: Sequence[str]
    kept: Sequence[str]


@dataclass(frozen=True)
class SanitisedPreview:
    """A sanitised sentence with its chances.

    Attributes:
        sanitizer: the sanitizer.
        drawn: one sanitised text.
        words: tuples (word, chance that it stays, its likeliest replacement, chance of that), each word once; empty if
            the sentence is replaced as a whole.
        texts: pairs (text that the sentence can become, chance), the likeliest first; empty if each word is replaced
            by itself.
        attacked: chances of an attacker who sees outputs.
    """

    sanitizer: TextSanitizer
    drawn: Sanitized
    words: Sequence[tuple[str, float, str, float]]
    texts: Sequence[tuple[str, float]]
    attacked: Attacked


def choices(sanitizers: Sanitizers) -> SanitisingChoices:
    """Ways to sanitise a sentence here."""
    mechanisms = [name for name in sanitizers.mechanisms if name in _SHOWN]
    usual = _USUAL if _USUAL in mechanisms or not mechanisms else mechanisms[0]
    return SanitisingChoices(mechanisms, usual, WHOLE, KEEPABLE, KEPT)


@command(Right.DECIDE)
async def show(
    _actor: Actor,
    answering: Answering,
    sanitizers: Sanitizers,
    text: str,
    epsilon: float,
    mechanism: str,
    keep: Collection[str],
) -> SanitisedPreview:
    """Sanitise a sentence once, and compute its chances.

    Args:
        answering: answers questions, beside which words are embedded.
        sanitizers: opened sanitizers.
        text: the sentence.
        epsilon: ε from :data:`LEAST` to :data:`LARGEST`; rounded to a multiple of :data:`STEP`.
        mechanism: one of :attr:`SanitisingChoices.mechanisms`.
        keep: kinds of tokens to release unchanged, from :attr:`SanitisingChoices.keepable`.

    Raises:
        SanitizersUnavailableError: there are no sanitisers, or not yet.
        TextError: the text has too many unknown words.
    """
    kept = () if mechanism == WHOLE else tuple(name for name in KEEPABLE if name in keep)
    sanitizer = await asyncio.to_thread(sanitizers.open, mechanism, STEP * round(epsilon / STEP), kept)
    return await beside_answers(answering, sanitizer, [text], partial(_shown, sanitizer, text))


def _shown(sanitizer: TextSanitizer, text: str) -> SanitisedPreview:
    laws, by_word = sanitizer.laws(text), sanitizer.unit == "word"
    return SanitisedPreview(
        sanitizer,
        sanitizer.sanitize(text),
        _words(sanitizer, laws) if by_word else [],
        [] if by_word else _likeliest(sanitizer, laws[0][1]),
        _attacked(sanitizer),
    )


def _words(sanitizer: TextSanitizer, laws: Sequence[tuple[str, FloatArray]]) -> list[tuple[str, float, str, float]]:
    """Tuples (word, chance that it stays, its likeliest replacement, chance of that), each word once."""
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
