"""Keyword space aggregation by propose-test-release: the most frequent words, if they stand out.

Source: DP-ICL (Wu, Panda, Wang, Mittal 2023, arXiv 2305.01639), section 3.2.2 and algorithms 6 and 7, after Zhu and
Wang 2022. Every slot contributes a set of words; H counts in how many slots each word occurs; H₍ⱼ₎ is the j-th largest
count, and 0 beyond the last word. The gap at k is d_k = H₍ₖ₎ - H₍ₖ₊₁₎. Words come from an unlimited domain.

Sensitivity 2 of a gap, however many words a slot has. Replacing one slot's set by another moves every word's count by
-1, 0 or 1. If no entry of a vector moves by more than 1, nor does its j-th largest: at least j entries are H₍ⱼ₎ or more
before, so at least j are H₍ⱼ₎ - 1 or more after, and the other way round. A gap is a difference of two of them, so
it moves by at most 2. Two tops that swap, {a} for {b}, attain it. A removal only lowers counts: by at most 1.

Step 1, choosing k: the exponential mechanism on the gaps, P(k) ∝ exp(ε·d_k/4), which is Gumbel noise of scale 4/ε (the
paper's code takes 2/ε). A log-likelihood ratio is ε·(change of d_k)/4 plus a constant that k does not enter, and the
changes lie in [-2, 2], so the ratios span at most ε: an ε-bounded-range mechanism. Both ends can occur at once.

Step 2, testing it: passed iff max(2, d_k) + N(0, 4σ²) exceeds 2 + Φ⁻¹(1 - δ₀; 0, 2σ). For two neighbours and any k:
- If either gap exceeds 2, so is at least 3, every one of the top k leads all others by at least 3, and a change of one
  slot leaves it at least 1 ahead: both have the same top k. Only pass or fail differs, a Gaussian mechanism on
  max(2, d_k) of sensitivity 2 and noise multiplier σ.
- If neither does, ties among them, both pass with the same probability, at most δ₀, and fail alike otherwise.

What leaves is the *set* of the top k in alphabetical order: the order by count is not the same for neighbours.
"""

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from opendp import domains, measurements, measures, metrics
from opendp.mod import Measurement, enable_features
from scipy import special

from aggregation.keywords import WordCounts, count_words
from aggregation.noise import ONE, add_gaussian_noise, check_sigma

GAP_SENSITIVITY = 2
"""Largest change of a gap when one slot's contribution changes; also the largest gap that is not safe to release at."""

LARGEST_DELTA0 = 0.1
"""Largest δ₀: a test that passes more often than this on an unsafe gap protects too little."""

_ROUNDING = 1e-12  # relative; far more than the quantile of the normal distribution can err by

enable_features("contrib")


