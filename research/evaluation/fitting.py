"""The parameters that make labelled rows likeliest: the posterior's, for a plan's ``calibration:``, or prototypes'
``temperature:``.

The plan's answers depend on what is found here. So the rows must be public: their votes, and the sums that prototypes
are made of, are used without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from aggregation.posterior import LabelPosterior, PosteriorParameters, expected_voters

_DRAWS = 4
"""Number of draws of noise for each row."""
_DOUBT = (0.5, 0.5, 0.7, 0.5)
"""Standard deviations of ln prior, ln decisiveness, ln lead and echo around the defaults, before any rows."""
_BOUNDS = [(math.log(0.05), math.log(10)), (math.log(0.01), math.log(1000)), (math.log(0.001), 0.0), (0.0, 2.0)]
"""Bounds of them in a plan."""
_DOUBT_WEIGHT, _BOUNDS_WEIGHT = 0.7, (math.log(0.01), math.log(100))
"""The same of the logarithm of each label's weight."""
_DOUBT_TEMPERATURE, _BOUNDS_TEMPERATURE = 1.5, (math.log(0.001), math.log(10))
"""The same of the logarithm of prototypes' temperature."""


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


def fit(rows: Labelled, sigma: float, slots: int, default: PosteriorParameters) -> PosteriorParameters:
    """Maximum a posteriori, at the plan's noise.

    Parameters are Gaussian around the default beforehand, so few rows move them little and many decide.

    Args:
        rows: public rows.
        sigma: standard deviation of the noise on each label's votes, in votes.
        slots: number of slots asked.
        default: calibration to expect before the rows.
    """
    labels = rows.votes.shape[1]
    # Public rows: a seed, so that the same rows give the same fit.
    noisy = rows.votes + sigma * np.random.default_rng(0).standard_normal((_DRAWS, *rows.votes.shape))
    sd = sigma * math.sqrt(labels)
    voters = np.vectorize(lambda total: expected_voters(total, sd, slots))(noisy.sum(axis=-1, keepdims=True))
    weights = default.weights or (1.0,) * labels
    centre = np.array([*np.log([default.prior, default.decisiveness, default.lead]), default.echo, *np.log(weights)])
    doubt = np.array([*_DOUBT, *[_DOUBT_WEIGHT] * labels])

    def model(point: np.ndarray) -> LabelPosterior:
        prior, decisiveness, lead, *weights = np.exp(np.delete(point, 3)).tolist()
        return LabelPosterior(
            sigma, slots, PosteriorParameters(prior, decisiveness, lead, float(point[3]), tuple(weights))
        )

    @lru_cache(maxsize=4)  # dear, and the same while only the other parameters are changed
    def evidence(decisiveness: float, lead: float) -> np.ndarray:
        of = replace(default, decisiveness=decisiveness, lead=lead)
        return LabelPosterior(sigma, slots, of).evidence(noisy, voters)

    def surprise(point: np.ndarray) -> float:
        tried = model(point)
        shares = evidence(tried.calibration.decisiveness, tried.calibration.lead)
        believed = special.log_softmax(tried.log_prior(rows.zero_shot, voters) + shares, axis=-1)
        right = np.take_along_axis(
            believed, np.broadcast_to(rows.truth[:, None], (_DRAWS, len(rows.truth), 1)), axis=-1
        )
        return float((((point - centre) / doubt) ** 2).sum() / 2 / len(rows.truth) - right.mean())

    bounds = [*_BOUNDS, *[_BOUNDS_WEIGHT] * labels]
    return model(optimize.minimize(surprise, centre, method="L-BFGS-B", bounds=bounds).x).calibration


def fit_temperature(truth: np.ndarray, logits: np.ndarray, default: float) -> float:
    """Maximum a posteriori of a release's temperature, whose logarithm is Gaussian around the default's beforehand.

    Args:
        truth: index of the right label of each row, int (rows,).
        logits: scores of each row with each label at temperature 1, float (draws of noise, rows, labels).
        default: temperature to expect before the rows.
    """
    own = np.broadcast_to(truth[:, None], (len(logits), len(truth), 1))

    def surprise(log_temperature: float) -> float:
        believed = special.log_softmax(logits / math.exp(log_temperature), axis=-1)
        doubt = ((log_temperature - math.log(default)) / _DOUBT_TEMPERATURE) ** 2 / 2 / len(truth)
        return float(doubt - np.take_along_axis(believed, own, axis=-1).mean())

    return math.exp(optimize.minimize_scalar(surprise, bounds=_BOUNDS_TEMPERATURE, method="bounded").x)
