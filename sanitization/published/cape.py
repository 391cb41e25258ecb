"""Cape (Wu et al.: "Cape: Context-Aware Prompt Perturbation Mechanism with Differential Privacy", ICML 2025, arXiv
2505.05922), as the paper has it.

Utility u(x,y) = L(y)^λ_L · e^(-λ_D·D(x,y)), D the distance scaled to 0..1 in each row, L the clipped logit that a
language model gives to y in the context. The range of a row's utilities is cut into N_b buckets of equal width; a
bucket is drawn by the exponential mechanism on its mean, then a word of it uniformly.

Theorem 4.1 claims ε + ln(largest/smallest bucket). Its proof compares two normalisers term by term, but each has as
many terms as its row has *non-empty* buckets, so their ratio may be m/m′ times larger, and so may the true ε by
ln(m/m′).

L is computed from the *raw* neighbours: all of them by BERT, those before by GPT-2. So a word shows at other positions,
too. Each of them costs it ln max P(y|x,c)/P(y|x,c′) over contexts c, c′ that differ in the word, which is as much as ε
if y may be the best word in one and the worst in the other: in a text of n words a word then has nε, as the whole text
does. :mod:`sanitization.contextual` conditions on what was released instead, and a word has ε.

The paper clips raw logits to 0..B, B their largest value in a few samples. But a softmax does not change if all logits
are shifted: GPT-2's are negative, so clipped they would all be 0, and λ_L would do nothing. :func:`clipped` puts
the likeliest word at the bound, and counts in units of it, since only u/Δ matters and Δ is B^λ_L.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.vocabulary import FloatArray, IntArray, blocks


def clipped(logits: FloatArray, bound: float) -> FloatArray:
    """L: 1 for the likeliest word, 0 for words whose logit is ``bound`` or more below, (n,)."""
    return np.clip(1 - (logits.max() - logits) / bound, 0, 1)


def rank_law(counts: FloatArray, sums: FloatArray, rows: int, scale: float) -> FloatArray:
    """One law for all rows, over ranks from the best to the last, (n,).

    Args:
        counts: words in each bucket, lowest utilities first, over all rows together, (N_b,).
        sums: sum of their utilities, (N_b,).
        rows: number of rows.
        scale: ε/(2Δ).
    """
    means = sums / np.maximum(counts, 1)
    ends = np.round(np.cumsum(counts[::-1]) / rows).astype(np.int64)
    sizes = np.diff(np.concatenate([[0], ends]))
    weights = np.where(sizes > 0, np.exp(scale * (means[::-1] - means.max())), 0)
    return np.repeat(weights / weights.sum() / np.maximum(sizes, 1), sizes)


@dataclass(frozen=True, eq=False)
class Cape(OnWords):
    """The exponential mechanism on buckets of equal width.

    Args:
        epsilon: nominal ε.
        buckets: N_b.
        logits: the context's logits of the words, clipped to be at least 0 (:func:`clipped`), (n,); None: 1 for all.
            They may depend on what was *released* before, or else on public text; on raw neighbours they break the
            guarantee.
        logit_power: λ_L; 0 is the paper's ablation without a context.
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
        return rank_law(counts, sums, n, self.epsilon / (2 * self.sensitivity))

    @override
    def rows(self, x: IntArray) -> FloatArray:
        order = np.argsort(-self.utilities(x), axis=1, kind="stable")
        law = np.empty(order.shape)
        np.put_along_axis(law, order, np.broadcast_to(self.law, order.shape), axis=1)
        return law
