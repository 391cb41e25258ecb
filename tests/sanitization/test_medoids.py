"""Medoids: the greedy order, the best number, and any string at all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sanitization.medoids import medoids
from sanitization.vocabulary import Vocabulary
from tests.laws import ALPHA, p_value
from tests.sanitization.made_up import vocabulary

WORDS = vocabulary(80)
COSTS = WORDS.distances(np.arange(80)) ** 2 / 2


def test_the_order_is_greedy() -> None:
    """Against trying every word at every step."""
    order = medoids(WORDS, 20).order
    best = np.full(80, np.inf)
    for at in order:
        totals = [WORDS.shares @ np.minimum(best, row) for row in COSTS]
        assert totals[at] <= min(totals) * (1 + 1e-5)
        best = np.minimum(best, COSTS[at])


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0, 9.0])
def test_the_number_is_the_best(epsilon: float) -> None:
    """Against the expected cost of every number's channel."""
    found = medoids(WORDS)

    def cost(count: int) -> float:
        channel = found.response(epsilon, count).channel
        return float(WORDS.shares @ (channel.rows(np.arange(80)) * COSTS[:, found.order[:count]]).sum(axis=1))

    assert cost(found.best_count(epsilon)) <= min(cost(count) for count in range(2, 80)) * (1 + 1e-5)


def test_more_epsilon_more_medoids() -> None:
    found = medoids(WORDS)
    counts = [found.best_count(epsilon) for epsilon in (0.5, 2.0, 4.0, 8.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_word_answers_with_its_medoid_most() -> None:
    channel = medoids(WORDS).response(3.0, 6).channel
    law = channel.rows(np.arange(80))
    places = [WORDS.index[word] for word in channel.outputs]
    np.testing.assert_array_equal(law.argmax(axis=1), COSTS[:, places].argmin(axis=1))
    assert set(np.round(law.ravel(), 6)) == {
        round(math.e**3 / (math.e**3 + 5), 6),
        round(1 / (math.e**3 + 5), 6),
    }


def test_any_vector_is_protected_alike() -> None:
    """What a string that is no word sends has the law of the words around the same medoid."""
    response = medoids(WORDS).response(2.0, 5)
    far = np.full((1, 16), 1e6)
    near = int(((response.places - far) ** 2).sum(axis=1).argmin())
    drawn = response.draw_for(np.repeat(far, 50_000, axis=0))
    counts = np.array([drawn.count(word) for word in response.channel.outputs])
    expected = np.full(5, 1 / (math.e**2 + 4))
    expected[near] *= math.e**2
    assert p_value(counts, 50_000, expected) > ALPHA


def test_words_that_all_lie_in_one_place() -> None:
    same = Vocabulary(["a", "b", "c"], np.ones((3, 4)))
    channel = medoids(same).response(1.0).channel
    np.testing.assert_allclose(channel.rows(np.arange(3)).sum(axis=1), 1)
