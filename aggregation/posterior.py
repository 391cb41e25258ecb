"""A posterior over the labels, given noisy votes.

A model of one query. Of L labels y is right; n slots vote; the engine's zero-shot probabilities, smoothed, are p; σ is
the noise. With the parameters of :class:`PosteriorParameters`:

    P(y)   =  softmax((1 − echo · r) · prior · log p + log weight) at y
    share  =  Gamma(shape k, mean 1/L) of a wrong label; of the right one with shape k + g, on the same scale
    noisy  =  n · share + a normal of variance σ² + (blur · n)²
    g      =  decisiveness / ln 50          k = g / (lead · L)
    r      =  (n · spread)² / ((n · spread)² + σ²)                      spread² = lead / decisiveness

Shares that are all certain multiply P(y) by share^g, so as few slots that vote for a label speak against it as firmly
as many speak for it. Noisy ones multiply it by E[share^g | noisy], that of a wrong label's share. Shares are multiples
of 1 %, so Bayes' rule is a sum.

The votes contain zero-shot already, so P(y) counts less of it the more reliable they are: r is 0 to 1. That is exact
where shares are Gaussian around zero-shot's; here it is a choice, and the rest is Bayes' rule for it. Without noise and
with echo = 1 the votes alone decide; with nothing but noise zero-shot alone does. How many slots vote is not public:
its mean given the noisy total stands in for n.

Privacy. Everything here is computed from noisy votes and public things: post-processing of :mod:`.rnm_gaussian`.
"""

import bisect
import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

SMOOTHING = 0.02
"""Share of the zero-shot probability that is spread evenly, so that none is 0."""

Voters = TypeVar("Voters", float, npt.NDArray[np.float64])
"""Number of slots that vote, of one query or of many."""

_SHARES = (np.arange(100) + 0.5) / 100
_LOG_SHARES = np.log(_SHARES)
_SPAN = math.log(50)
"""Width of the range in which logarithms of shares are distinguished: from the blur to a share of 1."""
_BLUR = 0.02
"""Standard deviation of what chance does to a share without noise."""

_FAR = 30.0  # standard deviations; a Gaussian's tail beyond is smaller than the smallest double


