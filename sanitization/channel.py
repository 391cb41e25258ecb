"""What a mechanism on one word is: a channel, input in, random output out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from sanitization.vocabulary import FloatArray, IntArray, Vocabulary

UNKNOWN = "(any unknown word)"


class Channel(Protocol):
    """Conditional probabilities P(output | input)."""

    @property
    def inputs(self) -> Sequence[str]:
        """What may go in."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """What may come out."""
        ...

    def rows(self, x: IntArray) -> FloatArray:
        """The laws of the outputs for the inputs x, (len(x), len(outputs)); each row sums to 1."""
        ...


class Sampler(Channel, Protocol):
    """A channel that can be drawn from: exactly the law its rows say."""

    def draw(self, x: IntArray) -> IntArray:
        """One output for each input of x, independently, by the operating system's generator; (len(x),)."""
        ...


@dataclass(frozen=True)
class OnWords:
    """What a channel from a vocabulary to itself begins with.

    Args:
        vocabulary: the words.
    """

    vocabulary: Vocabulary

    @property
    def inputs(self) -> Sequence[str]:
        """All words."""
        return self.vocabulary.words

    @property
    def outputs(self) -> Sequence[str]:
        """All words."""
        return self.vocabulary.words


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
        """See :class:`Channel`."""
        width, words = len(self.known.outputs), len(self.known.inputs)
        laws = np.zeros((len(x), len(self.outputs)))
        unknown = x == words
        laws[~unknown, :width] = self.known.rows(x[~unknown])
        if self.treatment == "any word":
            laws[unknown] = 1 / width
        else:
            laws[unknown, width] = 1
        return laws
