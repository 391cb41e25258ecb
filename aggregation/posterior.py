"""Which label is right, given noisy votes: a posterior over the labels.

A model of one query. Of L labels y is right; n slots vote; the engine's zero-shot probabilities, smoothed, are p; σ is
the noise. With the parameters of :class:`Calibration`:

    P(y)  =  softmax(prior · log p) at y
    votes =  n · (echo · prior / decisiveness · log p + lead · 1_y + spread · normal) + a constant
    noisy =  votes + σ · normal                                         spread² = lead / decisiveness

Both Gaussians are isotropic, so Bayes' rule is exact in closed form:

    r            =  (n · spread)² / ((n · spread)² + σ²)                the reliability, 0 to 1
    log P(y | V) =  (1 − echo · r) · prior · log p_y + r · decisiveness · V_y / n + a constant

Without noise (r = 1, echo = 1) the votes alone decide; with nothing but noise (r = 0) zero-shot alone does. How many
slots vote is not public: its mean given the noisy total stands in for n.

Privacy. Everything here is computed from noisy votes and public things: post-processing of :mod:`.rnm_gaussian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

SMOOTHING = 0.02
"""Share of the zero-shot probability that is spread evenly, so that none is 0."""

Voters = TypeVar("Voters", float, npt.NDArray[np.float64])
"""How many slots vote, of one query or of many."""

_FAR = 30.0  # standard deviations; a Gaussian's tail beyond is smaller than the smallest double


@dataclass(frozen=True)
class Calibration:
    """The model's parameters, all public.

    Attributes:
        prior: how far zero-shot's log-probabilities are believed; 0 not at all, 1 as they are.
        decisiveness: nats by which all slots' agreement, without noise, favours their label over each other one.
        lead: the share of the votes that a label gains by being right.
        echo: how much of zero-shot the votes contain already; 0 to 2.
    """

    prior: float
    decisiveness: float
    lead: float
    echo: float


@dataclass(frozen=True)
class LabelPosterior:
    """Bayes' rule for one task.

    Attributes:
        sigma: standard deviation of the noise on each label's votes, in votes.
        slots: how many slots are asked.
        calibration: the model's parameters.
    """

    sigma: float
    slots: int
    calibration: Calibration

    def probabilities(
        self, noisy_votes: npt.NDArray[np.float64], zero_shot: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """The probability of each label to be right, shape (labels,).

        Args:
            noisy_votes: shape (labels,).
            zero_shot: public label probabilities, shape (labels,): none negative, not all of them 0.
        """
        voters = expected_voters(float(noisy_votes.sum()), self.sigma * math.sqrt(len(noisy_votes)), self.slots)
        posterior: npt.NDArray[np.float64] = np.exp(self.log_probabilities(noisy_votes, zero_shot, voters))
        return posterior

    def log_probabilities(
        self, noisy_votes: npt.NDArray[np.float64], zero_shot: npt.NDArray[np.float64], voters: Voters
    ) -> npt.NDArray[np.float64]:
        """Bayes' rule for many queries at once, given how many slots voted.

        Args:
            noisy_votes: shape (..., labels).
            zero_shot: shape (..., labels).
            voters: shape (..., 1).
        """
        c = self.calibration
        smoothed = (1 - SMOOTHING) * zero_shot / zero_shot.sum(axis=-1, keepdims=True) + SMOOTHING / zero_shot.shape[-1]
        weight = c.lead * voters / (self._variance(voters) + self.sigma**2)  # r · decisiveness / n, and 0 at n = 0
        log_prior = (1 - c.echo * self.reliability(voters)) * c.prior * np.log(smoothed)
        found: npt.NDArray[np.float64] = special.log_softmax(log_prior + weight * noisy_votes, axis=-1)
        return found

    def reliability(self, voters: Voters) -> Voters:
        """How far the votes of that many slots count beside zero-shot, from 0 (only noise) to 1 (no noise)."""
        variance = self._variance(voters)
        return variance / (variance + self.sigma**2)

    def lead_against(self, times: float, voters: float) -> float:
        """The lead in noisy votes that makes up for zero-shot finding another label so many times as likely.

        Args:
            times: above 1.
            voters: how many slots vote, above 0.
        """
        c, reliability = self.calibration, self.reliability(voters)
        against = max(0.0, 1 - c.echo * reliability) * c.prior * math.log(times)
        return against * voters / (reliability * c.decisiveness)

    def _variance(self, voters: Voters) -> Voters:
        """(n · spread)²."""
        return self.calibration.lead / self.calibration.decisiveness * voters**2


def expected_voters(total: float, sd: float, most: float) -> float:
    """The mean of n given ``total`` = n + Gaussian noise, for n uniform on [0, most]: that of a truncated Gaussian.

    Args:
        total: the sum of all labels' noisy votes.
        sd: standard deviation of the noise in it, above 0.
        most: how many slots are asked.
    """
    total = min(max(total, -_FAR * sd), most + _FAR * sd)
    if total < 0:  # by symmetry; from here on the lower limit is at or below the mean
        return most - expected_voters(most - total, sd, most)
    low, high = -total / sd, (most - total) / sd
    below_low, below_high = special.log_ndtr([low, high])
    mass = below_high + math.log(-math.expm1(min(below_low - below_high, -np.finfo(float).tiny)))
    at_low, at_high = np.exp(-(np.array([low, high]) ** 2) / 2 - mass) / math.sqrt(2 * math.pi)
    return float(min(max(total + sd * (at_low - at_high), 0.0), most))
