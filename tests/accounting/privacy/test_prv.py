"""The PRV accountant, the paper's settings, and the reasons for what it leaves out of the library."""

import math

import numpy as np
import prv_accountant
import pytest
from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism, PureDPMechanism

from accounting.privacy.accountants import compare
from accounting.privacy.bounds import UnsupportedEventsError
from accounting.privacy.calibration import GAUSSIAN, Grant, calibrate
from accounting.privacy.events import Event, Sampling
from accounting.privacy.grid import discretise
from accounting.privacy.pld import Composition, PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian
from accounting.privacy.prv import MOST_DIFFERENT, PrvAccountant, _Sampled
from accounting.privacy.subsampling import amplify
from tests.accounting.privacy.contract import BLOCKS, UNITS, AccountantContract

AGNEWS = Sampling("units", 40 / 6920)


@pytest.mark.slow
class TestPrv(AccountantContract):
    name = "prv"
    events = (Event(Gaussian(1.5), UNITS, 50), Event(Gaussian(0.9), UNITS, 20))
    unsupported = (Event(BoundedRange(1.0), UNITS), Event(Gaussian(1.0), BLOCKS))
    tolerance = 0.01
    slack = 1.01


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "least", "most"), [(3.0, 0.965, 0.975), (1.0, 1.98, 2.03)])
def test_the_noise_multipliers_of_the_paper(epsilon, least, most):
    """40 of 6,920 exemplars, 10,000 answers, delta 1e-4."""
    (event,) = calibrate([Grant(GAUSSIAN, AGNEWS, 10_000)], epsilon, 1e-4, "prv")
    assert least <= event.mechanism.noise_multiplier <= most


@pytest.mark.slow
def test_several_kinds_of_answers():
    events = [Event(Gaussian(1.0), AGNEWS, 3000), Event(Gaussian(4.0), Sampling("units", 0.2), 100)]
    found = PrvAccountant().bounds(events, 1e-5)
    fine = PldAccountant(4).bounds(events, 1e-5).upper
    assert found.lower <= fine <= found.upper


def test_a_delta_out_of_its_reach_is_refused():
    with pytest.raises(UnsupportedEventsError):
        PrvAccountant().bounds([Event(Gaussian(1.0), AGNEWS)], 1e-10)


def test_more_different_releases_than_it_can_afford_are_left_to_the_others():
    """Each release has grids of its own, equal releases count as one, and the reason names the accountant to use."""
    different = [Event(Gaussian(10.0 + number), AGNEWS, 10) for number in range(MOST_DIFFERENT + 1)]
    assert PrvAccountant().unsupported(different[:-1]) is None
    assert PrvAccountant().unsupported([*different[:-1], *different[:-1]]) is None
    assert "use pld" in (PrvAccountant().unsupported(different) or "")
    with pytest.raises(UnsupportedEventsError):
        PrvAccountant().upper(different, 1e-5)
    assert set(compare(different, 1e-5)) == {"pld", "rdp"}


def test_the_librarys_own_refusals_become_ours():
    with pytest.raises(UnsupportedEventsError):
        PrvAccountant().bounds([Event(Gaussian(0.01), Sampling("units", 0.5), 1000)], 1e-9)


@pytest.mark.parametrize(("z", "q", "count"), [(0.5, 0.3, 5), (1.0, 0.05, 300), (3.0, 0.5, 50), (1.0, 0.9, 20)])
def test_the_remove_direction_dominates_for_gaussians(z, q, count):
    """The library knows only that direction; PLDs of both directions show that it is the worse one."""
    directions = amplify(Gaussian(z), Sampling("units", q))
    remove, add = (Composition([discretise(d, 1e-3, 1e-12)], [count]) for d in directions)
    for delta in (1e-2, 1e-5):
        assert add.epsilon(delta) <= remove.epsilon(delta)


def test_cells_weigh_as_much_as_in_the_library():
    edges = np.linspace(-3, 3, 1001)
    found, right = (
        of(0.03, 1.5).probability(edges[:-1], edges[1:]) for of in (_Sampled, PoissonSubsampledGaussianMechanism)
    )
    assert np.abs(found - right).max() < 1e-15
    assert right.max() > 1e-3
    with pytest.raises(ValueError, match="adjoin"):
        _Sampled(0.03, 1.5).probability(edges[:-2], edges[2:])


def test_why_its_pure_mechanism_is_not_used():
    """Its domain is too small: 100 answers at ε = 1 "upper" 72 at most, where 83.5 is exact."""
    accountant = prv_accountant.PRVAccountant(PureDPMechanism(1.0), 0.1, 1e-9, 100)
    _, _, upper = accountant.compute_epsilon(1e-6, [100])
    p = 1 / (1 + math.exp(-1.0))
    n = np.arange(101)
    log_masses = [math.lgamma(101) - math.lgamma(k + 1) - math.lgamma(101 - k) for k in n]
    masses = np.exp(np.array(log_masses) + n * math.log(p) + (100 - n) * math.log(1 - p))
    losses = 2.0 * n - 100

    def exact(epsilon):
        return np.sum(masses * np.maximum(0, -np.expm1(epsilon - losses)))

    assert upper == pytest.approx(72.1, abs=0.1)
    assert exact(83.5) > 1e-6
