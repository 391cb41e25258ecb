"""The mechanisms as their papers and code have them, to be audited and attacked: none of them is served."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from sanitization.channel import Channel
from sanitization.mechanisms import Make
from sanitization.published.cape import Cape
from sanitization.published.custext import CusText
from sanitization.published.dp_prompt import WorstContexts
from sanitization.published.dyntext import DynText
from sanitization.published.fbdd import Fbdd, FbddOnSpans
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
        bound: largest possible true ε, for a channel whose rows are estimated from draws: an audit would prove nothing.
        on_words: whether it replaces the vocabulary's words, and can be attacked as such.
    """

    channel: Make
    claim: Callable[[Vocabulary, float], str]
    bound: Callable[[Vocabulary, float], float] | None = None
    on_words: bool = True


def _nominal(_: Vocabulary, epsilon: float) -> str:
    return f"{epsilon:g}"


def _metric(vocabulary: Vocabulary, epsilon: float) -> str:
    return f"{epsilon:g}·d ≤ {epsilon * vocabulary.diameter:.2f}"


def _dyntext(_: Vocabulary, epsilon: float) -> str:
    return f"{epsilon + 0.5:g}, δ = 1e-05"


def _ablation(make: Make) -> Published:
    """DYNTEXT without a part."""
    return Published(lambda v, e: WithUnknown(make(v, e), "sent as it is"), _dyntext)


TOKENS = 49_152
"""Number of tokens of the model that DP-Prompt is audited with, which is SmolLM2's."""

PUBLISHED: Mapping[str, Published] = {
    "santext": Published(lambda v, e: WithUnknown(SanText(v, e), "any word"), _metric),
    "santext_plus": Published(lambda v, e: WithUnknown(SanTextPlus(v, e), "any word"), _metric),
    "custext": Published(lambda v, e: WithUnknown(CusText(v, e), "sent as it is"), _nominal),
    "rantext": Published(lambda v, e: WithUnknown(RanText(v, e), "left out"), _nominal),
    "dyntext": Published(lambda v, e: WithUnknown(DynText(v, e), "sent as it is"), _dyntext),
    "cape": Published(Cape, lambda v, e: f"{Cape(v, e).claim():.2f}"),
    "fbdd": Published(Fbdd, _metric, bound=lambda v, e: Fbdd(v, e).bound),
    "fbdd_spans": Published(FbddOnSpans, _metric, bound=lambda _, __: math.inf),  # a kept word comes from itself
    "dyntext_global": _ablation(partial(DynText, smooth=False)),
    "dyntext_fixed": _ablation(partial(DynText, dynamic=False)),
    # The nominal ε is that of a token, 2(b-a)/T.
    "dp_prompt": Published(lambda _, e: WorstContexts(TOKENS, 0, e / 2, 1), _nominal, on_words=False),
}


def published(vocabulary: Vocabulary) -> Mapping[str, Published]:
    """:data:`PUBLISHED`, and RANTEXT with constants that are fitted to these vectors, if they have the paper's word."""
    if WORD not in vocabulary.index:
        return PUBLISHED
    constants = fit(vocabulary).constants
    fitted = Published(lambda v, e: WithUnknown(RanText(v, e, constants=constants), "left out"), _nominal)
    return {**PUBLISHED, "rantext_fitted": fitted}


def on_known(channel: Channel) -> Channel:
    """A published channel on words that it knows."""
    return channel.known if isinstance(channel, WithUnknown) else channel
