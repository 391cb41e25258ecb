"""Every profile against brute-force divergences of explicit mechanisms."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from accounting.privacy.profiles import BoundedRange, Gaussian, GaussianThreshold, ProposeTestRelease, PtrTest
from accounting.privacy.token_ensemble import TokenEnsembleProfile
from tests.accounting.privacy.explicit import LOSSES, hockey_stick, worst_pairs


def softmax(scores):
    return special.softmax(scores, axis=-1)


PROFILES = [
    Gaussian(0.3),
    Gaussian(1.0),
    Gaussian(20.0),
    BoundedRange(0.5),
    BoundedRange(4.0),
    PtrTest(1.869, 1e-3),
    PtrTest(0.4, 0.2),
    GaussianThreshold(Gaussian(1.5), 1e-3),
    GaussianThreshold(Gaussian(0.4), 0.2),
    ProposeTestRelease(0.9, 1.869, 1e-3),
    ProposeTestRelease(3.0, 0.5, 1e-6),
    ProposeTestRelease(0.05, 30.0, 0.0),
]


class TestEveryProfile:
    @pytest.mark.parametrize("profile", PROFILES, ids=str)
    def test_it_is_symmetric_convex_and_falls_from_one_to_the_certain_loss(self, profile):
        h = profile.delta(LOSSES)
        np.testing.assert_allclose(profile.delta(-LOSSES), 1 - np.exp(-LOSSES) + np.exp(-LOSSES) * h, atol=1e-13)
        assert np.all(np.diff(h) <= 1e-15)
        slopes = np.diff(h) / np.diff(np.exp(LOSSES))
        assert np.all(np.diff(slopes) >= -1e-12)
        assert np.all(h >= np.maximum(profile.certain_loss, 1 - np.exp(LOSSES)) - 1e-15)
        assert profile.delta(80.0) == pytest.approx(profile.certain_loss, abs=1e-15)

    @pytest.mark.parametrize("profile", PROFILES, ids=str)
    def test_numbers_and_arrays_agree(self, profile):
        assert profile.delta(0.7) == profile.delta(np.array([[0.1, 0.7]]))[0, 1]
        assert np.ndim(profile.delta(0.7)) == 0

    @pytest.mark.parametrize(
        ("kind", "wrong"),
        [
            (Gaussian, [(0.0,), (math.inf,)]),
            (BoundedRange, [(-1.0,)]),
            (PtrTest, [(0.0, 0.1), (1.0, 1.0), (1.0, -0.1)]),
            (GaussianThreshold, [(Gaussian(1.0), 1.0), (Gaussian(1.0), -0.1), (Gaussian(1.0), math.nan)]),
            (ProposeTestRelease, [(math.nan, 1.0, 0.1), (1.0, 1.0, 2.0)]),
            (TokenEnsembleProfile, [(0.0, 10), (0.1, 0), (0.1, 321), (math.inf, 3), (0.1, True)]),
        ],
    )
    def test_parameters_out_of_range_are_refused(self, kind, wrong):
        for parameters in wrong:
            with pytest.raises(ValueError, match="must be"):
                kind(*parameters)


class TestGaussian:
    @given(z=st.floats(0.1, 50), x=st.floats(0, 40))
    @settings(max_examples=200, deadline=None)
    def test_small_values_have_a_small_relative_error(self, z, x):
        # h = ∫ φ(near + u) (1 - e^(-u/z)) du over u > 0, all terms positive; the factor φ(near) is taken out.
        near = x * z - 0.5 / z
        top = 40 / (1 + max(near, 0)) - min(near, 0)
        edges = np.linspace(0, top, 60)
        nodes, weights = np.polynomial.legendre.leggauss(20)
        u = (edges[:-1, None] + (nodes + 1) / 2 * np.diff(edges)[:, None]).ravel()
        w = (weights / 2 * np.diff(edges)[:, None]).ravel()
        if near > 0:
            expected = -near * near / 2 + math.log(np.sum(w * np.exp(-near * u - u * u / 2) * -np.expm1(-u / z)))
        else:
            expected = math.log(np.sum(w * np.exp(-((near + u) ** 2) / 2) * -np.expm1(-u / z)))
        expected -= math.log(math.sqrt(2 * math.pi))
        found = Gaussian(z).delta(x)
        if expected > -690:
            assert math.log(found) == pytest.approx(expected, abs=1e-9)
        else:
            assert 0 <= found < 1e-290

    @pytest.mark.parametrize("z", [0.5, 1.0, 3.0])
    def test_it_is_what_fine_histograms_of_two_gaussians_converge_to(self, z):
        edges = np.linspace(-9, 9 + 1 / z, 20001)
        p, q = np.diff(stats.norm.cdf(edges - 1 / z)), np.diff(stats.norm.cdf(edges))
        brute = hockey_stick(p, q)
        h = Gaussian(z).delta(LOSSES)
        assert np.all(brute <= h + 1e-12)
        np.testing.assert_allclose(brute, h, atol=1e-6)


class TestBoundedRange:
    @pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
    def test_the_exponential_mechanism_on_every_small_utility_table(self, epsilon):
        tables = np.array(list(itertools.product(range(3), repeat=3)))
        moves = np.array(list(itertools.product(range(-2, 3), repeat=3)))
        before = tables[:, None, :].repeat(len(moves), axis=1)
        after = before + moves
        brute = hockey_stick(softmax(epsilon * before / 4), softmax(epsilon * after / 4)).max(axis=(0, 1))
        assert np.all(brute <= BoundedRange(epsilon).delta(LOSSES) + 1e-12)
        # Gumbel noise of scale 2/ε instead of 4/ε, as in the paper's released code, is not ε-bounded-range.
        broken = hockey_stick(softmax(epsilon * before / 2), softmax(epsilon * after / 2)).max(axis=(0, 1))
        assert np.any(broken > BoundedRange(epsilon).delta(LOSSES) + 0.01)

    @pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
    def test_it_is_the_envelope_of_the_worst_pairs(self, epsilon):
        p, q = worst_pairs(epsilon, 3000)
        losses = np.linspace(-epsilon, epsilon, 41)
        brute = hockey_stick(p, q, losses)
        h = BoundedRange(epsilon).delta(losses)
        assert np.all(brute <= h + 1e-13)
        np.testing.assert_allclose(brute.max(axis=0), h, atol=1e-6)
        # Each pair is an exponential mechanism: many outcomes that lose utility, some that gain it.
        assert np.all(np.log(p / q).max(-1) - np.log(p / q).min(-1) <= epsilon + 1e-9)

    def test_beyond_its_range_there_is_nothing(self):
        assert BoundedRange(1.0).delta(1.0) == 0
        assert BoundedRange(1.0).delta(-1.5) == pytest.approx(1 - math.exp(-1.5))


def counted(slots, sigma, threshold, bins=14):
    """Probabilities of everything that leaves: of each sentence that others count it is a bin above the threshold, or
    nothing; of each that one slot alone counts, that it leaves or not.

    Args:
        slots: number of slots of each sentence; 0 for one that does not exist in this world.
    """
    edges = np.append(threshold + np.linspace(0, 4 * sigma, bins), np.inf)
    law = np.ones(1)
    for count in slots:
        above = np.diff(stats.norm.cdf((edges - count) / sigma)) if count else np.zeros(bins)
        law = np.multiply.outer(law, np.append(above, 1 - above.sum())).ravel()
    return law


def worlds_of(m):
    """Numbers of slots in both worlds, for each way in which one slot's m sentences and its neighbour's can differ.

    Those of either are shared with other slots, or its own.
    """
    for shared, own, others_shared, others_own in itertools.product(range(m + 1), repeat=4):
        if shared + own <= m and others_shared + others_own <= m:
            one = [3] * shared + [2] * others_shared + [1] * own + [0] * others_own
            other = [2] * shared + [3] * others_shared + [0] * own + [1] * others_own
            yield one, other


class TestGaussianThreshold:
    losses = np.append(LOSSES, 30.0)

    def worst(self, m, sigma, threshold):
        """The largest divergence of all neighbours, at each loss."""
        return np.max(
            [
                hockey_stick(counted(one, sigma, threshold), counted(other, sigma, threshold), self.losses)
                for one, other in worlds_of(m)
            ],
            axis=0,
        )

    @pytest.mark.parametrize("m", [1, 2])
    @pytest.mark.parametrize("delta0", [0.15, 0.01])
    def test_every_neighbour_of_a_small_case_stays_below_it(self, m, delta0):
        z = 0.6
        sigma, p = z * math.sqrt(2 * m), 1 - (1 - delta0) ** (1 / m)
        threshold = 1 + sigma * stats.norm.isf(p)
        h = GaussianThreshold(Gaussian(z), delta0).delta(self.losses)
        brute = self.worst(m, sigma, threshold)
        assert np.all(brute <= h + 1e-12)
        assert brute[-1] == pytest.approx(delta0, rel=1e-9)  # what a slot alone contributes
        for broken in (
            (sigma / math.sqrt(2), 1 + sigma / math.sqrt(2) * stats.norm.isf(p)),  # a sensitivity of √m
            (sigma, threshold - 1),  # that a count is 1 and not 0 is forgotten
            (sigma, 1 + sigma * stats.norm.isf(delta0)) if m > 1 else (sigma, threshold - 0.1),  # δ₀ without m
        ):
            assert np.any(self.worst(m, *broken) > h + 1e-4)

    def test_it_is_the_pair_that_gives_itself_away_with_probability_delta0(self):
        """Cells of two Gaussians, and an outcome of each side's own."""
        delta0, edges = 0.03, np.append(np.insert(np.linspace(-8, 9, 8001), 0, -np.inf), np.inf)
        p, q = ((1 - delta0) * np.diff(stats.norm.cdf(edges - shift)) for shift in (1.0, 0.0))
        brute = hockey_stick(np.append(p, [delta0, 0]), np.append(q, [0, delta0]))
        np.testing.assert_allclose(brute, GaussianThreshold(Gaussian(1.0), delta0).delta(LOSSES), atol=1e-6)

    def test_without_a_certain_loss_it_is_the_gaussian(self):
        np.testing.assert_array_equal(GaussianThreshold(Gaussian(1.3), 0.0).delta(LOSSES), Gaussian(1.3).delta(LOSSES))


