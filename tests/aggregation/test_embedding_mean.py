import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from aggregation.embedding_mean import EmbeddingMean
from aggregation.noise import ONE, from_fixed_point
from tests.aggregation.contract import MechanismContract, PlanningContract
from tests.aggregation.test_noise import NO_NOISE
from tests.laws import ALPHA, p_value

TRIALS = 4_000
BELOW_A_LATTICE_POINT = (2**39 - 2**-10) / ONE
"""A radius that scaling a vector without any margin would round up."""
EAST, NORTH = np.eye(2)
UNUSABLE = {
    "None": None,
    "too short": np.array([1.0]),
    "a matrix": np.eye(2),
    "NaN": np.array([np.nan, 1.0]),
    "infinite": np.array([np.inf, 0.0]),
    "overflowing": np.array([1e308, 1e308]),
    "zero": np.zeros(2),
    "too long": np.array([1.5, 0.0]),
    "integers": np.array([1, 0]),
    "complex": np.array([1j, 0]),
    "objects": np.array([10**400, None]),
    "text": "east",
    "a list": [1.0, 0.0],
}


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def squared(vector: np.ndarray) -> int:
    """The exact squared norm of a vector of integers."""
    return sum(int(x) ** 2 for x in vector)


units = arrays(np.float64, 2, elements=st.floats(-1, 1)).filter(lambda v: np.linalg.norm(v) > 0.1).map(unit)
anything = st.one_of(
    st.none(),
    units,
    units.map(lambda v: v.astype(np.float32)),
    st.sampled_from([*UNUSABLE.values()]),
    arrays(np.float64, 2, elements=st.floats(allow_nan=True, allow_infinity=True)),
)


# --- Sensitivity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 384, 1536])
@pytest.mark.parametrize("radius", [1.0, 0.7, 0.1, 0.3333333333333333, BELOW_A_LATTICE_POINT])
def test_no_contribution_is_longer_than_the_radius_in_any_dimension(dimension: int, radius: float) -> None:
    rng = np.random.default_rng(dimension)
    centre = 0.3 * unit(rng.normal(size=dimension))
    for vector in unit(rng.normal(size=(20, dimension))):
        for base in (centre, np.zeros(dimension)):
            assert squared(EmbeddingMean(1.0, radius).sum([vector], base)) <= (Fraction(radius) * ONE) ** 2


# --- The sum ----------------------------------------------------------------------------------------------------------


def test_the_sum_is_exact_and_knows_no_order() -> None:
    rng = np.random.default_rng(2)
    vectors = list(unit(rng.normal(size=(50, 384))).astype(np.float32))
    mechanism, centre = EmbeddingMean(1.0, 0.6), 0.5 * vectors[0]
    total = mechanism.sum(vectors, centre)
    assert (total == mechanism.sum(vectors[::-1], centre)).all()
    assert (total == sum(mechanism.sum([vector], centre) for vector in vectors)).all()


def test_short_offsets_are_kept_and_long_ones_clipped() -> None:
    mechanism, centre = EmbeddingMean(1.0, 0.5), np.array([0.8, 0.0])
    assert from_fixed_point(mechanism.sum([EAST], centre)) == pytest.approx([0.2, 0.0], abs=1e-11)
    assert from_fixed_point(mechanism.sum([-EAST], centre)) == pytest.approx([-0.5, 0.0], abs=1e-11)


# --- The release ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "candidates", "lead"),
    [
        (EmbeddingMean(1.5), np.array([EAST, NORTH]), 3 / math.sqrt(2)),
        # About the centre (0.8, 0) the candidates differ in the second coordinate only.
        (EmbeddingMean(1.5, 0.5, True, 6), np.array([[0.8, 0.6], [0.8, -0.6]]), 3 * 0.5),
    ],
    ids=["paper", "centred"],
)
def test_release_probability_matches_the_closed_form(mechanism, candidates, lead) -> None:
    """Two candidates: the right one wins with probability Φ(lead / σ), the lead being along their difference.

    A comparison with the noiseless sum (DP-ICL, algorithm 3) would release the first one always.
    """
    contributions = [candidates[0]] * 4 + [candidates[1], None]
    wins = sum(mechanism.release(contributions, candidates) == 0 for _ in range(TRIALS))
    exact = stats.norm.cdf(lead / mechanism.sigma)
    assert 0.6 < exact < 0.95
    assert p_value(np.array([wins]), TRIALS, exact) > ALPHA


