"""Amplification by sampling against explicit populations, samples and mechanisms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from accounting.privacy.events import Sampling
from accounting.privacy.profiles import BoundedRange, Gaussian, GaussianThreshold, ProposeTestRelease, PtrTest
from accounting.privacy.subsampling import amplify
from tests.accounting.privacy.explicit import LOSSES, hockey_stick, worst_pairs


class TestUnits:
    @pytest.mark.parametrize("q", [0.01, 0.3, 0.9, 1.0])
    @pytest.mark.parametrize("epsilon", [0.5, 3.0])
    def test_both_directions_are_the_envelope_of_sampled_worst_pairs(self, q, epsilon):
        present, absent = worst_pairs(epsilon, 4000)
        mixed = (1 - q) * absent + q * present
        directions = amplify(BoundedRange(epsilon), Sampling("units", q))
        for direction, pair in zip(directions, ((mixed, absent), (absent, mixed)), strict=False):
            brute, found = hockey_stick(*pair).max(0), direction.delta(LOSSES)
            assert np.all(brute <= found + 1e-12)
            np.testing.assert_allclose(brute, found, atol=1e-6)

    def test_sampled_gaussians_on_a_fine_histogram(self):
        q, z = 0.2, 0.8
        edges = np.linspace(-9, 11, 40001)
        absent = np.diff(stats.norm.cdf(edges))
        present = np.diff(stats.norm.cdf(edges - 1 / z))
        mixed = (1 - q) * absent + q * present
        remove, add = amplify(Gaussian(z), Sampling("units", q))
        np.testing.assert_allclose(hockey_stick(mixed, absent), remove.delta(LOSSES), atol=1e-6)
        np.testing.assert_allclose(hockey_stick(absent, mixed), add.delta(LOSSES), atol=1e-6)
        # No loss of the add direction exceeds -ln(1 - q).
        assert add.delta(-math.log1p(-q) + 1e-9) == 0
        assert add.delta(-math.log1p(-q) - 1e-3) > 0

    def test_a_whole_population(self):
        """Three units and a fourth; each drawn with probability q and put in one of two slots, which vote."""
        q, epsilon, slots = 0.4, 1.5, 2
        votes = {(): None, (0,): 0, (1,): 1, (2,): 2}  # a slot's vote: that of its first unit by priority, or abstain

        def answer(units):
            total = np.zeros(3)
            for present in itertools.product([0, 1], repeat=len(units)):
                drawn = [u for u, p in zip(units, present, strict=True) if p]
                weight = q ** len(drawn) * (1 - q) ** (len(units) - len(drawn))
                for places in itertools.product(range(slots), repeat=len(drawn)):
                    counts = np.zeros(3)
                    for slot in range(slots):
                        here = sorted(u for u, place in zip(drawn, places, strict=True) if place == slot)
                        if here:
                            counts[votes[(here[0] % 3,)]] += 1
                    total += weight / slots ** len(drawn) * special.softmax(epsilon * counts / 2)
            return total

        for newcomer in range(-3, 3):
            p, base = answer([0, 1, 2, newcomer]), answer([0, 1, 2])
            # One vote of two labels moves by one each way: utilities move by 1, so ε u / 2 has range ε.
            remove, add = amplify(BoundedRange(epsilon), Sampling("units", q))
            assert np.all(hockey_stick(p, base) <= remove.delta(LOSSES) + 1e-12)
            assert np.all(hockey_stick(base, p) <= add.delta(LOSSES) + 1e-12)


class TestBlocks:
    @given(seed=st.integers(0, 2**32 - 1), q=st.floats(0.01, 1.0), epsilon=st.floats(0.1, 4.0))
    @settings(max_examples=60, deadline=None)
    def test_three_neighbours_that_share_the_absent_branch(self, seed, q, epsilon):
        rng = np.random.default_rng(seed)
        # Without the block, with it, with it and one more unit in it: all pairwise neighbours.
        utilities = rng.integers(0, 3, size=(200, 3, 4))
        absent, block, larger = np.moveaxis(special.softmax(epsilon * utilities / 4, axis=-1), 1, 0)
        p, other = (1 - q) * absent + q * block, (1 - q) * absent + q * larger
        (pair,) = amplify(BoundedRange(epsilon), Sampling("blocks", q))
        assert np.all(hockey_stick(p, other).max(axis=0) <= pair.delta(LOSSES) + 1e-12)

    def test_the_bound_is_nearly_reached_where_the_absent_branch_looks_like_one_neighbour(self):
        q, epsilon = 0.3, 1.0
        block, larger = worst_pairs(epsilon, 2000)
        (pair,) = amplify(BoundedRange(epsilon), Sampling("blocks", q))
        mixed = (1 - q) * larger + q * block
        np.testing.assert_allclose(hockey_stick(mixed, larger).max(0)[30:], pair.delta(LOSSES)[30:], atol=1e-6)
        assert np.all(hockey_stick(larger, mixed).max(0) <= pair.delta(LOSSES) + 1e-12)


@pytest.mark.parametrize("kind", ["units", "blocks"])
@pytest.mark.parametrize("q", [1e-6, 0.03, 0.999, 1.0])
@pytest.mark.parametrize(
    "mechanism",
    [
        Gaussian(0.7),
        BoundedRange(2.0),
        PtrTest(1.0, 1e-3),
        GaussianThreshold(Gaussian(1.0), 1e-3),
        ProposeTestRelease(1.0, 1.0, 1e-3),
    ],
    ids=str,
)
class TestEveryProfile:
    def test_directions_are_convex_and_mirror_each_other(self, kind, q, mechanism):
        directions = amplify(mechanism, Sampling(kind, q))
        for direction in directions:
            h = direction.delta(LOSSES)
            slopes = np.diff(h) / np.diff(np.exp(LOSSES))
            assert np.all(np.diff(slopes) >= -1e-11)
            back = direction.swapped().delta(-LOSSES)
            np.testing.assert_allclose(h, 1 - np.exp(LOSSES) + np.exp(LOSSES) * back, atol=1e-13)
            assert direction.delta(100.0) == pytest.approx(direction.certain_loss, abs=1e-15)
        assert directions[0].certain_loss == pytest.approx(q * mechanism.certain_loss)

    def test_sampling_never_costs_and_always_sampling_changes_nothing(self, kind, q, mechanism):
        losses = np.linspace(0, 3, 20)
        for direction in amplify(mechanism, Sampling(kind, q)):
            assert np.all(direction.delta(losses) <= mechanism.delta(losses) * (1 + 1e-12) + 1e-300)
            if q == 1:
                np.testing.assert_allclose(direction.delta(losses), mechanism.delta(losses), rtol=1e-12)


def test_small_values_have_a_small_relative_error():
    """The formula of the add direction cancels; here it does not."""
    q, z = 0.1, 1.0
    (_, add) = amplify(Gaussian(z), Sampling("units", q))
    x = -math.log1p(-q) - 1e-9
    # Near the end of its range the divergence is (1 - (1-q) e^x) h(y) with both factors small.
    y = -math.log((math.exp(-x) - 1 + q) / q)
    expected = (math.exp(-x) - 1 + q) * math.exp(x) * Gaussian(z).delta(y)
    assert 0 < add.delta(x) < 1e-60
    assert math.log(add.delta(x)) == pytest.approx(math.log(expected), rel=1e-6)