@dataclass(frozen=True)
class KeywordPtr:
    """The mechanism with its parameters fixed.

    Attributes:
        epsilon: range of the choice of k, in nats.
        noise_multiplier: σ of the test, whose noise has standard deviation 2σ on a gap of sensitivity 2.
        delta0: probability that the test passes at a gap of at most 2, in (0, 0.1]; counts once per answer.
        k_min: fewest words to release, at least 1.
        k_max: most words to release.

    Raises:
        ValueError: a parameter is out of its range.
    """

    epsilon: float
    noise_multiplier: float
    delta0: float
    k_min: int
    k_max: int

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be a positive, finite number, not {self.epsilon}")
        check_sigma(self.sigma, "2 · noise_multiplier")
        if not 0 < self.delta0 <= LARGEST_DELTA0:
            raise ValueError(f"delta0 must be in (0, {LARGEST_DELTA0}], not {self.delta0}")
        if not 1 <= self.k_min <= self.k_max:
            raise ValueError(f"k_min and k_max must be 1 <= k_min <= k_max, not {self.k_min} and {self.k_max}")

    @property
    def gumbel_scale(self) -> float:
        """Scale of the Gumbel noise on each gap, in slots; rounded up."""
        return math.nextafter(2 * GAP_SENSITIVITY / self.epsilon, math.inf)

    @property
    def sigma(self) -> float:
        """Standard deviation of the test's noise, in slots."""
        return GAP_SENSITIVITY * self.noise_multiplier

    @property
    def threshold(self) -> float:
        """Value that the noisy gap must exceed, in slots: 2 and the upper δ₀ quantile of the noise."""
        return GAP_SENSITIVITY - self.sigma * float(special.ndtri(self.delta0))

    def release(self, contributions: Iterable[Set[str] | None]) -> tuple[str, ...] | None:
        """Release the most frequent words, or nothing.

        Args:
            contributions: one set of words per slot, or None for an abstention. Anything that is not a set of strings
                abstains too; no contribution makes this raise.

        Returns:
            Words in alphabetical order (by code point): k of them, or fewer if there are no k words at all. None if
            the test failed: the caller falls back on its zero-shot answer.
        """
        counts = count_words(contributions)
        ordered = sorted(counts.values(), reverse=True) + [0] * (self.k_max + 1)
        k = self.choose_k(ordered)
        return tuple(sorted(top_words(counts, k))) if self.passes(gap(ordered, k)) else None

    def choose_k(self, ordered: list[int]) -> int:
        """Draw k by the exponential mechanism on the gaps; differentially private by itself.

        The draw is exact: integers in, Gumbel noise compared at as many digits as it takes, by OpenDP's generator.

        Args:
            ordered: counts, largest first, at least ``k_max + 1``.
        """
        gaps = [gap(ordered, k) for k in range(self.k_min, self.k_max + 1)]
        return self.k_min + int(_exponential_mechanism(self.gumbel_scale)(gaps))

    def passes(self, the_gap: int) -> bool:
        """Whether a gap, in slots, passes the noisy test. Not private by itself: see the module's docstring.

        On the lattice, too, a gap of at most 2 passes with a probability of at most δ₀: the discrete Gaussian's tail
        beyond a lattice point is lighter than the continuous one's, and the threshold is rounded up.
        """
        noisy = add_gaussian_noise(np.array([max(GAP_SENSITIVITY, the_gap) * ONE], dtype=np.int64), self.sigma)
        return int(noisy[0]) > math.ceil(self.threshold * (1 + _ROUNDING) * ONE)

    def probability_passes(self, the_gap: int) -> float:
        """Chance that a gap, in slots, passes the test."""
        return float(special.ndtr((max(GAP_SENSITIVITY, the_gap) - self.threshold) / self.sigma))

    def required_gap(self, probability: float = 0.95) -> int:
        """The least gap, in slots, that passes the test with the given probability.

        Raises:
            ValueError: the probability is not between delta0 and 1.
        """
        if not self.delta0 < probability < 1:
            raise ValueError(f"probability must lie between delta0 and 1, not {probability}")
        return math.ceil(self.threshold + self.sigma * float(special.ndtri(probability)))


def gap(ordered: list[int], k: int) -> int:
    """The difference between the k-th largest count and the next.

    Args:
        ordered: counts, largest first.
        k: at least 1, below ``len(ordered)``.
    """
    return ordered[k - 1] - ordered[k]


def top_words(counts: WordCounts, k: int) -> list[str]:
    """The k words of the largest counts, most frequent first; equals by code point. Fewer if there are fewer."""
    return sorted(counts, key=lambda word: (-counts[word], word))[:k]


@lru_cache(maxsize=256)
def _exponential_mechanism(scale: float) -> Measurement:
    """Picks index i with probability proportional to ``exp(score_i/scale)``.

    The measure named only selects Gumbel noise (pure differential privacy would select exponential noise, another
    distribution with twice the range); OpenDP's own bookkeeping is not used.
    """
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.linf_distance(T="i64")
    return measurements.make_noisy_max(*space, measures.zero_concentrated_divergence(), scale=scale)
