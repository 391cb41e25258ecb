"""Keywords by the joint exponential mechanism: an ordered sequence of k words of a public domain, drawn at once.

Source: Gillenwater, Joseph, Muñoz Medina, Ribero 2022 (arXiv 2202.06770), used for keywords by DP-ICL (Wu, Panda,
Wang, Mittal 2023, arXiv 2305.01639), section 3.2.2. The sampler below is another one, faster for small counts.

The law. Let c be the number of slots that name each word, c₍₁₎ ≥ c₍₂₎ ≥ ... the same sorted, and s a sequence of k
distinct words. Its loss is ℓ(s) = maxᵢ (c₍ᵢ₎ - c at sᵢ), a whole number, at least 0 (look at i = 1), and 0 for a
true top k in order. The mechanism releases s with probability proportional to e^(-ε·ℓ(s)/4).

Privacy. Neighbours differ in one slot's set of words, from any set to any other or to none. Each c_w then moves by
at most 1. So does each sorted count: c₍ᵢ₎ ≥ v means that i words have at least v slots, and these words keep at
least v - 1. Hence every difference c₍ᵢ₎ - c at sᵢ moves by at most 2, and so does their maximum ℓ(s). Both may move
at once, since one slot can stop naming one word and start naming another, so 2 is reached; 1, as in DP-ICL's
theorem 9, is too small. As sequences differ in how ℓ moves by at most 2 - (-2) = 4, their log-likelihood ratios
span at most 4·ε/4: the mechanism is ε-bounded-range (Dong, Durfee, Rogers, arXiv 1909.13830). This span is reached
for k of at least 2, so 4 is the right divisor.

Sampling. A word may stand at place i of a sequence of loss at most t if it has at least c₍ᵢ₎ - t votes; nᵢ(t) words
have. These sets grow with i, so N(t) = Πᵢ (nᵢ(t) - i + 1) sequences have a loss of at most t, and choosing each
place in turn among the words not yet used draws one of them uniformly. With m the largest loss of all, e^(-ε·ℓ/4)
is the sum over t = ℓ..m of w(t) = e^(-ε·t/4) - e^(-ε·(t+1)/4), for t = m only the first term. So drawing t with
weight N(t)·w(t), then a uniform sequence of loss at most t, gives s the weight Σ_{t ≥ ℓ(s)} w(t): the law above.
N(t) is an exact integer, ties need no breaking, and nothing is subtracted but the two exponentials. Losses are at
most the number of slots, so this takes O(d) for the counts and O(k·m) for the weights. What rounding does to the
law (less than 2⁻¹¹⁸ to ε) is bounded in :mod:`aggregation.exponential_weights`.
"""

import math
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from aggregation.exponential_weights import CONTEXT, draw, exponentials

