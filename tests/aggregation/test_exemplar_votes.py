import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from aggregation.exemplar_votes import ExemplarVotes, chosen
from aggregation.noise import ONE, from_fixed_point
from tests.aggregation.contract import MechanismContract
from tests.aggregation.test_embedding_mean import EAST, NORTH, UNUSABLE
from tests.aggregation.test_noise import NO_NOISE
from tests.aggregation.test_prototypes import AROUND, NO_UNITS
from tests.laws import ALPHA

LABELS = [0, 0, 1]
"""Two candidates of the first label, to the east and to the north; one of the second, to the west."""
VOTES = ExemplarVotes(1.0, np.array([EAST, NORTH, -EAST]), LABELS)

texts = st.tuples(st.integers(-1, 2), st.sampled_from(AROUND) | st.sampled_from([*UNUSABLE.values()]))
units = st.lists(texts, max_size=8)


def ballots(before: list, after: list) -> Counter[int]:
    """For each number of votes, how many candidates moved by it; candidates that did not move are left out."""
    moved = VOTES.votes(after) - VOTES.votes(before)
    assert (moved % ONE == 0).all()
    return Counter(int(abs(one)) // ONE for one in moved if one)


def test_every_small_unit_has_one_vote_beside_every_small_other() -> None:
    """All units of up to three texts, beside all units of one: exactly one candidate moves, by exactly one vote."""
    kinds = [*itertools.product(range(2), AROUND)]
    every = [unit for size in range(1, 4) for unit in itertools.combinations_with_replacement(kinds, size)]
    for other, unit in itertools.product([(), *([kind] for kind in kinds)], every):
        assert ballots([other], [other, unit]) == {1: 1}


class TestExemplarVotes(MechanismContract):
    mechanism = VOTES
    wrong = [{"noise_multiplier": z} for z in NO_NOISE]
    contributions = units
    usable = [[(0, EAST)], [(1, EAST), (0, NORTH)]]
    unusable = NO_UNITS
    squared = {"removed": ONE**2}
    worst = [([], [[(0, EAST)] * texts]) for texts in (1, 1000)]

    def statistic(self, contributions):
        return self.mechanism.votes(contributions)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions)

    def is_public(self, released):
        return released.shape == (len(LABELS),) and np.isfinite(released).all()


@pytest.mark.parametrize(
    ("unit", "vote"),
    [
        ([(0, EAST)], 0),
        ([(0, np.array([0.6, 0.8]))], 1),
        ([(1, EAST)], 2),  # the only one of its label, however far
        ([(0, np.array([0.8, 0.6])), (1, -EAST)], 2),  # the nearest of all its texts
        ([(1, -EAST), (0, np.array([0.8, 0.6]))], 2),
        ([(0, EAST)] * 1000, 0),
        ([(2, EAST), (-1, EAST)], None),
        ([], None),
    ],
)
def test_a_unit_votes_for_the_nearest_candidate_of_its_label(unit: list, vote: int | None) -> None:
    assert from_fixed_point(VOTES.votes([unit])).tolist() == [float(number == vote) for number in range(3)]


@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_a_tie_goes_to_the_first_candidate_however_other_units_vote(others: int) -> None:
    """Otherwise one unit could change the votes of all units after it."""
    twins = ExemplarVotes(1.0, np.array([EAST, EAST, NORTH]), [0, 0, 0])
    between = (EAST + NORTH) / np.sqrt(2)
    assert from_fixed_point(twins.votes([[(0, EAST)]] * others + [[(0, EAST)]])).tolist() == [others + 1.0, 0.0, 0.0]
    for before in ([(0, EAST)], [(0, NORTH)], []):
        moved = twins.votes([before, *[[(0, between)]] * others]) - twins.votes([before])
        assert from_fixed_point(moved).tolist() == [float(others), 0.0, 0.0]


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_unit_s_other_texts_count(name: str) -> None:
    assert (VOTES.votes([[(0, UNUSABLE[name]), (1, EAST)]]) == VOTES.votes([[(1, EAST)]])).all()


def test_the_noise_is_gaussian_on_every_candidate() -> None:
    mechanism = ExemplarVotes(3.0, np.tile(EAST, (1000, 1)), [0] * 1000)
    noise = mechanism.release([[(0, EAST)]]) - np.eye(1000)[0]
    assert stats.kstest(noise / 3.0, "norm").pvalue > ALPHA


def test_the_most_voted_of_each_label_are_chosen() -> None:
    labels = [0, 1, 0, 1, 0]
    assert chosen(np.array([1.0, -5.0, 3.0, -4.0, 2.0]), labels, 1) == [2, 3]
    assert chosen(np.array([1.0, -5.0, 3.0, -4.0, 2.0]), labels, 2) == [2, 3, 4, 1]
    assert chosen(np.zeros(5), labels, 2) == [0, 1, 2, 3]
