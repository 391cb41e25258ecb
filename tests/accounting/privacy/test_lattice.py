"""The two laws of Theorem 19, in 120 digits: discrete Gaussians, and rounded continuous ones of variance less 1/12."""

import math

import mpmath
import pytest

from accounting.privacy.lattice import LARGEST_RATIO, LATTICE, LATTICE_LOSS, MOST_COORDINATES
from aggregation.noise import ONE, SMALLEST_SIGMA

SMALLEST = SMALLEST_SIGMA * ONE


def log_ratio(n, s):
    """The logarithm of the ratio of the discrete Gaussian's mass at n to the rounded one's."""
    total = mpmath.sqrt(2 * mpmath.pi) * s * mpmath.jtheta(3, 0, mpmath.exp(-2 * mpmath.pi**2 * min(s, 100) ** 2))
    deviation = mpmath.sqrt(s * s - mpmath.mpf(1) / 12)
    near, far = (n - mpmath.mpf("0.5")) / deviation, (n + mpmath.mpf("0.5")) / deviation
    rounded = (mpmath.erfc(near / mpmath.sqrt(2)) - mpmath.erfc(far / mpmath.sqrt(2))) / 2
    return mpmath.log(mpmath.exp(-(n**2) / (2 * s * s)) / total / rounded)


@pytest.mark.parametrize("s", [300, 10_000, SMALLEST, 2 * SMALLEST])
def test_the_laws_differ_by_what_is_proved(s):
    with mpmath.workdps(120):
        s = mpmath.mpf(s)
        ratios = [abs(log_ratio(mpmath.floor(share * s), s)) for share in (0, 0.5, 1, 3, 10, 64)]
        assert max(ratios) <= (64**2 + 2) ** 2 / (150 * s**4)
        assert max(ratios) >= 64**4 / (3000 * s**4)  # so the bound is of the right order


def test_without_the_twelfth_they_would_differ_by_far_more():
    with mpmath.workdps(60):
        s, n = mpmath.mpf(10_000), mpmath.mpf(0)
        rounded = mpmath.erf(mpmath.mpf("0.5") / s / mpmath.sqrt(2))
        plain = mpmath.log(1 / (mpmath.sqrt(2 * mpmath.pi) * s) / rounded)
        assert abs(plain) > 1e6 * abs(log_ratio(n, s))


def test_the_constants_cover_what_is_proved():
    assert (64**2 + 2) ** 2 / (150 * SMALLEST**4) <= LARGEST_RATIO
    assert 2 * MOST_COORDINATES * LARGEST_RATIO <= LATTICE_LOSS
    assert LATTICE * (1 + 2.0**-51) < 1 - 1 / (12 * SMALLEST**2)  # the deviation is rounded twice
    assert MOST_COORDINATES * math.exp(-700) * math.exp(100) < 1e-12 * (1 - LATTICE)  # with far more than e^-2000
