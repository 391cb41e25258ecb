"""Sentences that many slots share, word for word: counts of an unlimited domain, above a threshold.

Known as partition selection: Korolova, Kenthapadi, Mishra and Ntoulas 2009; Wilson, Zhang, Lam, Desfontaines,
Simmons-Marengo and Gipson 2020 (arXiv 1909.01917), and with Gaussian noise Rogers 2023 (arXiv 2309.09170).

Every slot contributes at most m different sentences (:mod:`aggregation.sentences`); c counts in how many slots each
occurs. Each count gets noise N(0, σ²) of its own, and the sentences whose noisy count exceeds τ leave, with these.

Privacy. Fix all slots but the one that differs, which contributes A or B. Sentences that another slot contributes, or
that are in both A and B, have counts in both worlds, which differ by 1 for those in A or B alone: at most 2m of them,
so by √(2m) in the L2 norm, and z = σ/√(2m). Every other sentence has count 1 in one world and does not exist in the
other. It leaves with probability p = Φ((1 - τ)/σ), so any of up to m leaves with δ₀ = 1 - (1 - p)^m at most. If none
does, what leaves is a function of the other counts' noisy vector. ``docs/privacy/mechanisms.md`` has the whole proof.

A sentence that no slot contributes gets no noise and cannot leave. As many draws of noise as N slots can contribute
sentences are made all the same, so that their number does not show in the time.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from aggregation.noise import ONE, add_gaussian_noise, check_sigma, from_fixed_point

LARGEST_DELTA0 = 0.1
"""Largest δ₀: a threshold that lets a slot's own sentence pass more often than this protects too little."""

_ROUNDING = 1e-12  # relative; far more than the quantile of the normal distribution can err by


@dataclass(frozen=True)
class CommonSentences:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z, the noise's standard deviation over the L2 sensitivity √(2m).
        delta0: probability that any sentence leaves that one slot alone contributes, in (0, 0.1]; counts once per
            answer.
        sentences: m, the most sentences that a slot contributes.

    Raises:
        ValueError: a parameter is out of its range.
    """

    noise_multiplier: float
    delta0: float
    sentences: int

    def __post_init__(self) -> None:
        if self.sentences < 1:
            raise ValueError(f"sentences must be at least 1, not {self.sentences}")
        if not 0 < self.delta0 <= LARGEST_DELTA0:
            raise ValueError(f"delta0 must be in (0, {LARGEST_DELTA0}], not {self.delta0}")
        check_sigma(self.sigma, "√(2 · sentences) · noise_multiplier")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each count, in slots; rounded up."""
        return math.nextafter(math.sqrt(2 * self.sentences), math.inf) * self.noise_multiplier

    @property
    def threshold(self) -> float:
        """Value that a noisy count must exceed, in slots: what a count of 1 exceeds with probability p."""
        p = -math.expm1(math.log1p(-self.delta0) / self.sentences)
        return 1 - self.sigma * float(special.ndtri(p))

    def count(self, contributions: Iterable[Sequence[str] | None]) -> Counter[str]:
        """Number of slots in which each sentence occurs, of a slot's different ones the first m.

        Anything that is not a list or a tuple of strings abstains.
        """
        counts: Counter[str] = Counter()
        for given in contributions:
            if isinstance(given, list | tuple) and all(isinstance(sentence, str) for sentence in given):
                counts.update(list(dict.fromkeys(given))[: self.sentences])
        return counts

    def release(self, contributions: Sequence[Sequence[str] | None]) -> dict[str, float]:
        """Release the sentences that many slots share.

        Args:
            contributions: one list of sentences per slot, or None for an abstention. No contribution makes this raise.

        Returns:
            Noisy count of each released sentence, in slots, the largest first; equals by code point. Perhaps none.
        """
        counts = self.count(contributions)
        padded = np.zeros(len(contributions) * self.sentences, dtype=np.int64)
        padded[: len(counts)] = np.fromiter(counts.values(), np.int64, len(counts)) * ONE
        noisy = add_gaussian_noise(padded, self.sigma)[: len(counts)]
        # On the lattice a count of 1 passes with at most p, too: see `keyword_ptr`.
        passed = noisy > math.ceil(self.threshold * (1 + _ROUNDING) * ONE)
        released = zip(np.array([*counts], dtype=object)[passed], from_fixed_point(noisy[passed]), strict=True)
        return dict(sorted(((text, float(count)) for text, count in released), key=lambda one: (-one[1], one[0])))

    def probability_released(self, slots: int) -> float:
        """Chance that a sentence leaves which this number of slots share."""
        return float(special.ndtr((slots - self.threshold) / self.sigma))

    def required_slots(self, probability: float = 0.95) -> int:
        """The least number of slots that must share a sentence for it to leave with the given probability.

        Raises:
            ValueError: the probability is not between 0 and 1.
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie between 0 and 1, not {probability}")
        return max(1, math.ceil(self.threshold + self.sigma * float(special.ndtri(probability))))