def test_candidates_are_compared_by_cosine() -> None:
    """A long candidate has no advantage."""
    candidates = np.array([[10.0, 10.0], [0.1, 0.01]])
    assert EmbeddingMean(0.005).release([EAST] * 20, candidates) == 1


def test_a_centred_sum_of_radius_one_chooses_as_the_paper_does() -> None:
    """Nothing abstains and nothing is clipped: the centre that was taken off is added back, slot by slot."""
    rng = np.random.default_rng(4)
    common = unit(rng.normal(size=16))
    candidates = unit(common + 0.4 * unit(rng.normal(size=(12, 16))))
    for _ in range(50):
        contributions = unit(common + 0.5 * unit(rng.normal(size=(9, 16))))
        noise = rng.normal(size=16)
        paper, centred = EmbeddingMean(1.0), EmbeddingMean(1.0, 1.0, True, 9)
        chosen = {
            mechanism.select(
                from_fixed_point(mechanism.sum(contributions, mechanism.centre(candidates))) + noise, candidates
            )
            for mechanism in (paper, centred)
        }
        assert len(chosen) == 1


@pytest.mark.parametrize(("radius", "lead"), [(0.5, 1.0), (1.0, 2.0), (2.0, 2.0)])
def test_a_centre_counts_for_each_slot_asked_as_far_as_the_radius_goes(radius: float, lead: float) -> None:
    """The centre of two to the east and one to the north favours the east by a third, times six slots."""
    mechanism, candidates = EmbeddingMean(1.0, radius, True, 6), np.array([NORTH, EAST, EAST])
    for more, chosen in ((0.01, 0), (-0.01, 1)):
        assert mechanism.select((lead + more) * NORTH, candidates) == chosen


@pytest.mark.parametrize("centred", [False, True])
def test_one_candidate_is_released_whatever_was_asked(centred: bool) -> None:
    assert EmbeddingMean(1.0, 1.0, centred, 3).release([None, EAST, NORTH], np.array([EAST])) == 0


# --- Planning ---------------------------------------------------------------------------------------------------------


def frequency(mechanism: EmbeddingMean, candidates: np.ndarray, agreeing: int, seed: int) -> float:
    """How often the first candidate is nearest if that many slots give it, the others nothing."""
    rng = np.random.default_rng(seed)
    total = from_fixed_point(mechanism.sum([candidates[0]] * agreeing, mechanism.centre(candidates)))
    noise = rng.normal(scale=mechanism.sigma, size=(TRIALS, len(total)))
    return float(np.mean([mechanism.select(total + drawn, candidates) == 0 for drawn in noise]))


def alike(count: int, similarity: float) -> np.ndarray:
    """Candidates of which every two have the same cosine."""
    gram = similarity + (1 - similarity) * np.eye(count)
    return np.linalg.cholesky(gram)


@pytest.mark.parametrize("radius", [1.0, 0.5, 2.0])
def test_the_chance_of_a_candidate_is_attained(radius: float) -> None:
    """Four others at a cosine of 1/2 with it and at right angles to each other: four independent leads."""
    tetrahedron = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / math.sqrt(3)
    others = np.hstack([np.full((4, 1), 0.5), math.sqrt(0.75) * tetrahedron])
    mechanism = EmbeddingMean(3.0, radius)
    expected = mechanism.probability_released(12, candidates=5)
    assert 0.2 < expected < 0.9
    found = frequency(mechanism, np.vstack([np.eye(4)[:1], others]), 12, seed=6)
    assert abs(found - expected) < 4 * math.sqrt(expected * (1 - expected) / TRIALS)


