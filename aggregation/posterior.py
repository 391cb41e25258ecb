"""Which label is right, given noisy votes: a posterior over the labels.

A model of one query. Of L labels y is right; n slots vote; the engine's zero-shot probabilities, smoothed, are p; σ is
the noise. With the parameters of :class:`Calibration`:

    P(y)   =  softmax(prior · log p) at y
    share  =  Gamma(shape k, mean μ) of a wrong label; of the right one with shape k + g, on the same scale
    noisy  =  n · share + a normal of variance σ² + (blur · n)²
    g      =  decisiveness / ln 50          k = g / (lead · L)          μ = softmax(echo · prior / g · log p)

So shares that are all certain multiply P(y) by share^g, and not by e to the power of something times the share: as few
slots that vote for a label speak against it as firmly as many speak for it. Noisy ones multiply it by
E[share^g | noisy] / E[share^g], both of a wrong label's share. Shares are multiples of 1 %, so Bayes' rule is a sum.

Without noise and with echo = 1 the votes alone decide; with nothing but noise zero-shot alone does. How many slots vote
is not public: its mean given the noisy total stands in for n.

Privacy. Everything here is computed from noisy votes and public things: post-processing of :mod:`.rnm_gaussian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

SMOOTHING = 0.02
"""Share of the zero-shot probability that is spread evenly, so that none is 0."""

Voters = TypeVar("Voters", float, npt.NDArray[np.float64])
"""How many slots vote, of one query or of many."""

_SHARES = (np.arange(100) + 0.5) / 100
_LOG_SHARES = np.log(_SHARES)
_SPAN = math.log(50)
"""Of the logarithms of shares that are told apart: from the blur to all."""
_BLUR = 0.02
"""Standard deviation of what chance does to a share without noise."""

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
        """The probability of each label to be right, shape (..., labels).

        Args:
            noisy_votes: shape (..., labels).
            zero_shot: public label probabilities, shape (labels,): none negative, not all of them 0.
        """
        sd = self.sigma * math.sqrt(noisy_votes.shape[-1])
        totals = noisy_votes.sum(axis=-1, keepdims=True)
        voters = np.reshape([expected_voters(float(total), sd, self.slots) for total in totals.flat], totals.shape)
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
        c, labels = self.calibration, zero_shot.shape[-1]
        smoothed = (1 - SMOOTHING) * zero_shot / zero_shot.sum(axis=-1, keepdims=True) + SMOOTHING / labels
        log_prior = c.prior * np.log(smoothed)
        # The last axis is that of shares. What all of a label's have in common is left out of `seen`.
        mean = special.softmax(c.echo / self._power * log_prior, axis=-1)[..., None]
        wrong = (self._shape(labels) - 1) * _LOG_SHARES - self._shape(labels) / mean * _SHARES
        right = wrong + self._power * _LOG_SHARES
        n = np.asarray(voters, dtype=np.float64)[..., None]
        seen = n * _SHARES * (noisy_votes[..., None] - n * _SHARES / 2) / (self.sigma**2 + (_BLUR * n) ** 2)
        evidence = _log_sum(right + seen) - _log_sum(wrong + seen) - (_log_sum(right) - _log_sum(wrong))
        found: npt.NDArray[np.float64] = special.log_softmax(log_prior + evidence, axis=-1)
        return found

    def reliability(self, voters: float, labels: int) -> float:
        """How far noisy votes tell shares that chance alone makes: from 0 (only noise) to 1 (no noise)."""
        variance = (voters / labels) ** 2 / self._shape(labels)
        return variance / (variance + self.sigma**2)

    def lead_against(self, times: float, voters: float, labels: int) -> float:
        """The lead in noisy votes that makes up for zero-shot finding the other labels so many times as likely.

        Args:
            times: above 1.
            voters: how many slots vote, above 0.
            labels: how many there are; the others have as many votes as each other.

        Returns:
            At most ``voters``; infinity where that is not enough.
        """
        zero_shot = np.full(labels, times)
        zero_shot[0] = 1.0

        def ahead(lead: float) -> float:
            noisy = np.full(labels, (voters - lead) / labels)
            noisy[0] += lead
            found = self.log_probabilities(noisy, zero_shot, voters)
            return float(found[0] - found[1])

        if ahead(voters) < 0:
            return math.inf
        return float(optimize.brentq(ahead, 0.0, voters)) if ahead(0.0) < 0 else 0.0

    @property
    def _power(self) -> float:
        """The model's g."""
        return self.calibration.decisiveness / _SPAN

    def _shape(self, labels: int) -> float:
        """The model's k."""
        return self._power / (self.calibration.lead * labels)


def _log_sum(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of the last axis, as of exponentials."""
    most = logs.max(axis=-1, keepdims=True)
    found: npt.NDArray[np.float64] = np.log(np.exp(logs - most).sum(axis=-1)) + most[..., 0]
    return found


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
