"""Gaussian noise on an integer lattice, drawn exactly.

Sums of contributions are held as integers (fixed point), so neither summation nor noise ever rounds: the sampler adds a
*discrete* Gaussian (Canonne, Kamath, Steinke 2020, arXiv 2004.00010) by OpenDP's exact arithmetic and its cryptographic
generator. With a lattice step of 2⁻⁴⁰ and a standard deviation of at least 0.01 the difference from the continuous
Gaussian is bounded (docs/privacy/numerics.md, Theorem 19), and every accountant counts it
(:mod:`accounting.privacy.lattice`).
"""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from opendp import domains, measurements, metrics
from opendp.mod import Measurement, enable_features

FRACTION_BITS = 40
"""Binary places of the fixed-point numbers."""
ONE = 1 << FRACTION_BITS
"""The number 1 in fixed point."""
SMALLEST_SIGMA = 0.01
"""Below this Theorem 19 gives no bound, and the noise would protect too little to be called private."""

enable_features("contrib")

FixedPoint = npt.NDArray[np.int64]


def check_sigma(sigma: float, name: str = "sigma") -> None:
    """Refuse noise that is too small, or not finite.

    Args:
        sigma: standard deviation in real units.
        name: name of the parameter in the error.

    Raises:
        ValueError: sigma is too small or not finite.
    """
    if not SMALLEST_SIGMA <= sigma < math.inf:
        raise ValueError(f"{name} must be a finite number of at least {SMALLEST_SIGMA}, not {sigma}")


def to_fixed_point(values: npt.NDArray[np.float64]) -> FixedPoint:
    """Round real numbers *towards zero* to the lattice, so that norms never grow."""
    return np.trunc(values * ONE).astype(np.int64)


def from_fixed_point(values: FixedPoint) -> npt.NDArray[np.float64]:
    """The real numbers of lattice points."""
    return values.astype(np.float64) / ONE


def add_gaussian_noise(values: FixedPoint, sigma: float) -> FixedPoint:
    """Add independent discrete Gaussian noise to each coordinate.

    Args:
        values: fixed-point sums, shape (d,).
        sigma: standard deviation in real units (not lattice steps), at least :data:`SMALLEST_SIGMA`.

    Returns:
        Noisy fixed-point sums, shape (d,).

    Raises:
        ValueError: sigma is too small or not finite.
    """
    check_sigma(sigma)
    return np.asarray(_measurement(sigma * ONE)(values.tolist()), dtype=np.int64)


@lru_cache(maxsize=256)
def _measurement(lattice_sigma: float) -> Measurement:
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T="f64")
    return measurements.make_gaussian(*space, scale=lattice_sigma)