@pytest.mark.parametrize("similarity", [0.0, 0.5, 0.8])
@pytest.mark.parametrize(("radius", "centred"), [(1.0, False), (1.0, True), (0.35, True), (0.6, True)])
def test_the_required_slots_suffice_and_are_not_many_more_than_needed(similarity, radius, centred) -> None:
    mechanism = EmbeddingMean(3.0, radius, centred, 100)
    needed = mechanism.required_slots(20, similarity)
    assert mechanism.probability_released(needed, 20, similarity) == pytest.approx(0.95)
    found = frequency(mechanism, alike(20, similarity), math.ceil(needed), seed=7)
    assert 0.95 - 4 * math.sqrt(0.95 * 0.05 / TRIALS) < found < 0.98


def test_centring_and_clipping_need_fewer_slots_where_candidates_are_alike() -> None:
    paper, centred = EmbeddingMean(3.0), EmbeddingMean(3.0, 0.3, True, 100)
    assert centred.required_slots(100, 0.8) < 0.5 * paper.required_slots(100, 0.8)


@pytest.mark.parametrize("centred", [False, True])
def test_the_only_candidate_needs_no_slot(centred: bool) -> None:
    mechanism = EmbeddingMean(1.0, 1.0, centred, 5)
    assert mechanism.required_slots(1) == mechanism.required_slots(2, probability=0.5) == 0
    assert mechanism.probability_released(0, 1) == 1


@pytest.mark.parametrize(("candidates", "similarity"), [(0, 0.5), (2, 1.0), (2, -0.1), (2, math.nan)])
def test_unusable_guesses_are_refused(candidates: int, similarity: float) -> None:
    with pytest.raises(ValueError, match="similarity"):
        EmbeddingMean(1.0).required_slots(candidates, similarity)


# --- Public mistakes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "candidates",
    [np.zeros((0, 3)), np.zeros((2, 0)), np.array([1.0, 0.0]), np.zeros((2, 3)), np.array([[np.nan, 1.0]])],
    ids=["none", "no dimension", "one vector", "zero", "NaN"],
)
def test_unusable_candidates_are_refused(candidates: np.ndarray) -> None:
    with pytest.raises(ValueError, match="candidate"):
        EmbeddingMean(1.0).release([], candidates)


# --- The contract -----------------------------------------------------------------------------------------------------


class TestEmbeddingMean(MechanismContract, PlanningContract):
    mechanism = EmbeddingMean(1.0)
    noisier = EmbeddingMean(3.0)
    wrong = [
        *({"noise_multiplier": z} for z in NO_NOISE),
        *({"radius": radius} for radius in (0.0, -1.0, 2.1, math.inf, math.nan)),
        {"centred": True, "slots": 0},
    ]
    centre = np.zeros(2)
    contributions = anything
    usable = [EAST, NORTH.astype(np.float32)]
    unusable = [*UNUSABLE.values()]
    squared = {"removed": ONE**2, "replaced": 4 * ONE**2}
    worst = [([EAST], [-EAST])]

    def statistic(self, contributions):
        return self.mechanism.sum(contributions, self.centre)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions, np.array([EAST, NORTH, -NORTH]))

    def is_public(self, released):
        return released in range(3)

    def required(self, mechanism, *probability):
        return mechanism.required_slots(20, 0.3, *probability)

    def probability(self, mechanism, agreement):
        return mechanism.probability_released(agreement, 20, 0.3)


class TestCentredEmbeddingMean(TestEmbeddingMean):
    """A centred sum whose radius no double holds exactly."""

    mechanism = EmbeddingMean(1.0, 1 / 3, True, 9)
    noisier = EmbeddingMean(3.0, 1 / 3, True, 9)
    centre = 0.5 * EAST
    squared = {"removed": (Fraction(1 / 3) * ONE) ** 2, "replaced": (2 * Fraction(1 / 3) * ONE) ** 2}
    worst = [([np.array([0.5, 0.75**0.5])], [np.array([0.5, -(0.75**0.5)])])]
