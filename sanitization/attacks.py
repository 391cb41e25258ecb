"""Success of an attacker who sees the outputs and knows the channel and the words' frequencies. Exact, by enumeration.

Bayes' guess of the input is the best there is for one word without context; papers report the nearest words instead,
which understates. Equal ε does not mean equal success: print both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from sanitization.channel import Channel
from sanitization.vocabulary import IntArray, Vocabulary


@dataclass(frozen=True)
class Attacked:
    """Chances and utility, means over the public frequencies of the inputs."""

    cosine: float
    """Expected cosine of input and output."""
    kept: float
    """The output is the input."""
    inversion: float
    """The input is among the ``top`` words nearest to the output (Song, Raghunathan 2020)."""
    bayes: float
    """Bayes' guess is right."""
    bayes_top: float
    """The input is among Bayes' ``top`` guesses."""
    prior: float
    """The best guess without an output is right."""


def attack(channel: Channel, vocabulary: Vocabulary, *, most: int = 1500, top: int = 10) -> Attacked:
    """Attack a channel whose inputs are the words of a vocabulary, and whose outputs are among them.

    Args:
        channel: any.
        vocabulary: vocabulary that the channel's words are from.
        most: number of inputs, the most frequent words.
        top: number of guesses.
    """
    x = np.argsort(-vocabulary.shares, kind="stable")[:most]
    prior = vocabulary.shares[x] / vocabulary.shares[x].sum()
    outputs = np.array([vocabulary.index[word] for word in channel.outputs])
    directions = vocabulary.vectors / np.linalg.norm(vocabulary.vectors, axis=1, keepdims=True)
    joint = channel.rows(x) * prior[:, None]
    guesses = -np.partition(-joint, min(top, len(x)) - 1, axis=0)[:top]
    near = _nearest_inputs(vocabulary, x, outputs, top)
    return Attacked(
        cosine=float((joint * (directions[x] @ directions[outputs].T)).sum()),
        kept=float(joint[x[:, None] == outputs].sum()),
        inversion=float(joint[near].sum()),
        bayes=float(joint.max(axis=0).sum()),
        bayes_top=float(guesses.sum()),
        prior=float(prior.max()),
    )


def mean(found: Sequence[Attacked]) -> Attacked:
    """The mean over channels, as of one word in several public contexts."""
    return Attacked(*(float(np.mean([getattr(one, field.name) for one in found])) for field in fields(Attacked)))


def _nearest_inputs(vocabulary: Vocabulary, x: IntArray, outputs: IntArray, top: int) -> np.ndarray:
    """Whether each input is among the ``top`` words nearest to each output, (len(x), len(outputs))."""
    close = np.zeros((len(x), len(outputs)), dtype=bool)
    place = np.full(len(vocabulary), -1)
    place[x] = np.arange(len(x))
    for start in range(0, len(outputs), 512):
        some = outputs[start : start + 512]
        near = place[vocabulary.nearest(some, min(top, len(vocabulary)))]
        column, _ = np.nonzero(near >= 0)
        close[near[near >= 0], start + column] = True
    return close
