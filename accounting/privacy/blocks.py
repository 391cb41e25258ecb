"""Gaussian noise on votes or embeddings under sampling by blocks: the worst pairs, which are exact.

A unit's block is drawn with the unit in it, or without, or not at all. With noise of deviation σ, all else fixed and
shifted away, an answer is ``A = N(0, σ² I)`` if the block is not drawn, ``B = N(b, σ² I)`` if it is drawn with the unit
and ``B' = N(b', σ² I)`` if drawn without, where b and b' are what the slot contributes. So the neighbours are
``P = (1-q) A + q B`` and ``P' = (1-q) A + q B'``. Of all contributions that are allowed, two are the worst at every
loss and in both orders (Theorem 24 in ``docs/privacy/sampling.md``):

- Votes (no negative coordinates, a norm of at most 1, sensitivity √2): orthogonal unit vectors. In their two
  coordinates the noise is independent. With ``N = N(0, σ²)`` and ``M = (1-q) N(0, σ²) + q N(1, σ²)``, P is the product
  of M and N, and P' that of N and M. So one answer costs what two answers of ``units`` cost, with noise σ on a sum
  of sensitivity 1: one where the unit is removed, and one where it is added.
- A ball of radius R (sensitivity 2R): b' = -b of norm R. The ratio of P and P' grows with the coordinate along b, so
  the divergence is attained beyond a threshold, in closed form.
"""

import math

import numpy as np
from scipy import special

from accounting.privacy.events import Sampling
from accounting.privacy.lattice import LATTICE
from accounting.privacy.profiles import Array, Gaussian, SymmetricProfile, density, mills
from accounting.privacy.subsampling import Direction, amplify

Factors = tuple[tuple[Direction, ...], ...]
"""Pairs whose product dominates an answer, each in the directions in which it can leak."""


def sampled(profile: SymmetricProfile, sampling: Sampling) -> Factors:
    """The pairs that one sampled answer is composed of.

    For ``units``, and for ``blocks`` where nothing better is known, one pair: that of
    :func:`accounting.privacy.subsampling.amplify`.
    """
    q = sampling.probability
    if isinstance(profile, Gaussian) and sampling.kind == "blocks" and q < 1:
        if profile.contributions == "votes":
            removed, added = amplify(Gaussian(math.sqrt(2) * profile.noise_multiplier), Sampling("units", q))
            return ((removed,), (added,))
        if profile.contributions == "ball":
            return ((opposite(profile.noise_multiplier, q),),)
    return (amplify(profile, sampling),)


def opposite(noise_multiplier: float, q: float) -> Direction:
    """``(1-q) N(0, 1) + q N(w, 1)`` against ``(1-q) N(0, 1) + q N(-w, 1)``, where w is half of ``1/noise_multiplier``.

    The ratio's logarithm at t is ``x`` where ``y = e^(wt)`` solves ``k y - e^x k/y = (e^x - 1)(1 - q)``, with
    ``k = q e^(-w²/2)``. Call that t the threshold. The divergence is
    ``q Φ(w-t) - e^x q Φ(-w-t) - (e^x - 1)(1-q) Φ(-t)``. By the equation the last term is a difference of two, so the
    divergence is a sum of two positive terms, in each of which Mills' ratios are subtracted.
    """
    w = 1 / (2 * LATTICE * noise_multiplier)
    log_k = math.log(q) - w * w / 2

    def upper(x: Array) -> Array:
        with np.errstate(divide="ignore"):
            log_half = np.log(np.expm1(np.minimum(x, 700.0))) + math.log1p(-q) - math.log(2) - log_k
        threshold = np.logaddexp(log_half, np.logaddexp(2 * log_half, x) / 2) / w  # at least 0
        at, near, far = mills(threshold), threshold - w, threshold + w
        tail = density(near) * (mills(np.maximum(near, 0.0)) - at)
        bulk = special.ndtr(-near) - density(near) * at
        beyond = np.exp(x - far * far / 2) / math.sqrt(2 * math.pi) * (at - mills(far))
        return np.asarray(np.clip(q * (np.where(near >= 0, tail, bulk) + beyond), 0.0, 1.0))

    return Direction(upper, upper, 0.0, 0.0)
