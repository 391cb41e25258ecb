"""Randomised response: an output near the input with weight W, any other with weight U, whole numbers.

Every row consists of k times W and m-k times U, so its sum is the same for all inputs and cancels: the true ε is
ln(W/U) exactly, whatever string goes in, as long as it is given k outputs to be near to. W = ⌊e^ε·U⌋ keeps that at most
ε, and less by no more than 10⁻⁶. A draw is one uniform whole number below kW + (m-k)U: no rounding anywhere.

``nearest_rr``: outputs are all words, near are the k nearest (k-RR of Kairouz, Bonawitz, Ramage, arXiv 1602.07387, for
k = 1). ``medoid_rr``: outputs are public medoids (:mod:`sanitization.medoids`), near is the nearest of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np

from aggregation.exponential_weights import CONTEXT
from sanitization import uniform
from sanitization.vocabulary import FloatArray, IntArray

UNIT = 1 << 20
"""U."""
LARGEST_EPSILON = 25.0


@dataclass(frozen=True, eq=False)
class RandomisedResponse:
    """The channel.

    Args:
        inputs: words, n of them.
        outputs: m words.
        near: the outputs near each input, all different, (n, k), k < m.
        epsilon: asked for; above 0, at most 25.

    Raises:
        ValueError: ε or k is out of range.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    near: IntArray
    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= LARGEST_EPSILON:
            raise ValueError(f"ε must be above 0 and at most {LARGEST_EPSILON:g}, not {self.epsilon}")
        if not 1 <= self.near.shape[1] < len(self.outputs):
            raise ValueError("an input is near to at least one output, and not to all")

    @cached_property
    def weight(self) -> int:
        """W."""
        return int(CONTEXT.multiply(CONTEXT.exp(Decimal(self.epsilon)), Decimal(UNIT)))

    @property
    def true_epsilon(self) -> float:
        """ln(W/U), for any input at all."""
        return math.log(self.weight) - math.log(UNIT)

    def rows(self, x: IntArray) -> FloatArray:
        """The laws of the outputs for the inputs x, (len(x), len(outputs))."""
        law = np.full((len(x), len(self.outputs)), UNIT / self._total)
        np.put_along_axis(law, self.near[x], self.weight / self._total, axis=1)
        return law

    def draw(self, x: IntArray) -> IntArray:
        """One output for each input of x, independently; (len(x),)."""
        near = np.sort(self.near[x], axis=1)
        k = near.shape[1]
        point = uniform.below(self._total, len(near))
        hit = point < k * self.weight
        own = np.take_along_axis(near, np.where(hit, point // self.weight, 0)[:, None], axis=1)[:, 0]
        # The r-th output that is not near: r, and one more for each near output that comes no later.
        rest = np.where(hit, 0, (point - k * self.weight) // UNIT)
        skipped = (near - np.arange(k) <= rest[:, None]).sum(axis=1)
        return np.where(hit, own, rest + skipped)

    @cached_property
    def _total(self) -> int:
        k = self.near.shape[1]
        return k * self.weight + (len(self.outputs) - k) * UNIT