LOSS_SENSITIVITY = 2
"""Largest change of a sequence's loss when one slot's contribution changes."""
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-9, 100.0
"""Below, the difference of two exponentials would cost the precision promised; above, integers would grow long."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class JointExponentialMechanism:
    """The mechanism with its parameters fixed.

    Attributes:
        epsilon: the range of its log-likelihood ratios, in nats.
        k: number of words to release.

    Raises:
        ValueError: k is below 1, or epsilon is not between 1e-9 and 100.
    """

    epsilon: float
    k: int

    def __post_init__(self) -> None:
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise ValueError(
                f"epsilon must be between {SMALLEST_EPSILON} and {LARGEST_EPSILON:.0f}, not {self.epsilon}"
            )
        if self.k < 1:
            raise ValueError(f"k is the number of words to release and must be at least 1, not {self.k}")

    @property
    def rate(self) -> float:
        """Rate at which the log-probability of a sequence falls, in nats per vote of loss."""
        return self.epsilon / (2 * LOSS_SENSITIVITY)

    def release(self, contributions: Iterable[Collection[str] | None], domain: Sequence[str]) -> tuple[str, ...]:
        """Release k distinct words of the domain, in order: those named by most slots first, up to noise.

        Whatever a slot hands in, this does not raise: an error would depend on private data.

        Args:
            contributions: one set of words per slot, or None where the slot abstains. Words outside the domain and
                repetitions do not count; a contribution that is not a collection of words abstains.
            domain: public words, each once. Their order does not matter.

        Returns:
            k words.

        Raises:
            ValueError: the domain repeats a word, or has fewer than k. No contribution has been looked at then.
        """
        return tuple(domain[i] for i in self.select(self._count(contributions, domain)))

    def select(self, counts: Counts) -> tuple[int, ...]:
        """Draw k distinct places of an array of counts, whole numbers of slots, shape (d,).

        Time and memory grow with k times the difference of the largest and the smallest count, and ε times its square.

        Raises:
            ValueError: there are fewer than k counts.
        """
        order, reach = self._rank(counts)
        return _uniform_sequence(order, reach[draw(self._weights(reach))])

    def _count(self, contributions: Iterable[Collection[str] | None], domain: Sequence[str]) -> Counts:
        places = {word: place for place, word in enumerate(domain)}
        if len(places) < len(domain):
            raise ValueError("the domain must not repeat a word")
        self._require_words(len(domain))
        named = [place for contribution in contributions for place in _named(contribution, places)]
        return np.bincount(np.array(named, dtype=np.int64), minlength=len(domain)).astype(np.int64)

    def _require_words(self, available: int) -> None:
        if available < self.k:
            raise ValueError(f"{self.k} words cannot be released from a domain of {available}")

    def _rank(self, counts: Counts) -> tuple[Counts, Counts]:
        """Words from the most to the least named, shape (d,); and nᵢ(t) of the module's text, shape (m + 1, k)."""
        self._require_words(len(counts))
        gaps = counts.max() - counts
        gaps = gaps.astype(np.min_scalar_type(gaps.max()))  # numpy sorts small integers by radix, in linear time
        order = np.argsort(gaps, kind="stable")
        within_gap = np.cumsum(np.bincount(gaps))
        largest = len(within_gap) - 1
        allowed = gaps[order[: self.k]].astype(np.int64) + np.arange(largest + 1)[:, None]
        return order, within_gap[np.minimum(allowed, largest)]

    def _weights(self, reach: Counts) -> list[Decimal]:
        """N(t)·w(t) of the module's text."""
        decay = exponentials(self.rate, len(reach) + 1)
        steps = [CONTEXT.subtract(now, after) for now, after in pairwise(decay)]
        steps[-1] = decay[len(reach) - 1]
        return [CONTEXT.multiply(n, step) for n, step in zip(_sequences(reach), steps, strict=True)]


def required_votes(epsilon: float, k: int, words: int, probability: float = 0.95) -> float:
    """Number of slots that must name each of k words, and none of the others, for these k words to be released.

    Only the k! orders of those words have loss 0, all other sequences have that number c as their loss. So the k words
    come out with probability 1/(1 + (C(words, k) - 1)·e^(-ε·c/4)), which is solved for c.

    Args:
        epsilon: ε of the mechanism, in nats.
        k: number of words to release.
        words: size of the domain, at least k.
        probability: chance that the release is these words, between 0 and 1.

    Returns:
        A number of votes, at least 0; if the ensemble is smaller, no agreement suffices.

    Raises:
        ValueError: the probability is not between 0 and 1, or the domain has fewer than k words.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1, not {probability}")
    if words < k:
        raise ValueError(f"{k} words cannot be released from a domain of {words}")
    others = math.comb(words, k) - 1
    if not others:
        return 0.0
    odds = math.log(probability) - math.log1p(-probability)
    return max(0.0, (math.log(others) + odds) * 2 * LOSS_SENSITIVITY / epsilon)


def _named(contribution: Collection[str] | None, places: Mapping[str, int]) -> set[int]:
    """Places in the domain of the words a slot names; none if the contribution is unusable, in any way."""
    try:
        if contribution is None or isinstance(contribution, str):  # a string is a collection of letters, not of words
            return set()
        return {places[word] for word in contribution if isinstance(word, str) and word in places}
    except Exception:  # whatever a foreign object raises
        return set()


def _sequences(reach: Counts) -> list[int]:
    """N(t) of the module's text: how many sequences have a loss of at most t, for t = 0..m."""
    return [math.prod(choices) for choices in (reach - np.arange(reach.shape[1])).tolist()]


def _uniform_sequence(order: Counts, reach: Counts) -> tuple[int, ...]:
    """A uniform sequence whose place i holds one of the first ``reach[i]`` of ``order``: a shuffle cut short.

    After i steps the words used are the first i of the list, and since ``reach`` grows with i, no step has moved a word
    across the border of a later one.
    """
    words = order.copy()
    for place, end in enumerate(reach.tolist()):
        chosen = place + secrets.randbelow(end - place)
        words[place], words[chosen] = words[chosen], words[place]
    return tuple(words[: len(reach)].tolist())
