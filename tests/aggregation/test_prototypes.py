import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from aggregation.noise import ONE, from_fixed_point
from aggregation.prototypes import Prototypes, PrototypeSums, shrunk
from tests.aggregation.contract import MechanismContract
from tests.aggregation.test_embedding_mean import EAST, NORTH, UNUSABLE, squared
from tests.aggregation.test_noise import NO_NOISE
from tests.laws import ALPHA

L, D = 2, 2
SUMS = PrototypeSums(1.0, L, D)
NO_UNITS = [[], [(L, EAST), (-1, EAST)], *([(0, vector)] for vector in UNUSABLE.values())]
AROUND = [EAST, NORTH, -EAST, -NORTH, np.array([0.6, 0.8])]


def moved(before: list, after: list, sums: PrototypeSums = SUMS) -> int:
    return squared((sums.sum(after) - sums.sum(before)).ravel())


texts = st.tuples(st.integers(-1, L), st.sampled_from(AROUND) | st.sampled_from([*UNUSABLE.values()]))
units = st.lists(texts, max_size=8)


def test_every_small_unit_moves_every_small_sum_by_at_most_one() -> None:
    """All units of up to three texts, beside all units of one."""
    kinds = [*itertools.product(range(L), AROUND)]
    every = [unit for size in range(4) for unit in itertools.combinations_with_replacement(kinds, size)]
    for other, unit in itertools.product([(), *([kind] for kind in kinds)], every):
        assert moved([other], [other, unit]) <= ONE**2


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, (6, 40), elements=st.floats(-1, 1)).filter(lambda a: (np.linalg.norm(a, axis=1) > 0.1).all()))
def test_a_unit_of_many_labels_in_many_dimensions_moves_a_sum_by_at_most_one(vectors: np.ndarray) -> None:
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert moved([], [list(enumerate(vectors))], PrototypeSums(1.0, 6, 40)) <= ONE**2


class TestPrototypeSums(MechanismContract):
    mechanism = SUMS
    wrong = [{"noise_multiplier": z} for z in NO_NOISE]
    contributions = units
    usable = [[(0, EAST)], [(1, EAST), (0, NORTH)]]
    unusable = NO_UNITS
    squared = {"removed": ONE**2}
    worst = [([], [unit]) for unit in ([(0, EAST)], [(0, EAST)] * 1000, [(0, EAST), (1, NORTH)])]

    def statistic(self, contributions):
        return self.mechanism.sum(contributions)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions)

    def is_public(self, released):
        return released.shape == (L, D) and np.isfinite(released).all()


def test_what_a_unit_contributes() -> None:
    """A unit contributes the sums of its texts at each label; all labels together have a norm of at most 1."""
    half = math.sqrt(0.5)
    for unit, matrix in [
        ([(0, EAST)], [[1, 0], [0, 0]]),
        ([(0, EAST), (0, NORTH)], [[half, half], [0, 0]]),
        ([(0, EAST), (1, NORTH)], [[half, 0], [0, half]]),
        ([(0, EAST), (0, -EAST)], [[0, 0], [0, 0]]),
        ([(2, EAST), (-1, EAST), (1, EAST)], [[0, 0], [1, 0]]),
    ]:
        assert from_fixed_point(SUMS.sum([unit])) == pytest.approx(np.array(matrix), abs=1e-9)


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_invalid_embedding_is_passed_over(name: str) -> None:
    assert (SUMS.sum([[(0, UNUSABLE[name]), (1, EAST)]]) == SUMS.sum([[(1, EAST)]])).all()


def test_sums_do_not_exceed_what_integers_hold() -> None:
    """A coordinate stops at its largest value, and one more unit still moves the sum by at most 1."""
    limit = 2**62

    class Full(PrototypeSums):
        def _contribution(self, unit):
            return {0: np.array([limit if unit == "many" else ONE])}

    mechanism = Full(1.0, 1, 1)
    assert mechanism.sum(["many"])[0, 0] == mechanism.sum(["many", "one"])[0, 0] == limit
    assert mechanism.release(["many"])[0, 0] == pytest.approx(limit / ONE, abs=10)


def test_the_noise_is_gaussian_on_every_coordinate() -> None:
    mechanism = PrototypeSums(3.0, 10, 100)
    noise = (mechanism.release([[(3, np.eye(100)[7])]]) - np.eye(1000)[307].reshape(10, 100)).ravel()
    assert stats.kstest(noise / 3.0, "norm").pvalue > ALPHA


@pytest.mark.parametrize(("sums", "sigma"), [([[3.0, 1.0]], 0.5), ([[0.1, -4.0]], 2.0), ([[0.0, 0.0]], 1.0)])
def test_a_prototype_points_along_the_mean_of_the_posterior(sums: list, sigma: float) -> None:
    """By brute force: prior times likelihood on a grid of the plane."""
    noisy, sentence = np.array(sums), np.array([[0.6, 0.8]])
    axis = np.linspace(-15, 15, 601)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    prior = stats.multivariate_normal(sigma * math.sqrt(2) * sentence[0], sigma**2 * np.eye(2)).pdf(grid)
    likelihood = stats.multivariate_normal(noisy[0], sigma**2 * np.eye(2)).pdf(grid)
    mean = (grid * (prior * likelihood)[..., None]).sum(axis=(0, 1))
    assert shrunk(noisy, sentence, sigma)[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def test_probabilities_are_a_softmax_of_cosines() -> None:
    found = Prototypes(np.eye(2), 0.5).probabilities(np.array([0.6, 0.8]))
    odds = math.exp((0.8 - 0.6) / 0.5)
    assert found == pytest.approx([1 / (1 + odds), odds / (1 + odds)])
