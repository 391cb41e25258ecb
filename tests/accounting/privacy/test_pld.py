"""The PLD accountant against closed forms, dp_accounting's own PLDs, and itself on other grids."""

import gc
import itertools
import math
import subprocess
import sys
import weakref

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from accounting.privacy.composing import Composition, decaying_sums
from accounting.privacy.events import Event, Sampling
from accounting.privacy.grid import discretise, second_moment
from accounting.privacy.lattice import LATTICE
from accounting.privacy.pairs import lower_epsilon
from accounting.privacy.pld import PldAccountant, SharedPldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian, GaussianThreshold, ProposeTestRelease, PtrTest
from accounting.privacy.subsampling import amplify
from tests.accounting.privacy.contract import DELTA, AccountantContract
from tests.accounting.privacy.explicit import exact_gaussian_epsilon

AGNEWS = Sampling("units", 40 / 6920)
ALWAYS = Sampling("units", 1.0)


@pytest.mark.slow
class TestPld(AccountantContract):
    name = "pld"
    tolerance = 1e-3  # the grid moves with the events; every grid is an upper bound
    slack = 1.001

    def test_delta_falls_with_epsilon_and_agrees_with_bounds(self):
        for event in self.events:
            upper = self.upper([event])
            deltas = [self.accountant.delta([event], upper * share) for share in (0.5, 1.0, 1.5)]
            assert deltas[0] > deltas[1] >= deltas[2] >= 0
            assert deltas[1] <= DELTA * 1.5
        assert self.accountant.delta([], 0.5) == 0.0
        for epsilon in (-0.1, math.nan):
            with pytest.raises(ValueError, match="epsilon"):
                self.accountant.delta(self.events, epsilon)


class TestReferenceNumbers:
    def test_the_subsampled_gaussian_of_the_paper(self):
        found = PldAccountant().upper([Event(Gaussian(1.0), AGNEWS, 10_000)], 1e-4)
        assert found == pytest.approx(2.826, abs=0.002)

    @pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-30, 1e-100])
    def test_many_gaussians_are_never_below_the_exact_value(self, delta):
        exact = exact_gaussian_epsilon(100.0, delta)
        found = PldAccountant().upper([Event(Gaussian(1.0), ALWAYS, 10_000)], delta)
        assert exact <= found <= exact * 1.0005

    def test_the_librarys_self_composition_is_below_the_exact_value_where_ours_is_not(self):
        step, points = 0.01, 900
        grid = step * np.arange(-points, points + 1)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            step, -points, points, Gaussian(1 / LATTICE).delta(grid)
        )
        theirs = pmf.self_compose(10_000).get_epsilon_for_delta(1e-12)
        assert theirs < exact_gaussian_epsilon(100.0, 1e-12)

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-3), (1.0, 1e-6), (5.0, 1e-12), (20.0, 1e-4)])
    def test_one_answer_of_a_bounded_range_is_its_profile(self, epsilon, delta):
        exact = 2 * math.log(math.exp(epsilon / 2) - math.sqrt(delta * math.expm1(epsilon)))
        found = PldAccountant().upper([Event(BoundedRange(epsilon), ALWAYS)], delta)
        assert exact <= found <= exact * 1.001

    def test_pure_privacy_adds_up_at_most(self):
        found = PldAccountant().upper([Event(BoundedRange(0.5), ALWAYS, 3)], 1e-15)
        assert 1.49 < found <= 1.5 * 1.002

    @pytest.mark.parametrize("z", [3.0, 5.0])
    def test_blocks_cost_about_a_tenth_more(self, z):
        units = PldAccountant().upper([Event(Gaussian(z), AGNEWS, 10_000)], 1e-4)
        blocks = PldAccountant().upper([Event(Gaussian(z), Sampling("blocks", 40 / 6920), 10_000)], 1e-4)
        assert 1.05 < blocks / units < 1.15


