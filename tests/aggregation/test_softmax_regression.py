import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from aggregation import softmax_regression
from aggregation.embeddings import Unit
from aggregation.noise import ONE, from_fixed_point
from aggregation.softmax_regression import CLIP, STEPS, SoftmaxRegression
from tests.aggregation.contract import MechanismContract
from tests.aggregation.test_embedding_mean import EAST, NORTH, UNUSABLE
from tests.aggregation.test_noise import NO_NOISE
from tests.laws import ALPHA

L, D = 2, 2
REGRESSION = SoftmaxRegression(1.0, L, D, 100)
START = np.zeros((L, D))
AROUND = [EAST, NORTH, -EAST, -NORTH, np.array([0.6, 0.8])]
NO_UNITS = [[], [(L, EAST), (-1, EAST)], *([(0, vector)] for vector in UNUSABLE.values())]
SQUARED = Fraction(CLIP) ** 2 * ONE**2

texts = st.tuples(st.integers(-1, L), st.sampled_from(AROUND) | st.sampled_from([*UNUSABLE.values()]))
weights = st.lists(st.floats(-2000, 2000), min_size=L * D, max_size=L * D).map(lambda w: np.reshape(w, (L, D)))


def gradient(units: Sequence[Unit], at: np.ndarray = START, mechanism: SoftmaxRegression = REGRESSION) -> np.ndarray:
    return mechanism.gradient(mechanism.pack(units), at)


def dense(units: Sequence[Unit], at: np.ndarray) -> np.ndarray:
    """The clipped sum in plain floating point, unit by unit."""
    total = np.zeros(at.shape)
    for unit in units:
        own = np.zeros(at.shape)
        for label, vector in unit:
            own += np.outer(np.eye(len(at))[label] - special.softmax(at @ vector), vector)
        total += own * min(1, CLIP / max(np.linalg.norm(own), 1e-300))
    return total


def embeddings(number: int, dimension: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(number, dimension)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_a_step_sums_what_plain_arithmetic_sums() -> None:
    """Units of one to seven texts, beyond a page of each kind; embeddings keep 8 bits."""
    vectors, draws = embeddings(12_000, 48, 1), np.random.default_rng(2)
    sizes = [*draws.integers(1, 8, 3_000).tolist(), 5_000]
    ends = [end for end in itertools.accumulate(sizes) if end <= len(vectors)]
    units = [[(int(draws.integers(3)), vector) for vector in vectors[a:b]] for a, b in itertools.pairwise([0, *ends])]
    mechanism = SoftmaxRegression(1.0, 3, 48, 3_000)
    at = draws.normal(size=(3, 48)) * 5
    packed = mechanism.pack(units)
    rounded = [[(label, np.rint(v * 2.0**packed.bits) / 2.0**packed.bits) for label, v in unit] for unit in units]
    assert np.abs(packed.vectors).max() < 127  # so that none is cut
    assert from_fixed_point(mechanism.gradient(packed, at)) == pytest.approx(dense(rounded, at), abs=1e-4)
    assert from_fixed_point(mechanism.gradient(packed, at)) == pytest.approx(dense(units, at), abs=0.35)


def test_every_small_unit_moves_every_small_sum_by_at_most_the_clip() -> None:
    """All units of up to three texts, beside all of one, at weights that know nothing, something and too much."""
    kinds = [*itertools.product(range(L), AROUND)]
    every = [unit for size in range(4) for unit in itertools.combinations_with_replacement(kinds, size)]
    for at in (START, np.array([[9.0, -3], [-9, 3]]), np.array([[-900.0, 5], [900, 0]])):
        alone = [gradient([[kind]], at) for kind in kinds]
        for unit in every:
            own = gradient([unit], at)
            assert sum(int(one) ** 2 for one in own.ravel()) <= SQUARED
            for kind, other in zip(kinds, alone, strict=True):
                assert (gradient([[kind], unit], at) == other + own).all()


class TestSoftmaxRegression(MechanismContract):
    mechanism = REGRESSION
    wrong = [*({"noise_multiplier": z / 4} for z in NO_NOISE), {"public_size": 0}, {"public_size": -1}]
    contributions = st.lists(texts, max_size=8)
    usable = [[(0, EAST)], [(1, EAST), (0, NORTH)]]
    unusable = NO_UNITS
    squared = {"removed": SQUARED}
    short = 1e-4  # a thousand texts are each rounded towards zero
    worst = [([], [unit]) for unit in ([(0, EAST)], [(0, EAST)] * 1000, [(0, EAST), (1, NORTH)])]

    def statistic(self, contributions):
        return self.mechanism.gradient(self.mechanism.pack(contributions), START)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions, START)

    def is_public(self, released):
        return released.shape == (L, D) and np.isfinite(released).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(texts, max_size=5), max_size=5), st.lists(texts, max_size=40), weights)
