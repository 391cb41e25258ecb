"""A sentence sanitised as ε moves: what becomes of its words, and what an attacker could tell. Nothing is stored."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sanitization.attacks import Attacked, attack
from sanitization.mechanisms import RESPONSES
from sanitization.text import Sanitized, TextSanitizer
from sanitization.tokens import KEEPABLE, KEPT
from sanitization.vocabulary import FloatArray
from sanitization.whole import NAME as WHOLE
from service.engines.embedding.sanitizers import Sanitizers
from service.operations.command import command
from service.operations.roles import Actor, Right

LEAST, LARGEST, STEP = 0.5, 16.0, 0.5
"""Of ε; in steps, or moving it would make tables without end."""
MOST_TEXTS = 100
"""That are listed of those that can come out."""
_USUAL = "medoid_rr"
_SHOWN = (*RESPONSES, WHOLE)


@dataclass(frozen=True)
class Choices:
    """How a sentence can be sanitised here.

    Attributes:
        mechanisms: names of those that can.
        usual: the one to begin with.
        whole: name of the one that replaces a sentence as a whole, by one of the operator's public texts.
        keepable: what can be released as it is.
        kept: what is, unless something else is chosen.
    """

    mechanisms: Sequence[str]
    usual: str
    whole: str
    keepable: Sequence[str]
    kept: Sequence[str]


@dataclass(frozen=True)
class Shown:
    """What becomes of a sentence.

    Attributes:
        sanitizer: what sanitised it.
        drawn: one text that it became.
        words: of each word once (word, chance that it stays, what it most probably becomes, chance of that); none if
            the sentence is sanitised as a whole.
        texts: (text that it can become, chance of that), the likeliest first; none if it is sanitised word by word.
        attacked: what somebody who sees outputs can tell.
    """

    sanitizer: TextSanitizer
    drawn: Sanitized
    words: Sequence[tuple[str, float, str, float]]
    texts: Sequence[tuple[str, float]]
    attacked: Attacked


def choices(sanitizers: Sanitizers) -> Choices:
    """How a sentence can be sanitised here."""
    mechanisms = [name for name in sanitizers.mechanisms if name in _SHOWN]
    usual = _USUAL if _USUAL in mechanisms or not mechanisms else mechanisms[0]
    return Choices(mechanisms, usual, WHOLE, KEEPABLE, KEPT)


@command(Right.DECIDE)
def show(
    _actor: Actor, sanitizers: Sanitizers, text: str, epsilon: float, mechanism: str, keep: Collection[str]
) -> Shown:
    """Sanitise a sentence once, and say how likely that was.

    Args:
        sanitizers: opened.
        text: the sentence.
        epsilon: from :data:`LEAST` to :data:`LARGEST`; taken in steps of :data:`STEP`.
        mechanism: one of :attr:`Choices.mechanisms`.
        keep: what is released as it is, of :attr:`Choices.keepable`.

    Raises:
        SanitizersUnavailableError: there are no sanitisers, or not yet.
        TextError: the text has too many unknown words.
    """
    kept = () if mechanism == WHOLE else tuple(name for name in KEEPABLE if name in keep)
    sanitizer = sanitizers.open(mechanism, STEP * round(epsilon / STEP), kept)
    laws, by_word = sanitizer.laws(text), sanitizer.unit == "word"
    return Shown(
        sanitizer,
        sanitizer.sanitize(text),
        _words(sanitizer, laws) if by_word else [],
        [] if by_word else _likeliest(sanitizer, laws[0][1]),
        _attacked(sanitizer),
    )


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
