"""Cape (Wu et al.: "Cape: Context-Aware Prompt Perturbation Mechanism with Differential Privacy", ICML 2025, arXiv
2505.05922), as the paper has it.

Utility u(x,y) = L(y)^λ_L · e^(-λ_D·D(x,y)), D the distance scaled to 0..1 in each row, L the clipped logit that a
language model gives to y in the context. The range of a row's utilities is cut into N_b buckets of equal width; a
bucket is drawn by the exponential mechanism on its mean, then a word of it uniformly.

Theorem 4.1 claims ε + ln(largest/smallest bucket). Its proof compares two normalisers term by term, but each has as
many terms as its row has *non-empty* buckets, so their ratio may be m/m′ times larger, and so may the true ε by
ln(m/m′). And L is computed from the *raw* neighbours, so a word shows at other positions, too.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.vocabulary import FloatArray, IntArray, blocks


@dataclass(frozen=True, eq=False)
class Cape(OnWords):
    """The exponential mechanism on buckets of equal width.

    Args:
        epsilon: nominal ε.
        buckets: N_b.
        logits: logits that the context gives to each word, clipped to be at least 0, (n,); None: 1 for all. They may
            depend on what was *released* before, or else on public text; on raw neighbours they break the guarantee.
        logit_power: λ_L.
        distance_power: λ_D.
    """

    epsilon: float
    buckets: int = 50
    logits: FloatArray | None = None
    logit_power: float = 0.5
    distance_power: float = 1.0

    @property
    def _weights(self) -> FloatArray:
        if self.logits is None:
            return np.ones(len(self.vocabulary))
        return self.logits**self.logit_power

    @property
    def sensitivity(self) -> float:
        """Δ: how far apart two utilities can be."""
        return float(self._weights.max() - self._weights.min() * math.exp(-self.distance_power))

    def utilities(self, x: IntArray) -> FloatArray:
        """u(x, ·), (len(x), n)."""
        distance = self.vocabulary.distances(x)
        least = distance.min(axis=1, keepdims=True)
        spread = distance.max(axis=1, keepdims=True) - least
        scaled = (distance - least) / np.where(spread > 0, spread, 1)
        return self._weights * np.exp(-self.distance_power * scaled)

    def bucketed(self, x: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """The bucket of each word, (len(x), n); words in each bucket and their mean utility, (len(x), N_b)."""
        utility = self.utilities(x)
        least = utility.min(axis=1, keepdims=True)
        width = np.ptp(utility, axis=1, keepdims=True) / self.buckets
        at = np.minimum((utility - least) / np.where(width > 0, width, 1), self.buckets - 1).astype(np.int64)
        flat = (at + np.arange(len(x))[:, None] * self.buckets).ravel()
        shape = (len(x), self.buckets)
        counts = np.bincount(flat, minlength=math.prod(shape)).reshape(shape)
        sums = np.bincount(flat, weights=utility.ravel(), minlength=math.prod(shape)).reshape(shape)
        return at, counts, sums / np.maximum(counts, 1)

    @override
    def rows(self, x: IntArray) -> FloatArray:
        at, counts, means = self.bucketed(x)
        weights = np.where(counts > 0, np.exp(self.epsilon / (2 * self.sensitivity) * means), 0)
        weights /= weights.sum(axis=1, keepdims=True)
        return np.take_along_axis(weights / np.maximum(counts, 1), at, axis=1)

    def claim(self) -> float:
        """Theorem 4.1: ε + ln(largest/smallest non-empty bucket)."""
        counts = np.concatenate([self.bucketed(x)[1] for x in blocks(len(self.vocabulary))])
        return self.epsilon + math.log(counts.max() / counts[counts > 0].min())


class RankedCape(Cape):
    """Cape with a normaliser that is the same for all words: buckets by rank instead of by width.

    How many words the j-th bucket holds, and what it weighs, is public: the vocabulary's means of what equal widths
    give. So all rows are one list of numbers in different orders; the true ε is ln of the largest over the smallest.
    """

    @cached_property
    def law(self) -> FloatArray:
        """Probabilities from the best rank to the last, (n,)."""
        n = len(self.vocabulary)
        counts, sums = np.zeros(self.buckets), np.zeros(self.buckets)
        for x in blocks(n):
            _, count, mean = self.bucketed(x)
            counts += count.sum(axis=0)
            sums += (count * mean).sum(axis=0)
        means = sums / np.maximum(counts, 1)
        ends = np.round(np.cumsum(counts[::-1]) / n).astype(np.int64)
        sizes = np.diff(np.concatenate([[0], ends]))
        weights = np.where(sizes > 0, np.exp(self.epsilon / (2 * self.sensitivity) * means[::-1]), 0)
        return np.repeat(weights / weights.sum() / np.maximum(sizes, 1), sizes)

    @override
    def rows(self, x: IntArray) -> FloatArray:
        order = np.argsort(-self.utilities(x), axis=1, kind="stable")
        law = np.empty(order.shape)
        np.put_along_axis(law, order, np.broadcast_to(self.law, order.shape), axis=1)
        return law
