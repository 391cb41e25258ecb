import math

import numpy as np
import pytest
from scipy import stats

from aggregation.noise import ONE, add_gaussian_noise, from_fixed_point, to_fixed_point
from tests.laws import ALPHA


def test_fixed_point_rounds_towards_zero_and_back() -> None:
    values = np.array([0.1, -0.1, 1.0, 0.0, 0.3])
    fixed = to_fixed_point(values)
    assert (np.abs(from_fixed_point(fixed)) <= np.abs(values)).all()
    assert np.abs(from_fixed_point(fixed) - values).max() < 1 / ONE


@pytest.mark.parametrize("sigma", [0.05, 1.0, 17.3])
def test_noise_is_gaussian_with_the_stated_deviation(sigma: float) -> None:
    """Kolmogorov-Smirnov, and the variance within 6.5 standard errors: false alarms below 1e-9 each."""
    n = 20_000
    noise = from_fixed_point(add_gaussian_noise(np.full(n, 5 * ONE), sigma)) - 5
    assert stats.kstest(noise / sigma, "norm").pvalue > ALPHA
    assert abs(noise.var() / sigma**2 - 1) < 6.5 * math.sqrt(2 / n)


def test_coordinates_and_calls_are_independent() -> None:
    draws = np.array([from_fixed_point(add_gaussian_noise(np.zeros(2, dtype=np.int64), 1.0)) for _ in range(4000)])
    correlation = np.corrcoef(draws.T)[0, 1]
    serial = np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1]
    assert max(abs(correlation), abs(serial)) < 6.2 / math.sqrt(len(draws))  # 6e-10 each


NO_NOISE = [0.0, -1.0, 0.001, math.inf, math.nan]


@pytest.mark.parametrize("wrong", NO_NOISE)
def test_invalid_noise_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="sigma"):
        add_gaussian_noise(np.zeros(2, dtype=np.int64), wrong)
