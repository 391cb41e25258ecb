"""Lower bounds of ε: below exact values, close to them, and next to an independent library's optimistic ones."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from accounting.privacy import pairs
from accounting.privacy.composing import Composition
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pairs import certain_loss, lower_epsilon
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian, GaussianThreshold, ProposeTestRelease, PtrTest
from accounting.privacy.rdp import RdpAccountant
from tests.accounting.privacy.explicit import exact_gaussian_epsilon, worst_pairs

ALWAYS = Sampling("units", 1.0)


@given(z=st.floats(0.3, 20), count=st.integers(1, 100_000), log_delta=st.floats(-12, -1))
@settings(max_examples=8, deadline=None)
def test_many_gaussians_are_never_above_the_exact_value(z, count, log_delta):
    mu = math.sqrt(count) / z
    exact = exact_gaussian_epsilon(mu, 10**log_delta)
    found = lower_epsilon([Event(Gaussian(z), ALWAYS, count)], 10**log_delta)
    assert 0.99 * exact - 0.02 * mu <= found <= exact


@pytest.mark.parametrize(("width", "q", "count", "delta"), [(1.2, 0.04, 60, 1e-5), (0.2, 1.0, 40, 1e-6)])
def test_bounded_ranges_are_below_a_binomial_of_the_best_pair(width, q, count, delta):
    """Two outcomes: the number of likelier ones is binomial, and its ε can be read off."""
    k = np.arange(count + 1)
    best = 0.0
    for present, absent in zip(*worst_pairs(width, 398), strict=True):
        mixed = (1 - q) * absent + q * present
        for p, other in ((mixed, absent), (absent, mixed)):
            losses = k * math.log(p[0] / other[0]) + (count - k) * math.log(p[1] / other[1])
            masses = stats.binom.pmf(k, count, p[0])
            gap = lambda x, m=masses, at=losses: float(m @ np.maximum(-np.expm1(x - at), 0)) - delta  # noqa: E731
            if gap(0.0) > 0:
                best = max(best, optimize.brentq(gap, 0, 60))
    found = lower_epsilon([Event(BoundedRange(width), Sampling("units", q), count)], delta)
    assert 0.98 * best <= found <= best


@pytest.mark.parametrize("kind", ["units", "blocks"])
@pytest.mark.parametrize(
    ("mechanism", "tightness"),
    [
        (Gaussian(1.5), 0.99),
        (Gaussian(1.5, "votes"), 0.99),
        (Gaussian(1.5, "ball"), 0.99),
        (PtrTest(1.5, 1e-9), 0.99),
        (GaussianThreshold(Gaussian(1.5), 1e-9), 0.99),
        (BoundedRange(1.0), 0.82),
        (ProposeTestRelease(1.0, 1.5, 1e-9), 0.85),
    ],
    ids=str,
)
def test_what_pld_promises_is_hardly_more(mechanism, tightness, kind):
    event = Event(mechanism, Sampling(kind, 0.03), 200)
    upper = PldAccountant().upper([event], 1e-5)
    assert tightness * upper <= lower_epsilon([event], 1e-5) <= upper


@pytest.mark.parametrize("losing", [PtrTest(3.0, 1e-4), GaussianThreshold(Gaussian(3.0), 1e-4)], ids=str)
@pytest.mark.parametrize("epsilon", [lower_epsilon, PldAccountant().upper, RdpAccountant().upper])
def test_no_epsilon_makes_up_for_certain_losses(epsilon, losing):
    events = [Event(losing, Sampling("units", 0.1), 50), Event(Gaussian(9.0), Sampling("units", 0.1), 5)]
    lost = 1 - (1 - 1e-5) ** 50
    assert certain_loss(events) == pytest.approx(lost, rel=1e-9)
    assert epsilon(events, 0.99 * lost) == math.inf
    assert epsilon(events, 1.5 * lost) < 2
    assert PldAccountant().delta(events, 1000.0) == pytest.approx(lost, rel=1e-4)


def test_hardly_any_noise_at_all():
    assert lower_epsilon([Event(Gaussian(1e-3), Sampling("units", 0.5), 3)], 1e-5) > 1000


@pytest.mark.parametrize("kind", ["votes", "ball"])
def test_hardly_any_noise_by_blocks(kind):
    assert 50 < lower_epsilon([Event(Gaussian(1e-3, kind), Sampling("blocks", 0.5), 3)], 1e-5) < math.inf


def test_delta_must_be_a_probability():
    with pytest.raises(ValueError, match="delta"):
        lower_epsilon([Event(Gaussian(1.0), ALWAYS)], 0.0)


@pytest.mark.slow
def test_more_different_answers_take_coarser_grids(monkeypatch):
    """Each answer has a transform of its own, so what all transforms take together must be bounded."""
    steps = []

    class Noted(Composition):
        def __init__(self, plds, counts):
            steps.append(plds[0].step)
            super().__init__(plds, counts)

    monkeypatch.setattr(pairs, "Composition", Noted)
    found = {}
    for different in (pairs._FEW, 4 * pairs._FEW):
        spread = [Gaussian(9.0 + number / different) for number in range(different)]
        events = [Event(gaussian, Sampling("units", 0.02), 2000 // different) for gaussian in spread]
        found[different] = lower_epsilon(events, 1e-5) / PldAccountant().upper(events, 1e-5)
    few, many = steps[0], steps[-1]
    assert many == pytest.approx(4 * few, rel=0.1)
    assert 0.95 < found[4 * pairs._FEW] < found[pairs._FEW] <= 1