class TestAgainstTheLibrary:
    @pytest.mark.slow
    @pytest.mark.parametrize(("z", "q", "count"), [(1.0, 0.01, 64), (0.6, 0.2, 16), (4.0, 0.05, 128)])
    def test_poisson_sampled_gaussians(self, z, q, count):
        """The lower bound lies between the library's two bounds, and the upper bound equals the library's."""

        def theirs(pessimistic):
            grid = {"value_discretization_interval": 1e-4, "use_connect_dots": pessimistic}
            return privacy_loss_distribution.from_gaussian_mechanism(
                z, pessimistic_estimate=pessimistic, sampling_prob=q, **grid
            ).self_compose(count)

        library, event = (theirs(False), theirs(True)), Event(Gaussian(z), Sampling("units", q), count)
        for delta in (1e-3, 1e-6):
            optimistic, pessimistic = (each.get_epsilon_for_delta(delta) for each in library)
            found = PldAccountant().bounds([event], delta)
            assert 0.99 * optimistic - 1e-3 <= found.lower <= pessimistic
            assert found.upper == pytest.approx(pessimistic, rel=1e-3, abs=5e-4)

    @pytest.mark.parametrize(
        "event",
        [
            Event(Gaussian(1.0), Sampling("units", 0.1)),
            Event(BoundedRange(2.0), Sampling("units", 0.3)),
            Event(PtrTest(1.0, 1e-4), Sampling("blocks", 0.2)),
            Event(GaussianThreshold(Gaussian(1.0), 1e-4), Sampling("units", 0.2)),
            Event(ProposeTestRelease(1.0, 2.0, 1e-4), Sampling("units", 0.2)),
        ],
        ids=str,
    )
    def test_n_compositions_equal_n_calls_of_its_compose(self, event):
        """Once by a power of the tilted spectrum, once by untilted convolutions, one answer at a time."""
        count = 12
        for direction in amplify(event.mechanism, event.sampling):
            pld = discretise(direction, 2e-3, 1e-14)
            dense = pld_pmf.DensePLDPmf(pld.step, pld.low, pld.probs, pld.infinity, True)
            composed = dense
            for _ in range(count - 1):
                composed = composed.compose(dense)
            power = Composition([pld], [count])
            product = Composition([pld] * count, [1] * count)
            for delta in (0.3, 1e-2, 5e-4, 1e-9):
                expected = composed.get_epsilon_for_delta(delta)
                if math.isinf(expected):
                    assert math.isinf(power.epsilon(delta))
                    continue
                assert power.epsilon(delta) == pytest.approx(expected, rel=1e-5, abs=1e-5)
                assert product.epsilon(delta) == pytest.approx(power.epsilon(delta), rel=1e-9, abs=1e-9)

    def test_sums_that_decay_are_scipys_filter(self):
        terms = np.random.default_rng(3).exponential(size=1000)
        for step in (1e-6, 1e-3, 0.7):
            expected = lfilter([1.0], [1.0, -math.exp(-step)], terms)
            np.testing.assert_allclose(decaying_sums(terms, step), expected, rtol=1e-13)

    def test_the_grid_is_the_librarys_connect_the_dots(self):
        (remove, _) = amplify(Gaussian(1.0), Sampling("units", 0.2))
        pld = discretise(remove, 1e-2, 1e-12)
        grid = pld.losses
        theirs = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            1e-2, pld.low, pld.low + pld.probs.size - 1, remove.delta(grid)
        ).to_dense_pmf()
        np.testing.assert_allclose(pld.probs, theirs._probs, atol=1e-13)
        assert pld.low * pld.step < math.log(1 - 0.2) <= (pld.low + 1) * pld.step


class TestEveryGridIsAnUpperBound:
    @pytest.mark.slow
    @given(
        z=st.floats(0.3, 20),
        count=st.integers(1, 100_000),
        log_delta=st.floats(-40, -1),
        refinement=st.sampled_from([0.02, 0.3, 1.0]),
    )
    @settings(max_examples=60, deadline=None)
    def test_gaussians(self, z, count, log_delta, refinement):
        delta, mu = 10**log_delta, math.sqrt(count) / z
        found = PldAccountant(refinement).upper([Event(Gaussian(z), ALWAYS, count)], delta)
        exact = exact_gaussian_epsilon(mu, delta)
        assert found >= exact
        if refinement == 1:
            assert found <= exact * 1.001 + 1e-6

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "events",
        [
            [Event(Gaussian(1.0), AGNEWS, 10_000)],
            [Event(BoundedRange(3.0), Sampling("units", 0.01), 500), Event(Gaussian(2.0), AGNEWS, 3000)],
            [Event(ProposeTestRelease(0.9, 1.869, 1e-7), Sampling("blocks", 0.03), 100)],
            [Event(Gaussian(0.3), Sampling("units", 1e-4), 10)],
        ],
        ids=["gaussian", "two", "ptr", "rare"],
    )
    def test_finer_grids_only_lower_it_and_by_little(self, events):
        coarse, usual, fine = (PldAccountant(r).upper(events, 1e-5) for r in (0.1, 1.0, 4.0))
        assert fine <= usual * (1 + 1e-9)
        assert usual <= coarse * (1 + 1e-9)
        assert usual <= fine * 1.001

    def test_a_dominating_grid_has_larger_divergences_everywhere(self):
        (remove, add) = amplify(ProposeTestRelease(1.0, 1.0, 1e-3), Sampling("units", 0.3))
        for direction, step in itertools.product((remove, add), (0.3, 0.05)):
            pld = discretise(direction, step, 1e-6)
            assert pld.probs.sum() + pld.infinity == pytest.approx(1.0, abs=1e-12)
            for epsilon in np.linspace(-2, 3, 41):
                above = pld.losses > epsilon
                found = pld.infinity + np.sum(pld.probs[above] * -np.expm1(epsilon - pld.losses[above]))
                assert found >= direction.delta(epsilon) - 1e-13


