"""The mechanisms as their papers and code have them, to be audited: none of them is served."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sanitization.channel import Channel
from sanitization.published.cape import Cape
from sanitization.published.custext import CusText
from sanitization.published.dyntext import DynText
from sanitization.published.rantext import RanText
from sanitization.published.rantext_fit import WORD, fit
from sanitization.published.santext import SanText, SanTextPlus
from sanitization.vocabulary import FloatArray, IntArray, Vocabulary

UNKNOWN = "(any unknown word)"


@dataclass(frozen=True)
class WithUnknown:
    """A published channel, with what its code does to a word it does not know.

    Corrected channels need no such row: they treat an unknown word as a random word of the vocabulary. Its law is a
    mean of rows, and a mean of numbers lies between their least and their largest, so no column's ratio grows.
    """

    known: Channel
    treatment: Literal["any word", "sent as it is", "left out"]

    @property
    def inputs(self) -> Sequence[str]:
        """The words, and one unknown word."""
        return [*self.known.inputs, UNKNOWN]

    @property
    def outputs(self) -> Sequence[str]:
        """The words, and what shows that one was unknown."""
        shown = [] if self.treatment == "any word" else [f"({self.treatment})"]
        return [*self.known.outputs, *shown]

    def rows(self, x: IntArray) -> FloatArray:
        """The laws of the outputs for the inputs x, (len(x), len(outputs))."""
        width, words = len(self.known.outputs), len(self.known.inputs)
        laws = np.zeros((len(x), len(self.outputs)))
        unknown = x == words
        laws[~unknown, :width] = self.known.rows(x[~unknown])
        if self.treatment == "any word":
            laws[unknown] = 1 / width
        else:
            laws[unknown, width] = 1
        return laws


@dataclass(frozen=True)
class Published:
    """A published mechanism.

    Args:
        channel: channel of the paper and its code, with their treatment of unknown words.
        claim: ε that the paper claims for the nominal one.
    """

    channel: Callable[[Vocabulary, float], "WithUnknown | Cape"]
    claim: Callable[[Vocabulary, float], str]


def _nominal(_: Vocabulary, epsilon: float) -> str:
    return f"{epsilon:g}"


def _metric(vocabulary: Vocabulary, epsilon: float) -> str:
    return f"{epsilon:g}·d ≤ {epsilon * vocabulary.diameter:.2f}"


PUBLISHED: Mapping[str, Published] = {
    "santext": Published(lambda v, e: WithUnknown(SanText(v, e), "any word"), _metric),
    "santext_plus": Published(lambda v, e: WithUnknown(SanTextPlus(v, e), "any word"), _metric),
    "custext": Published(lambda v, e: WithUnknown(CusText(v, e), "sent as it is"), _nominal),
    "rantext": Published(lambda v, e: WithUnknown(RanText(v, e), "left out"), _nominal),
    "dyntext": Published(
        lambda v, e: WithUnknown(DynText(v, e), "sent as it is"),
        lambda _, e: f"{e + 0.5:g}, δ = 1e-05",
    ),
    "cape": Published(Cape, lambda v, e: f"{Cape(v, e).claim():.2f}"),
}


def published(vocabulary: Vocabulary) -> Mapping[str, Published]:
    """:data:`PUBLISHED`, and RANTEXT with constants that are fitted to these vectors, if they have the paper's word."""
    if WORD not in vocabulary.index:
        return PUBLISHED
    constants = fit(vocabulary).constants
    fitted = Published(lambda v, e: WithUnknown(RanText(v, e, constants=constants), "left out"), _nominal)
    return {**PUBLISHED, "rantext_fitted": fitted}


def on_known(channel: WithUnknown | Cape) -> Channel:
    """A published channel on words that it knows."""
    return channel.known if isinstance(channel, WithUnknown) else channel