def test_another_unit_changes_no_bit_of_what_the_rest_contribute(others: list, unit: list, at: np.ndarray) -> None:
    own = gradient([unit], at)
    assert sum(int(one) ** 2 for one in own.ravel()) <= SQUARED
    for place in (0, len(others)):
        assert (gradient([*others[:place], unit, *others[place:]], at) == gradient(others, at) + own).all()


def test_a_unit_s_part_has_the_same_bits_at_every_place_of_a_page() -> None:
    """With real sizes: 384 dimensions, more labels than a vector register holds, and companions that come and go."""
    vectors = embeddings(300, 384, 3)
    mechanism = SoftmaxRegression(1.0, 13, 384, 300)
    at = np.random.default_rng(4).normal(size=(13, 384)) * 8
    units = [[(number % 13, vector)] for number, vector in enumerate(vectors)]
    one = units.pop()
    own = mechanism.gradient(mechanism.pack([one]), at)
    for before in (*range(18), 31, 32, 33, 63, 64, 127, 250, 299):
        some = units[:before]
        rest = mechanism.gradient(mechanism.pack(some), at)
        assert (mechanism.gradient(mechanism.pack([*some, one]), at) == rest + own).all()
        assert (mechanism.gradient(mechanism.pack([one, *some]), at) == rest + own).all()


@pytest.mark.parametrize("dimension", [1, 2, 384, 768, 4096, 20_000])
def test_embeddings_of_any_dimension_fit_eight_bits(dimension: int) -> None:
    vector = np.zeros(dimension)
    vector[0] = 1.0
    mechanism = SoftmaxRegression(1.0, 2, dimension, 10)
    moved = from_fixed_point(mechanism.gradient(mechanism.pack([[(0, vector)]]), np.zeros((2, dimension))))
    assert 0 < np.linalg.norm(moved) <= CLIP
    assert moved[0, 0] == -moved[1, 0]


def test_a_unit_counts_with_a_public_number_of_texts_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_regression, "MOST_TEXTS", 3)
    unit = [(0, EAST), (2, NORTH), (0, NORTH), (1, EAST), (1, NORTH), (1, NORTH)]
    assert (gradient([unit]) == gradient([unit[:4]])).all()


def test_a_step_s_noise_is_gaussian_on_every_coordinate() -> None:
    mechanism = SoftmaxRegression(3.0, 10, 100, 50)
    sums = mechanism.gradient(mechanism.pack([[(3, np.eye(100)[7])]]), np.zeros((10, 100)))
    noise = from_fixed_point(mechanism.with_noise(sums, mechanism.sigma) - sums).ravel()
    assert stats.kstest(noise / (3.0 * math.sqrt(STEPS) * CLIP), "norm").pvalue > ALPHA