def pass_probability(gap, sigma, delta0):
    return stats.norm.sf(stats.norm.isf(delta0) - (np.maximum(gap, 2.0) - 2) / (2 * sigma))


class TestPtrTest:
    """The explicit test: outcomes are "release this neighbour's set", "release the other's", "fallback"."""

    @staticmethod
    def outcomes(gap, other, sigma, delta0):
        mine, its = pass_probability(gap, sigma, delta0), pass_probability(other, sigma, delta0)
        if max(gap, other) > 2:  # the sets agree
            return np.array([mine, 0, 1 - mine]), np.array([its, 0, 1 - its])
        return np.array([mine, 0, 1 - mine]), np.array([0, its, 1 - its])

    @pytest.mark.parametrize(("sigma", "delta0"), [(1.869, 1e-3), (0.7, 0.05), (5.0, 0.3)])
    def test_gaps_on_both_sides_of_two(self, sigma, delta0):
        gaps = np.arange(0, 30, 0.5)
        pairs = [self.outcomes(g, o, sigma, delta0) for g in gaps for o in np.arange(max(0, g - 2), g + 2.1, 0.5)]
        p, q = (np.array(side) for side in zip(*pairs, strict=True))
        brute = hockey_stick(p, q).max(axis=0)
        h = PtrTest(sigma, delta0).delta(LOSSES)
        assert np.all(brute <= h + 1e-12)
        np.testing.assert_allclose(brute, h, atol=0.02)  # reached, up to the steps between gaps

    def test_leaving_out_delta0_would_be_wrong(self):
        p, q = self.outcomes(2, 1, 5.0, 0.3)
        assert hockey_stick(p, q, np.array([1.0]))[0] > Gaussian(5.0).delta(1.0) + 0.2

    def test_where_delta0_takes_over(self):
        test = PtrTest(1.0, 1e-3)
        assert Gaussian(1.0).delta(test.crossover) == pytest.approx(1e-3)
        assert PtrTest(1.0, 0.9).crossover == 0
        assert PtrTest(1.0, 0.0).crossover == math.inf


