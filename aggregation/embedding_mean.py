"""Embedding space aggregation: the public candidate nearest to the noisy sum of the slots' embeddings.

Source: DP-ICL (Wu, Panda, Wang, Mittal 2023, arXiv 2305.01639), section 3.2.1 and algorithm 3, with three differences:

- One slot's contribution may be replaced by any other, so the sum moves by up to twice the radius, from a vector v of
  norm R to -v (the paper's theorem 4 takes 1).
- The candidate is compared with the *noisy* sum (the last line of algorithm 3 names the noiseless one).
- Embeddings of answers to one query lie close together. Optionally a public centre c, the mean of the candidates, is
  subtracted first, and what remains is clipped to a radius R that fits it: the same signal under less noise.

Privacy. A slot contributes a vector of norm at most R, or nothing, which counts as zero. Replacing it moves the sum by
at most 2R in the L2 norm (triangle inequality), adding or removing it by at most R. With σ = 2R·z the noisy sum is a
Gaussian mechanism of noise multiplier z; all that follows uses it and public things only.

Adding the centre back. The embeddings themselves sum to n·c + Σ(e - c), n slots having contributed. That number is
private; how many were *asked*, N, is public and stands in for it. Clipping shortens the offsets of sentences, whose
norm is about 1, to R, so the centre is shortened alike: candidates are compared with the noisy sum + N·min(R, 1)·c.
Where N is more than n, the choice is drawn towards the middle of the candidates. With R = 1 and nothing abstained or
clipped this is the paper's sum again, with the paper's noise.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from aggregation.embeddings import is_embedding, norm
from aggregation.noise import FixedPoint, add_gaussian_noise, check_sigma, from_fixed_point, to_fixed_point

Vectors = npt.NDArray[np.floating[Any]]

LARGEST_RADIUS = 2.0
"""No two points of the unit ball are further apart: a larger radius would add noise and keep nothing more."""

TYPICAL_SIMILARITY = 0.5
"""A public guess, for planning only: the cosine of the embeddings of different answers to one question."""

_ROUNDING = 2.0**-48  # more than the norm and the scaling of a vector can err by, relatively


@dataclass(frozen=True)
class EmbeddingMean:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z, noise standard deviation over L2 sensitivity.
        radius: R, the largest norm of a contribution, in (0, 2]; public. 1 cuts nothing off an embedding.
        centred: whether the candidates' mean is subtracted before clipping.
        slots: number of slots asked, of which some may abstain; public. Only a centred sum needs it.

    Raises:
        ValueError: a parameter is out of its range, or the noise too small for the lattice it is drawn on.
    """

    noise_multiplier: float
    radius: float = 1.0
    centred: bool = False
    slots: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.radius <= LARGEST_RADIUS:
            raise ValueError(f"radius must be in (0, {LARGEST_RADIUS:g}], not {self.radius}")
        check_sigma(self.sigma, "2 · radius · noise_multiplier")
        if self.slots < self.centred:
            raise ValueError(f"a centred mean needs the number of slots asked, at least 1, not {self.slots}")

    @property
    def sensitivity(self) -> float:
        """Largest L2 change of the sum when one slot's contribution changes from anything to anything."""
        return 2 * self.radius

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        return self.sensitivity * self.noise_multiplier

    def release(self, contributions: Iterable[Vectors | None], candidates: Vectors) -> int:
        """Release one candidate.

        Args:
            contributions: one embedding of norm 1 per slot, floating-point shape (d,), or None for an abstention.
                Anything that is not such a vector abstains too; no contribution makes this raise.
            candidates: embeddings of the public candidates, shape (C, d), C at least 1.

        Returns:
            The index of the released candidate.

        Raises:
            ValueError: the candidates are not usable; they are public, so nothing private shows.
        """
        candidates = unit_candidates(candidates)
        noisy_sum = add_gaussian_noise(self.sum(contributions, self.centre(candidates)), self.sigma)
        return self.select(from_fixed_point(noisy_sum), candidates)

    def centre(self, candidates: Vectors) -> Vectors:
        """The public point that embeddings are measured from, shape (d,)."""
        return candidates.mean(axis=0) if self.centred else np.zeros(candidates.shape[1])

    def sum(self, contributions: Iterable[Vectors | None], centre: Vectors) -> FixedPoint:
        """Add up what the slots contribute: embedding minus centre, clipped to the radius.

        Each contribution is brought to the lattice by itself, so that its integers depend on nothing else, and with a
        norm of at most R there, exactly: it is scaled to just below R and rounded towards zero. The sum is exact.

        Args:
            contributions: embeddings or abstentions, as for :meth:`release`.
            centre: vector to subtract, shape (d,).

        Returns:
            Fixed-point sum, shape (d,).
        """
        total: FixedPoint = np.zeros(centre.shape, dtype=np.int64)
        for contribution in contributions:
            if is_embedding(contribution, len(centre)):
                offset = np.asarray(contribution, dtype=np.float64) - centre
                limit = self.radius * (1 - _ROUNDING)
                total += to_fixed_point(offset * (limit / max(norm(offset), limit)))
        return total

    def select(self, noisy_sum: Vectors, candidates: Vectors) -> int:
        """Post-process a noisy sum, shape (d,), into the index of the nearest of the candidates.

        Nearest by cosine, the first of equals. The candidates have norm 1, so inner products give the same order.

        Args:
            noisy_sum: shape (d,).
            candidates: embeddings of norm 1, shape (C, d).
        """
        target = noisy_sum + self.slots * min(1.0, self.radius) * self.centre(candidates)
        return int(np.argmax(candidates @ target))

    def probability_released(self, agreeing: float, candidates: int, similarity: float = TYPICAL_SIMILARITY) -> float:
        """Lower bound on the chance of a candidate that some slots give word for word, while the others give nothing.

        Let v be the candidate's embedding, w another's, both of norm 1. The n agreeing slots hand in v, or v minus the
        centre, of which clipping leaves a part f. So v's score leads w's by the noise along v - w, whose standard
        deviation is σ·√(2(1 - v·w)), and in the mean by:

        - not centred: n·f·(1 - v·w) with f = min(R, 1). The lead is lost with probability
          Φ(-n·f·√((1 - v·w)/2)/σ), which grows with v·w: ``similarity`` need only bound v·w, for every w.
        - centred: the same with f = min(1, R/‖v - c‖) if every two of the C candidates have the *same* cosine s. Then
          v·c and w·c are equal, so the centre added back favours neither and (v - w)·(v - c) is 1 - s; and
          ‖v - c‖² = (1 - s)·(1 - 1/C). Of candidates that are not spread evenly this is a guess, no bound.

        All C - 1 leads hold together with at least the product of their probabilities, by Slepian's inequality, if no
        two of the Gaussian leads are negatively correlated: if (v - w)·(v - w') = 1 - v·w - v·w' + w·w' is at least 0.
        That is so if v·w is at most 1/2 and w·w' at least 0, and if all cosines are the same.

        Args:
            agreeing: n, number of slots that give the candidate.
            candidates: C, at least 1.
            similarity: largest cosine of the candidate with another; if centred, that of every two. In [0, 1).

        Raises:
            ValueError: there is no candidate, or the similarity is not in [0, 1).
        """
        pull = agreeing * self._pull_per_slot(candidates, similarity)
        return float(special.ndtr(pull)) ** (candidates - 1)

    def required_slots(
        self, candidates: int, similarity: float = TYPICAL_SIMILARITY, probability: float = 0.95
    ) -> float:
        """Number of slots that suffices in :meth:`probability_released` for the given probability.

        Returns:
            A number of slots, at least 0; if the ensemble is smaller, this promises nothing.

        Raises:
            ValueError: the probability is not between 0 and 1, or :meth:`probability_released` raises it.
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie between 0 and 1, not {probability}")
        per_slot = self._pull_per_slot(candidates, similarity)
        if candidates == 1:
            return 0.0
        return max(0.0, float(special.ndtri(probability ** (1 / (candidates - 1)))) / per_slot)

    def _pull_per_slot(self, candidates: int, similarity: float) -> float:
        """Number of standard deviations of the noise by which one slot brings its candidate ahead of another."""
        if candidates < 1 or not 0 <= similarity < 1:
            raise ValueError(
                f"there must be a candidate and the similarity lie in [0, 1), not {candidates} and {similarity}"
            )
        offset = math.sqrt((1 - similarity) * (1 - 1 / candidates)) if self.centred else 1.0
        kept = self.radius / max(offset, self.radius)
        return kept * math.sqrt((1 - similarity) / 2) / self.sigma


def unit_candidates(candidates: Vectors) -> Vectors:
    """Bring public candidates to norm 1.

    Args:
        candidates: shape (C, d).

    Raises:
        ValueError: there are no candidates, or one is not a vector of finite numbers other than zero.
    """
    vectors = np.asarray(candidates, dtype=np.float64)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(f"candidates must be an array of shape (candidates, d), both at least 1, not {vectors.shape}")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError("every candidate must be a vector of finite numbers other than zero")
    return np.asarray(vectors / lengths)
