"""Channels: mechanisms on one word, from an input to a random output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sanitization.vocabulary import FloatArray, IntArray, Vocabulary


class Channel(Protocol):
    """Conditional probabilities P(output | input)."""

    @property
    def inputs(self) -> Sequence[str]:
        """Possible inputs."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """Possible outputs."""
        ...

    def rows(self, x: IntArray) -> FloatArray:
        """The laws of the outputs for the inputs x, (len(x), len(outputs)); each row sums to 1."""
        ...


class Sampler(Channel, Protocol):
    """A channel that can be drawn from, exactly by the law of its rows."""

    def draw(self, x: IntArray) -> IntArray:
        """One output for each input of x, independently, by the operating system's generator; (len(x),)."""
        ...


@dataclass(frozen=True)
class OnWords(Channel):
    """Base of the channels from a vocabulary to itself.

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
