"""The RDP accountant against closed forms and brute force, and the figures of the paper's accounting."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import special, stats

from accounting.privacy import rdp
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease, PtrTest
from accounting.privacy.rdp import RdpAccountant
from tests.accounting.privacy.contract import AccountantContract
from tests.accounting.privacy.explicit import worst_pairs

ORDERS = np.array([1.3, 2.0, 5.0, 17.5, 80.0])
SAMSUM = 400 / 14732


def epsilon(event, delta):
    return RdpAccountant().upper([event], delta)


def renyi(p, q, order):
    return special.logsumexp(order * np.log(p) + (1 - order) * np.log(q), axis=-1) / (order - 1)


@pytest.mark.slow
class TestRdp(AccountantContract):
    name = "rdp"
    tolerance = 1e-3  # of its branch and bound
    slack = 1.15


class TestOneAnswer:
    """Rényi divergences of one answer against explicit mechanisms."""

    @pytest.mark.parametrize("q", [0.02, 0.4, 1.0])
    @pytest.mark.parametrize("width", [0.2, 2.0, 7.0])
    def test_bounded_range_is_the_worst_pair_in_either_direction(self, q, width):
        present, absent = worst_pairs(width, 20000)
        mixed = (1 - q) * absent + q * present
        found = rdp._bounded_range_rdp(width, math.inf, q, ORDERS, 1e-3)
        for order, value in zip(ORDERS, found, strict=True):
            brute = max(renyi(mixed, absent, order).max(), renyi(absent, mixed, order).max())
            assert brute <= value <= brute * 1.0012

    def test_the_exponential_mechanism_on_small_utility_tables(self):
        width, q = 1.0, 0.3
        tables = np.array(list(itertools.product(range(3), repeat=3)))
        moves = np.array(list(itertools.product(range(-2, 3), repeat=3)))
        absent = special.softmax(width * tables / 4, axis=-1)[:, None, :]
        present = special.softmax(width * (tables[:, None, :] + moves) / 4, axis=-1)
        mixed = (1 - q) * absent + q * present
        found = rdp._bounded_range_rdp(width, math.inf, q, ORDERS, 1e-3)
        for order, value in zip(ORDERS, found, strict=True):
            assert max(renyi(mixed, absent, order).max(), renyi(absent, mixed, order).max()) <= value

    @pytest.mark.parametrize("q", [0.05, 0.5])
    def test_followed_by_a_gaussian(self, q):
        width, z, order = 1.0, 1.3, 6.0
        edges = np.linspace(-12, 14, 6001)
        noise, moved = np.diff(stats.norm.cdf(edges)), np.diff(stats.norm.cdf(edges - 1 / z))
        keep = (noise > 1e-280) & (moved > 1e-280)
        brute = 0.0
        for present, absent in zip(*worst_pairs(width, 58), strict=True):
            present, absent = np.outer(present, moved)[:, keep].ravel(), np.outer(absent, noise)[:, keep].ravel()
            mixed = (1 - q) * absent + q * present
            brute = max(brute, renyi(mixed, absent, order), renyi(absent, mixed, order))
        (value,) = rdp._bounded_range_rdp(width, z, q, np.array([order]), 1e-3)
        assert brute <= value <= brute * 1.003

    def test_a_gaussian_that_is_always_sampled(self):
        np.testing.assert_allclose(rdp._gaussian_rdp(2.0, 1.0, ORDERS), ORDERS / 8)

    def test_a_sampled_gaussian_has_the_moments_of_its_mixture(self):
        q, z, order = 0.1, 0.8, 5
        k = np.arange(order + 1)
        moments = stats.binom.pmf(k, order, q) @ np.exp(k * (k - 1) / (2 * z * z))
        (found,) = rdp._gaussian_rdp(z, q, np.array([float(order)]))
        assert found == pytest.approx(math.log(moments) / (order - 1))

    @pytest.mark.parametrize("q", [0.1, 0.6])
    def test_blocks_bound_three_explicit_neighbours(self, q):
        rng = np.random.default_rng(11)
        utilities = rng.integers(0, 3, size=(2000, 3, 4))
        absent, block, larger = np.moveaxis(special.softmax(utilities / 4, axis=-1), 1, 0)
        found, _ = rdp._one_answer(Event(BoundedRange(1.0), Sampling("blocks", q)), 1e-15, ORDERS, 1e-3)
        for order, value in zip(ORDERS, found, strict=True):
            assert renyi((1 - q) * absent + q * block, (1 - q) * absent + q * larger, order).max() <= value


class TestComposition:
    def test_it_is_above_the_pld_of_gaussians(self):
        for z, kind in itertools.product((0.7, 1.0, 4.0), ("units", "blocks")):
            event = Event(Gaussian(z), Sampling(kind, 0.01), 3000)
            pld = PldAccountant().bounds([event], 1e-5).upper
            assert pld * 0.999 <= epsilon(event, 1e-5) <= pld * 1.3

    @pytest.mark.parametrize("contributions", ["any", "votes", "ball"])
    @pytest.mark.parametrize("count", [10, 100_000])
    def test_it_is_above_what_leaks_where_that_is_next_to_nothing(self, contributions, count):
        """Cutting a grid off takes as much from its mass as the losses of such answers add to a moment."""
        event = Event(Gaussian(50.0, contributions), Sampling("blocks", 1e-3), count)
        found = PldAccountant().bounds([event], 1e-4 / count)
        assert found.lower <= found.upper <= epsilon(event, 1e-4 / count)
        assert found.upper < 0.05

    def test_delta0_at_a_sampling_probability_of_one(self):
        always = Sampling("units", 1.0)
        found = epsilon(Event(ProposeTestRelease(0.5, 3.0, 1e-6), always, 5), 1e-4)
        split = RdpAccountant().bounds(
            [Event(BoundedRange(0.5), always, 5), Event(PtrTest(3.0, 1e-6), always, 5)], 1e-4
        )
        assert found == pytest.approx(split.upper, rel=2e-3)
        assert found >= PldAccountant().bounds([Event(ProposeTestRelease(0.5, 3.0, 1e-6), always, 5)], 1e-4).upper

    def test_so_little_noise_that_no_order_helps(self):
        event = Event(ProposeTestRelease(1.0, 1e-3, 0.0), Sampling("units", 0.5), 10)
        assert epsilon(event, 1e-5) == math.inf


class TestFiguresOfThePaper:
    """PRIVACY's last table: 100 answers of keyword_ptr with ε = 0.9, σ = 1.869, q = 400/14732 at δ = 5e-5."""

    answers, width, sigma, delta = 100, 0.9, 1.869, 5e-5
    orders = np.arange(2, 200)

    @classmethod
    def convert(cls, curve, delta):
        """As the paper's released code converts: the best integer order below 200."""
        a = cls.orders
        return np.min(
            cls.answers * np.array([curve(int(x)) for x in a]) + np.log(1 - 1 / a) - np.log(delta * a) / (a - 1)
        )

    @staticmethod
    def sampled(curve, order, q, factor):
        """Poisson sampling of a Rényi curve; ``factor`` is 3 in the bound for any mechanism, 1 where it is exact."""
        k = np.arange(2, order + 1)
        terms = stats.binom.logpmf(k, order, q) + np.array([(x - 1) * curve(int(x)) for x in k])
        rest = (order - 1) * math.log1p(-q) + math.log(order * q - q + 1)
        return special.logsumexp(np.append(terms + np.where(k > 2, math.log(factor), 0), rest)) / (order - 1)

    @classmethod
    def of_the_paper(cls, order):
        """Theorem 8 with αε²/2, and the test's Gaussian."""
        pure = np.log((np.sinh(order * cls.width) - np.sinh((order - 1) * cls.width)) / np.sinh(cls.width)) / (
            order - 1
        )
        return min(order * cls.width**2 / 2, pure) + order / (2 * cls.sigma**2)

    @classmethod
    def of_bounded_range(cls, order):
        return order * cls.width**2 / 8 + order / (2 * cls.sigma**2)

    def test_the_released_accounting(self):
        delta0 = 0.99 * self.delta / SAMSUM  # of which delta0 q is taken off delta, once
        q = SAMSUM * (1 - delta0) / (1 - SAMSUM * delta0)
        found = self.convert(lambda a: self.sampled(self.of_the_paper, a, q, 3), self.delta - delta0 * SAMSUM)
        assert found == pytest.approx(2.47, abs=0.005)
        # What it hides: the answers' delta0 alone are a hundred times the delta stated.
        assert self.answers * delta0 * SAMSUM == pytest.approx(99 * self.delta)

    def test_bounded_range_and_exact_sampling(self):
        found = self.convert(lambda a: self.sampled(self.of_bounded_range, a, SAMSUM, 1), self.delta / 2)
        assert found == pytest.approx(1.01, abs=0.006)

    def test_this_accountant_is_tighter_still(self):
        delta0 = self.delta / 2 / (self.answers * SAMSUM)
        event = Event(ProposeTestRelease(self.width, self.sigma, delta0), Sampling("units", SAMSUM), self.answers)
        assert epsilon(event, self.delta) == pytest.approx(0.955, abs=0.003)
        assert PldAccountant().bounds([event], self.delta).upper == pytest.approx(0.91, abs=0.005)

    def test_one_eighth_is_the_truth_of_bounded_ranges(self):
        """No exponential mechanism exceeds αε²/8, and the worst one comes close to it."""
        for width in (0.1, 0.9, 3.0):
            found = rdp._bounded_range_rdp(width, math.inf, 1.0, ORDERS, 1e-3)
            assert np.all(found <= ORDERS * width**2 / 8 * 1.0011)
        (small,) = rdp._bounded_range_rdp(0.1, math.inf, 1.0, np.array([2.0]), 1e-3)
        assert small == pytest.approx(2 * 0.1**2 / 8, rel=0.01)


def test_why_sensitivities_are_set_here():
    """dp_accounting's replace-one relation has the Rényi divergence of add-or-remove-one: its factor 2 is missing."""
    event = dp_event.GaussianDpEvent(1.0)
    relations = privacy_accountant.NeighboringRelation
    add = rdp_privacy_accountant.RdpAccountant(ORDERS, relations.ADD_OR_REMOVE_ONE).compose(event)
    replace = rdp_privacy_accountant.RdpAccountant(ORDERS, relations.REPLACE_ONE).compose(event)
    assert replace.get_epsilon(1e-5) == add.get_epsilon(1e-5)
    # A vote for another label moves the counts by sqrt 2: noise of deviation sigma is a multiplier sigma / sqrt 2.
    assert epsilon(Event(Gaussian(2 / math.sqrt(2)), Sampling("units", 1.0)), 1e-5) > 1.3 * epsilon(
        Event(Gaussian(2.0), Sampling("units", 1.0)), 1e-5
    )
