"""Mechanisms written out as laws on small domains, and how far apart these are."""

import math

import numpy as np
from scipy import optimize

from accounting.privacy.profiles import Gaussian

LOSSES = np.linspace(-3, 3, 61)


def hockey_stick(p, q, losses=LOSSES):
    """Divergences at every loss between pairs of laws on a small domain: (..., n) twice -> (..., losses)."""
    excess = p[..., None, :] - np.exp(losses)[:, None] * q[..., None, :]
    return np.maximum(excess, 0).sum(axis=-1)


def worst_pairs(width, points):
    """Worst pairs of ε-bounded-range mechanisms, for ``points`` values of t between 0 and ε.

    Returns the laws with the unit and without it, each of shape (points, 2).
    """
    t = np.linspace(0, width, points + 2)[1:-1]
    one = np.expm1(t - width) / math.expm1(-width)
    return np.stack([one, 1 - one], -1), np.stack([one * np.exp(-t), 1 - one * np.exp(-t)], -1)


def exact_gaussian_epsilon(mu, delta):
    """The ε of a Gaussian of noise multiplier 1/mu, 0 at the least; n of them at mu' compose to one at mu' sqrt(n)."""
    profile = Gaussian(1 / mu)
    if profile.delta(0.0) <= delta:
        return 0.0
    gap = lambda x: math.log(max(profile.delta(x), 1e-320) / delta)  # noqa: E731
    return optimize.brentq(gap, 0, mu * mu + 40 * mu, xtol=1e-12, rtol=1e-14)