class TestDelta:
    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 10.0, 30.0])
    def test_gaussians(self, epsilon):
        found = PldAccountant().delta([Event(Gaussian(20.0), ALWAYS, 400)], epsilon)
        exact = Gaussian(1.0).delta(epsilon)
        assert exact <= found <= exact * 1.1

    def test_it_never_exceeds_one(self):
        assert PldAccountant().delta([Event(Gaussian(0.1), ALWAYS, 100)], 0.0) == pytest.approx(1.0)


UNITS, BLOCKS = Sampling("units", 0.03), Sampling("blocks", 0.03)
PLAN = [
    Event(Gaussian(1.5), UNITS, 50),
    Event(BoundedRange(0.3), UNITS, 40),
    Event(ProposeTestRelease(0.5, 3.0, 1e-8), UNITS, 30),
    Event(GaussianThreshold(Gaussian(4.0), 1e-8), BLOCKS, 30),
]


@pytest.mark.slow
class TestShared:
    @pytest.mark.parametrize(
        ("plan", "others"),
        [
            (PLAN, PLAN),
            (PLAN, [*PLAN[1:], Event(Gaussian(1.7), Sampling("units", 0.05), 60)]),
            (PLAN, [*PLAN, Event(Gaussian(9.0), ALWAYS, 1)]),
            (PLAN, [*PLAN, *PLAN[:2]]),
            (PLAN, PLAN[:1]),
            (PLAN, [Event(Gaussian(1.5, "votes"), BLOCKS, 5000)]),
            (PLAN[3:], [Event(Gaussian(4.0), UNITS, 300)]),  # made for one direction, asked about two
            ([Event(Gaussian(1.0), ALWAYS)], [Event(Gaussian(1.05), ALWAYS), Event(Gaussian(9.0), UNITS, 9)]),
        ],
    )
    def test_a_plan_costs_what_it_costs_on_a_grid_of_its_own(self, plan, others):
        alone, shared = PldAccountant(), SharedPldAccountant(plan, PldAccountant().upper(plan, DELTA), DELTA)
        for _ in range(2):  # computed, and kept
            assert shared.upper(others, DELTA) == pytest.approx(alone.upper(others, DELTA), rel=2e-3)
        assert shared.upper(others, DELTA) >= max(PldAccountant(3).upper(others, DELTA) * (1 - 1e-9), 0)
        assert shared.upper(others, DELTA) >= lower_epsilon(others, DELTA)

    def test_what_its_windows_do_not_show_is_bounded_as_always(self):
        shared = SharedPldAccountant(PLAN, 2.0, DELTA)
        far = [Event(Gaussian(0.2), ALWAYS, 20)]
        assert shared.upper(far, DELTA) == PldAccountant().upper(far, DELTA)
        lost = [*PLAN, Event(PtrTest(3.0, 1e-3), UNITS, 9)]
        assert shared.upper(lost, DELTA) == math.inf

    def test_what_it_keeps_goes_with_it(self):
        """Some hundred megabytes, which in a serving process would wait for a full collection."""
        gc.disable()
        try:
            shared = SharedPldAccountant(PLAN, 2.0, DELTA)
            shared.upper(PLAN, DELTA)
            gone = weakref.ref(shared)
            del shared
            assert gone() is None
        finally:
            gc.enable()

    def test_it_bounds_at_one_delta(self):
        with pytest.raises(ValueError, match="1e-05, not 1e-06"):
            SharedPldAccountant(PLAN, 2.0, DELTA).upper(PLAN, 1e-6)


def test_too_many_points_for_a_fine_grid_are_put_on_a_coarser_one():
    """Losses of 1e2 and a deviation of 1e-3 do not fit on one fine grid; the bound grows, and still holds."""
    events = [Event(Gaussian(0.05), Sampling("units", 1e-6), 3)]
    assert 0 <= PldAccountant().upper(events, 1e-7) < 400


def test_pld_imports_no_other_accountant():
    """Serving processes bound what was spent by PLD; the libraries take most of a second and 100 MiB."""
    script = """
import sys
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import Gaussian
assert PldAccountant().upper([Event(Gaussian(1.0), Sampling("units", 0.1), 9)], 1e-5) > 0
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "scipy.special" in imported
    assert not imported & {"dp_accounting", "prv_accountant", "scipy.stats", "scipy.signal", "scipy.optimize"}


def test_the_second_moment_is_that_of_the_loss():
    (gaussian,) = amplify(Gaussian(2.0), ALWAYS)
    assert second_moment(gaussian) == pytest.approx(1 / 4 + (1 / 8) ** 2, rel=1e-4)
    (bounded,) = amplify(BoundedRange(1.0), ALWAYS)
    u = np.linspace(-1, 1, 20001)
    expected = np.trapezoid(u * u * np.exp(u / 2) / (4 * math.sinh(0.5)), u)
    assert second_moment(bounded) == pytest.approx(expected, rel=1e-4)