def test_a_release_is_the_described_descent() -> None:
    """The same steps in plain floating point, with the noise that was drawn."""
    drawn: list[np.ndarray] = []

    class Recorded(SoftmaxRegression):
        def with_noise(self, sums, sigma):
            assert sigma == self.sigma == pytest.approx(0.7 * math.sqrt(40) * 0.5)
            noisy = super().with_noise(sums, sigma)
            drawn.append(from_fixed_point(noisy - sums))
            return noisy

    mechanism = Recorded(0.7, 3, 16, 200)
    vectors = np.rint(embeddings(200, 16, 5) * 64) / 64  # they are exact in 8 bits
    vectors = vectors[np.abs(np.linalg.norm(vectors, axis=1) - 1) < 0.01]
    units = [[(number % 3, vector)] for number, vector in enumerate(vectors)]
    start = np.eye(3, 16) * 4
    released = mechanism.release(units, start)
    at, velocity, u = start.copy(), np.zeros_like(start), 200 / 0.7
    assert len(drawn) == STEPS
    for noise in drawn:
        velocity = 0.8 * velocity + min(0.01 * u * u / (u + 10), 20) / 200 * (dense(units, at) + noise)
        at = at + velocity
    assert released == pytest.approx(at, abs=1e-3)


@pytest.mark.parametrize(("z", "length"), [(0.01, 20.0), (1.0, 5.0 * 500 / 510), (50.0, 0.1 * 10 / 20)])
def test_a_step_s_length_is_public_and_capped(z: float, length: float) -> None:
    assert SoftmaxRegression(z, 2, 2, 500).step_length == pytest.approx(length)


def test_without_noise_it_finds_the_separating_weights() -> None:
    """Labels that a linear rule gives are found again, in nearly all of other texts."""
    vectors = embeddings(4_000, 12, 6)
    rule = np.random.default_rng(7).normal(size=(3, 12))
    truth = (vectors @ rule.T).argmax(axis=1)
    mechanism = SoftmaxRegression(1.0, 3, 12, 3_000)
    units = [[(int(label), vector)] for label, vector in zip(truth[:3000], vectors[:3000], strict=True)]
    found = mechanism.descend(mechanism.pack(units), np.zeros((3, 12)), None)
    assert np.mean((vectors[3000:] @ found.T).argmax(axis=1) == truth[3000:]) > 0.95


def test_without_units_it_stays_near_its_start_as_its_noise_is_bounded() -> None:
    """All noise of all steps moves a coordinate by at most about 1, whatever ε is: the start has a length of 18."""
    start = np.eye(2, 50) / 0.055
    moved = SoftmaxRegression(20.0, 2, 50, 10_000).release([], start) - start
    assert 0.3 < moved.std() < 1.5


def test_weights_out_of_range_are_brought_into_it() -> None:
    assert (gradient([[(0, EAST)]], np.full((L, D), 1e9)) == gradient([[(0, EAST)]], np.full((L, D), 1024.0))).all()


def test_right_answers_are_counted_for_each_unit_by_itself() -> None:
    """As plain arithmetic counts them, whatever the companions are, and without what is unusable."""
    vectors, draws = embeddings(6_000, 24, 8), np.random.default_rng(9)
    mechanism, at = SoftmaxRegression(1.0, 3, 24, 100), draws.normal(size=(3, 24)) * 5
    sizes = [*draws.integers(1, 6, 1_500).tolist(), 400]
    ends = [end for end in itertools.accumulate(sizes) if end <= len(vectors)]
    units: list[Unit] = [
        [(int(draws.integers(3)), vector) for vector in vectors[a:b]] for a, b in itertools.pairwise([0, *ends])
    ]
    one_by_one = [next(iter(mechanism.right([unit], at))) for unit in units]
    assert sorted(mechanism.right(units, at)) == sorted(one_by_one)
    scores = [np.array([at @ vector for _, vector in unit]) for unit in units]
    plain = [
        sum(int(s.argmax() == label) for s, (label, _) in zip(of, unit, strict=True))
        for of, unit in zip(scores, units, strict=True)
    ]
    assert sum(hits for hits, _ in one_by_one) == pytest.approx(sum(plain), rel=0.01)  # embeddings keep 8 bits
    assert [number for _, number in one_by_one] == [len(unit) for unit in units]
    assert list(mechanism.right([[(3, vectors[0])], [], [(-1, vectors[0])]], at)) == []
