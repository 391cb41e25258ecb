"""Votes with Gaussian noise, and report noisy max: the label of the largest noisy vote.

Source: DP-ICL (Wu, Panda, Wang, Mittal 2023, arXiv 2305.01639), section 3.1, after Zhu and Wang 2022.

Privacy. The noisy votes are a Gaussian mechanism on a sum of L2 sensitivity √2 (see :mod:`aggregation.votes`); with
σ = √2·z its noise multiplier is z. Reading off the largest, adding a public prior before, and weighing them against a
public prior (:mod:`aggregation.posterior`) is post-processing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import special

from aggregation.noise import add_gaussian_noise, from_fixed_point
from aggregation.votes import L2_SENSITIVITY, Contribution, Vote, sum_votes


@dataclass(frozen=True)
class RnmGaussian:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z, noise standard deviation over L2 sensitivity.
        labels: number of labels, at least 2.
        vote: "hard" or "soft".
        prior_weight: number of votes that the public prior counts for; 0 leaves it out.
    """

    noise_multiplier: float
    labels: int
    vote: Vote = "hard"
    prior_weight: float = 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each label's votes, in votes."""
        return self.noise_multiplier * L2_SENSITIVITY

    def release(
        self, contributions: Iterable[Contribution | None], prior: npt.NDArray[np.float64] | None = None
    ) -> int:
        """Release one label.

        Args:
            contributions: one vector of label probabilities per slot, shape (labels,), or None for an abstention.
            prior: public label probabilities, shape (labels,): those of the query's own zero-shot call.

        Returns:
            The index of the released label.
        """
        return self.select(self.noisy_votes(contributions), prior)

    def noisy_votes(self, contributions: Iterable[Contribution | None]) -> npt.NDArray[np.float64]:
        """The votes for each label with noise, shape (labels,): all that may be known of the contributions."""
        votes = sum_votes(contributions, self.labels, self.vote)
        return from_fixed_point(add_gaussian_noise(votes, self.sigma))

    def select(self, noisy_votes: npt.NDArray[np.float64], prior: npt.NDArray[np.float64] | None = None) -> int:
        """Post-process noisy votes, shape (labels,), into a label: add the public prior, take the largest."""
        if self.prior_weight and prior is not None:
            noisy_votes = noisy_votes + self.prior_weight * np.asarray(prior, dtype=np.float64)
        return int(np.argmax(noisy_votes))


def probability_correct(margin: float, sigma: float, labels: int) -> float:
    """Chance that the leading label is released when it leads *every* other label by the same margin.

    The worst case for a given margin to the runner-up: E[Φ(margin/σ + G)^(labels−1)] for a standard Gaussian G, by
    Gauss–Hermite quadrature.

    Args:
        margin: lead over each other label, in votes.
        sigma: noise standard deviation per label, in votes.
        labels: number of labels.
    """
    nodes, weights = _quadrature()
    wins = special.ndtr(margin / sigma + nodes) ** (labels - 1)
    return float(weights @ wins / weights.sum())


@cache
def _quadrature() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Nodes and weights: most of the time that it takes to find a margin, were they computed at each step."""
    return np.polynomial.hermite_e.hermegauss(101)


def required_margin(sigma: float, labels: int, probability: float = 0.95) -> float:
    """The least lead, in votes, with which the leading label is released with the given probability.

    Raises:
        ValueError: the probability is not between 1/labels and 1.
    """
    from scipy import optimize  # a quarter of a second, and few commands need it

    if not 1 / labels < probability < 1:
        raise ValueError(f"probability must lie between 1/labels and 1, not {probability}")
    return float(optimize.brentq(lambda m: probability_correct(m, sigma, labels) - probability, 0.0, 60.0 * sigma))
