"""The posterior's parameters that make labelled rows likeliest, for a plan's ``calibration:``.

The plan's answers depend on what is found here. So the rows must be public: their votes are used without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from aggregation.posterior import Calibration, LabelPosterior, expected_voters

_NOISE = (0.01, 0.04, 0.08, 0.15, 0.3)
"""σ as shares of the slots: one fit has to serve little noise and much."""
_DRAWS = 2
_DOUBT = np.array([0.5, 0.5, 0.7])
"""How far echo, ln decisiveness and ln lead are expected to be from the defaults, as standard deviations."""
_DOUBT_PRIOR = 0.5  # of ln prior
_BOUNDS = [(0.0, 2.0), (math.log(0.01), math.log(1000)), (math.log(0.001), 0.0)]
"""Of the same three: what a plan may say."""
_BOUNDS_PRIOR = (math.log(0.05), math.log(10))


@dataclass(frozen=True)
class Labelled:
    """Rows whose right labels are known.

    Attributes:
        truth: index of the right label, int (rows,).
        zero_shot: public label probabilities, float (rows, labels).
        votes: sums of votes without noise, float (rows, labels).
    """

    truth: np.ndarray
    zero_shot: np.ndarray
    votes: np.ndarray

    def only(self, rows: np.ndarray) -> Labelled:
        """Some of the rows, by index."""
        return Labelled(self.truth[rows], self.zero_shot[rows], self.votes[rows])


def fit(rows: Labelled, slots: int, default: Calibration) -> Calibration:
    """Maximum a posteriori: ``prior`` from zero-shot alone, then the rest over several amounts of noise.

    Parameters are Gaussian around the default beforehand, so few rows move them little and many decide.

    Args:
        rows: public.
        slots: how many are asked.
        default: what to believe before the rows.
    """
    prior = _prior(rows, slots, default)
    measured = [_Noisy.of(rows, share * slots, slots) for share in _NOISE]
    centre = np.array([default.echo, math.log(default.decisiveness), math.log(default.lead)])

    def surprise(point: np.ndarray) -> float:
        tried = Calibration(prior, math.exp(point[1]), math.exp(point[2]), float(point[0]))
        rowwise = np.mean([one.log_likelihood(tried, slots) for one in measured])
        return float(((point - centre) ** 2 / (2 * _DOUBT**2)).sum() / len(rows.truth) - rowwise)

    echo, decisiveness, lead = optimize.minimize(surprise, centre, method="L-BFGS-B", bounds=_BOUNDS).x
    return Calibration(prior, math.exp(decisiveness), math.exp(lead), float(echo))


def _prior(rows: Labelled, slots: int, default: Calibration) -> float:
    nothing, nobody = np.zeros_like(rows.zero_shot), np.zeros((len(rows.truth), 1))

    def surprise(log_prior: float) -> float:
        tried = Calibration(math.exp(log_prior), default.decisiveness, default.lead, default.echo)
        alone = LabelPosterior(1.0, slots, tried).log_probabilities(nothing, rows.zero_shot, nobody)
        doubt = (log_prior - math.log(default.prior)) ** 2 / (2 * _DOUBT_PRIOR**2)
        return float(doubt / len(rows.truth) - _of(alone, rows.truth).mean())

    return math.exp(optimize.minimize_scalar(surprise, bounds=_BOUNDS_PRIOR, method="bounded").x)


@dataclass(frozen=True)
class _Noisy:
    """The rows with noise; ``votes`` and ``voters`` have an axis for draws in front."""

    rows: Labelled
    sigma: float
    votes: np.ndarray
    voters: np.ndarray

    @classmethod
    def of(cls, rows: Labelled, sigma: float, slots: int) -> _Noisy:
        # Public rows: a seed, so that the same rows give the same fit.
        normal = np.random.default_rng(0).standard_normal((_DRAWS, *rows.votes.shape))
        votes = rows.votes + sigma * normal
        sd = sigma * math.sqrt(rows.votes.shape[1])
        voters = np.vectorize(lambda total: expected_voters(total, sd, slots))(votes.sum(axis=-1, keepdims=True))
        return cls(rows, sigma, votes, voters)

    def log_likelihood(self, tried: Calibration, slots: int) -> float:
        """Of the right labels, per row."""
        found = LabelPosterior(self.sigma, slots, tried).log_probabilities(self.votes, self.rows.zero_shot, self.voters)
        return float(_of(found, self.rows.truth).mean())


def _of(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Each row's entry of the right label."""
    return np.asarray(np.take_along_axis(found, np.broadcast_to(truth[:, None], (*found.shape[:-1], 1)), axis=-1))