@dataclass(frozen=True)
class PosteriorParameters:
    """The model's parameters, all public.

    Attributes:
        prior: weight of zero-shot's log-probabilities; 0 ignores them, 1 takes them as they are.
        decisiveness: nats by which 50 times as many votes as another label's, without noise, favour a label over it.
        lead: the share of the votes that a label gains by being right.
        echo: degree to which the votes repeat zero-shot; 0 to 2.
        weights: factor on each label's probability beside zero-shot and votes, above 0. Empty: 1 for all.
    """

    prior: float
    decisiveness: float
    lead: float
    echo: float
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class LabelPosterior:
    """Bayes' rule for one task.

    Attributes:
        sigma: standard deviation of the noise on each label's votes, in votes.
        slots: number of slots asked.
        calibration: the model's parameters.
    """

    sigma: float
    slots: int
    calibration: PosteriorParameters

    def probabilities(
        self, noisy_votes: npt.NDArray[np.float64], zero_shot: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """The model's probability that each label is right, shape (..., labels).

        As far as the model's parameters were fitted to the engine and the task, that is how often it is right.

        Args:
            noisy_votes: shape (..., labels).
            zero_shot: public label probabilities, shape (labels,): none negative, not all of them 0.
        """
        sd = self.sigma * math.sqrt(noisy_votes.shape[-1])
        totals = noisy_votes.sum(axis=-1, keepdims=True)
        voters = np.reshape([expected_voters(float(total), sd, self.slots) for total in totals.flat], totals.shape)
        return np.exp(self.log_probabilities(noisy_votes, zero_shot, voters))

    def log_probabilities(
        self, noisy_votes: npt.NDArray[np.float64], zero_shot: npt.NDArray[np.float64], voters: Voters
    ) -> npt.NDArray[np.float64]:
        """Bayes' rule for many queries at once, given the number of slots that voted.

        Args:
            noisy_votes: shape (..., labels).
            zero_shot: shape (..., labels).
            voters: shape (..., 1).
        """
        weighed = self.log_prior(zero_shot, voters) + self.evidence(noisy_votes, voters)
        return weighed - _log_sum_exp(weighed)[..., None]

    def log_prior(self, zero_shot: npt.NDArray[np.float64], voters: Voters) -> npt.NDArray[np.float64]:
        """log P(y) in the model, up to a constant; arguments as in :meth:`log_probabilities`."""
        c, labels = self.calibration, zero_shot.shape[-1]
        smoothed = (1 - SMOOTHING) * zero_shot / zero_shot.sum(axis=-1, keepdims=True) + SMOOTHING / labels
        weights = np.log(c.weights) if c.weights else 0.0
        believed: npt.NDArray[np.float64] = (1 - c.echo * self.reliability(voters)) * c.prior * np.log(smoothed)
        return believed + weights

    def evidence(self, noisy_votes: npt.NDArray[np.float64], voters: Voters) -> npt.NDArray[np.float64]:
        """log E[share^g | noisy] of each label, up to a constant; arguments as in :meth:`log_probabilities`.

        Of the calibration, only ``decisiveness`` and ``lead`` are used.
        """
        c, labels = self.calibration, noisy_votes.shape[-1]
        # The last axis is that of shares. What all of a label's have in common is left out of `seen`.
        n = np.asarray(voters, dtype=np.float64)[..., None]
        seen = n * _SHARES * (noisy_votes[..., None] - n * _SHARES / 2) / (self.sigma**2 + (_BLUR * n) ** 2)
        power = c.decisiveness / _SPAN
        shape = power / (c.lead * labels)
        wrong = (shape - 1) * _LOG_SHARES - shape * labels * _SHARES + seen
        right = power * _LOG_SHARES + wrong
        return _log_sum_exp(right) - _log_sum_exp(wrong)

    def reliability(self, voters: Voters) -> Voters:
        """Weight of the votes of that many slots beside zero-shot, from 0 (only noise) to 1 (no noise)."""
        variance = self.calibration.lead / self.calibration.decisiveness * voters**2
        return variance / (variance + self.sigma**2)

    def lead_against(self, times: float, voters: int, labels: int) -> int | None:
        """The lead in noisy votes that makes up for zero-shot finding each other label ``times`` times as likely.

        All labels weigh the same here.

        Args:
            times: ratio of each other label's zero-shot probability to this label's; above 1.
            voters: number of slots that vote.
            labels: number of labels; the others have equal votes.

        Returns:
            At most ``voters``; None where that is not enough.
        """
        alike = replace(self, calibration=replace(self.calibration, weights=()))
        zero_shot = np.full(labels, times)
        zero_shot[0] = 1.0

        def ahead(lead: int) -> float:
            noisy = np.full(labels, (voters - lead) / labels)
            noisy[0] += lead
            likely = alike.log_probabilities(noisy, zero_shot, float(voters))
            return float(likely[0] - likely[1])

        lead = bisect.bisect_left(range(voters + 1), 0.0, key=ahead)
        return lead if lead <= voters else None


def _log_sum_exp(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Log-sum-exp along the last axis, of finite numbers; SciPy's takes five times as long for one answer."""
    largest = values.max(axis=-1, keepdims=True)
    return np.log(np.exp(values - largest).sum(axis=-1)) + largest[..., 0]


def expected_voters(total: float, sd: float, most: float) -> float:
    """The mean of n given ``total`` = n + Gaussian noise, for n uniform on [0, most]: that of a truncated Gaussian.

    Args:
        total: the sum of all labels' noisy votes.
        sd: standard deviation of the noise in it, above 0.
        most: number of slots asked.
    """
    total = min(max(total, -_FAR * sd), most + _FAR * sd)
    if total < 0:  # by symmetry; from here on the lower limit is at or below the mean
        return most - expected_voters(most - total, sd, most)
    low, high = -total / sd, (most - total) / sd
    below_low, below_high = special.log_ndtr([low, high])
    mass = below_high + math.log(-math.expm1(min(below_low - below_high, -np.finfo(float).tiny)))
    at_low, at_high = np.exp(-(np.array([low, high]) ** 2) / 2 - mass) / math.sqrt(2 * math.pi)
    return float(min(max(total + sd * (at_low - at_high), 0.0), most))