class TestProposeTestRelease:
    @pytest.mark.parametrize(
        "mechanism",
        [
            ProposeTestRelease(0.9, 1.869, 1e-3),
            ProposeTestRelease(2.0, 0.6, 1e-9),
            ProposeTestRelease(0.4, 3.0, 0.3),
            ProposeTestRelease(1.0, 2.0, 0.0),
        ],
        ids=str,
    )
    def test_it_is_the_composition_of_its_two_steps(self, mechanism):
        """By quadrature over the bounded range's loss, and by the library's connect-the-dots and convolution."""
        width, test = mechanism.epsilon, mechanism.test
        losses = np.linspace(0, width + 6, 23)
        nodes, weights = np.polynomial.legendre.leggauss(40)
        for x in losses:
            cuts = np.unique(np.clip([-width, x - test.crossover, x, x + test.crossover, width], -width, width))
            edges = np.unique(np.concatenate([np.linspace(a, b, 12) for a, b in itertools.pairwise(cuts)]))
            u = edges[:-1, None] + (nodes + 1) / 2 * np.diff(edges)[:, None]
            w = weights / 2 * np.diff(edges)[:, None]
            expected = np.sum(w * np.exp(u / 2) * test.delta(x - u)) / (4 * math.sinh(width / 2))
            assert mechanism.delta(x) == pytest.approx(expected, rel=1e-9, abs=1e-300)

        step, points = 2e-3, 8000
        grid = step * np.arange(-points, points + 1)

        def on_grid(profile):
            return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -points, points, profile.delta(grid))

        composed = on_grid(BoundedRange(width)).compose(on_grid(test))
        for x in losses:
            assert composed.get_delta_for_epsilon(float(x)) == pytest.approx(mechanism.delta(x), rel=2e-3, abs=1e-9)

    @pytest.mark.slow
    def test_the_whole_mechanism_on_small_histograms(self):
        """Choose k, test its gap, release the top k words as a set, or fall back and hide k."""
        epsilon, sigma, delta0, words, ks = 1.5, 0.8, 0.1, 4, (1, 2, 3)
        profile = ProposeTestRelease(epsilon, sigma, delta0)
        sets = [frozenset(s) for k in ks for s in itertools.combinations(range(words), k)]

        def answer(counts):
            ranked = sorted(range(words), key=lambda word: -counts[word])
            gaps = np.array([counts[ranked[k - 1]] - counts[ranked[k]] for k in ks], dtype=float)
            chosen, passed = softmax(epsilon * gaps / 4), pass_probability(gaps, sigma, delta0)
            released = np.zeros(len(sets) + 1)
            for k, weight in zip(ks, chosen * passed, strict=True):
                released[sets.index(frozenset(ranked[:k]))] += weight
            released[-1] = 1 - released.sum()
            return released

        rng = np.random.default_rng(5)
        p, q = [], []
        for _ in range(3000):
            others, one, other = rng.integers(0, 8, words), rng.integers(0, 2, words), rng.integers(0, 2, words)
            p.append(answer(others + one))
            q.append(answer(others + other))
        brute = hockey_stick(np.array(p), np.array(q)).max(axis=0)
        assert np.all(brute <= profile.delta(LOSSES) + 1e-12)
        # Without the choice of k, or without delta0, the claim would be false.
        assert np.any(brute > PtrTest(sigma, delta0).delta(LOSSES) + 1e-3)
        assert np.any(brute > ProposeTestRelease(epsilon, sigma, 1e-9).delta(LOSSES) + 1e-3)

    def test_losses_far_beyond_doubles(self):
        assert ProposeTestRelease(0.9, 1.0, 1e-5).delta(5000.0) == pytest.approx(1e-5)
        assert np.isfinite(ProposeTestRelease(0.9, 0.02, 1e-5).delta(np.linspace(0, 700, 50))).all()
