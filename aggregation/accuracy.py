"""How often a one-time release is right, counted once on units that it was not made of.

Each unit that was left out contributes the pair (a, 1 - a), a being the share of its texts that the release gives their
own label. The sum of these pairs, (right, wrong), gets Gaussian noise of deviation z on each number.

Privacy. Whatever a unit holds, its pair has an L2 norm of at most a + (1 - a) = 1; a unit without a usable text
contributes nothing. So this is a Gaussian mechanism of noise multiplier z, also when the release that is measured was
chosen after seeing anything but the units that are left out. The pairs are whole numbers of the lattice, each rounded
towards zero by itself, and add exactly; the sum is clipped after each unit, which moves no two sums apart.

Estimate. right / (right + wrong) estimates the mean of a over units, the share of right answers where each unit counts
once. With n units left out its variance is v/n + z²(p² + (1 - p)²)/n², where p is that mean and v ≤ p(1 - p) the
variance of a. The number of units is not public: it is estimated by the sum of both noisy numbers. Everything from the
noisy pair on is post-processing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aggregation.noise import ONE, FixedPoint, add_gaussian_noise, check_sigma, from_fixed_point

SENSITIVITY = 1.0
"""Largest L2 change of the pair when one unit is added or removed."""

_LARGEST = 2**62  # of a number: there is room for noise above
_LEAST_KNOWN = 0.5  # the standard error of an accuracy of which nothing is known


@dataclass(frozen=True)
class Accuracy:
    """An estimate of how often a release is right.

    Attributes:
        accuracy: mean over units of the share of right answers, 0 to 1.
        standard_error: standard error of it, with the sampling of units and the noise, 0 to 0.5.
        units: number of units that it was measured on, with noise; at least 1.
    """

    accuracy: float
    standard_error: float
    units: float

    @classmethod
    def of(cls, right: float, wrong: float, sigma: float) -> "Accuracy":
        """The estimate from the noisy sums.

        Args:
            right: noisy sum of the shares of right answers.
            wrong: noisy sum of the shares of wrong ones.
            sigma: standard deviation of the noise on each.
        """
        units = max(1.0, right + wrong)
        accuracy = min(max(right / units, 0.0), 1.0)
        # Two right and two wrong ones more (Agresti, Coull 1998): none wrong of few is not a certainty.
        spread = (accuracy * units + 2) / (units + 4)
        return cls(accuracy, standard_error(units, sigma, accuracy, spread), units)


@dataclass(frozen=True)
class RightAnswers:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z, noise standard deviation over L2 sensitivity.

    Raises:
        ValueError: the noise is too small for the lattice it is drawn on.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_sigma(self.sigma, "noise_multiplier")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each of the two numbers."""
        return SENSITIVITY * self.noise_multiplier

    def release(self, units: Iterable[tuple[int, int]]) -> Accuracy:
        """The estimate: all that may be known of the units; arguments as of :meth:`sum`."""
        right, wrong = from_fixed_point(add_gaussian_noise(self.sum(units), self.sigma))
        return Accuracy.of(float(right), float(wrong), self.sigma)

    def sum(self, units: Iterable[tuple[int, int]]) -> FixedPoint:
        """Add up what the units contribute.

        Args:
            units: number of right answers to a unit's texts, and number of these texts, for each; a unit without texts
                is passed over.

        Returns:
            Fixed-point sums of the shares of right answers, and of wrong ones, shape (2,).
        """
        right = wrong = 0
        for hits, texts in units:
            if texts > 0:
                clamped = min(max(hits, 0), texts)
                right = min(right + clamped * ONE // texts, _LARGEST)
                wrong = min(wrong + (texts - clamped) * ONE // texts, _LARGEST)
        return np.array([right, wrong], np.int64)


def standard_error(units: float, sigma: float, accuracy: float, spread: float | None = None) -> float:
    """The standard error of an accuracy, at most 0.5.

    Args:
        units: number of units that it is measured on, above 0.
        sigma: standard deviation of the noise on the two sums.
        accuracy: accuracy, 0 to 1.
        spread: share of right answers by which units vary; as the accuracy unless given.
    """
    p = accuracy if spread is None else spread
    of_units = p * (1 - p) / units
    of_noise = sigma**2 * (accuracy**2 + (1 - accuracy) ** 2) / units**2
    return min(math.sqrt(of_units + of_noise), _LEAST_KNOWN)


def largest_error(units: float, sigma: float) -> float:
    """The standard error of whichever accuracy has the largest; arguments as of :func:`standard_error`.

    The variance is linear in accuracy × (1 - accuracy), so it is largest at the end or in the middle.
    """
    return max(standard_error(units, sigma, accuracy) for accuracy in (0.5, 1.0))
