"""Medoids: the greedy order, the best number, and any string at all."""

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from sanitization.medoids import medoids
from sanitization.vocabulary import Vocabulary
from tests.sanitization.made_up import vocabulary

WORDS = vocabulary(80)
COSTS = WORDS.distances(np.arange(80)) ** 2 / 2


def test_the_order_is_greedy() -> None:
    """It is compared with trying every word at every step."""
    order = medoids(WORDS, 20).order
    best = np.full(80, np.inf)
    for at in order:
        totals = [WORDS.shares @ np.minimum(best, row) for row in COSTS]
        assert totals[at] <= min(totals) * (1 + 1e-5)
        best = np.minimum(best, COSTS[at])


def test_frequent_words_become_medoids() -> None:
    shares = np.arange(80)[::-1] % 7 + 1
    words = Vocabulary(WORDS.words, WORDS.vectors, shares)
    order = medoids(words, candidates=20).order
    assert len(order) == len(set(order)) == 20
    assert shares[order].min() >= np.delete(shares, order).max()
    few = medoids(words, 5, candidates=20).order
    np.testing.assert_array_equal(few, order[:5])
    assert medoids(words, 5).order[0] == (words.shares @ (words.distances(np.arange(80)) ** 2)).argmin()


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0, 9.0])
def test_the_number_is_the_best(epsilon: float) -> None:
    """Its channel is compared with those of all numbers, by their expected costs."""
    found = medoids(WORDS)

    def cost(count: int) -> float:
        channel = found.response(epsilon, count)
        return float(WORDS.shares @ (channel.rows(np.arange(80)) * COSTS[:, found.order[:count]]).sum(axis=1))

    assert cost(found.best_count(epsilon)) <= min(cost(count) for count in range(2, 80)) * (1 + 1e-5)


def test_a_word_answers_with_its_medoid_most() -> None:
    channel = medoids(WORDS).response(3.0, 6)
    law = channel.rows(np.arange(80))
    places = [WORDS.index[word] for word in channel.outputs]
    np.testing.assert_array_equal(law.argmax(axis=1), COSTS[:, places].argmin(axis=1))
    assert set(np.round(law.ravel(), 6)) == {round(math.e**3 / (math.e**3 + 5), 6), round(1 / (math.e**3 + 5), 6)}


def test_it_is_near_the_optimum() -> None:
    """The least expected cost of any private channel at all, by linear programming: at most 10 % less here."""
    words = vocabulary(24)
    costs = words.distances(np.arange(24)) ** 2 / 2
    n = len(words)
    for epsilon in (1.0, 2.0, 4.0):
        channel = medoids(words).response(epsilon)
        places = [words.index[word] for word in channel.outputs]
        cost = float((words.shares @ (channel.rows(np.arange(n)) * costs[:, places])).sum())
        best = optimum(words.shares[:, None] * costs, epsilon)
        assert best <= cost <= 1.1 * best


def optimum(weighted: np.ndarray, epsilon: float) -> float:
    """Minimise Σ P(y|x)·weighted(x,y) with l_y ≤ P(y|x) ≤ e^ε·l_y for some l."""
    n = len(weighted)
    law, least = sparse.eye(n * n), sparse.kron(np.ones((n, 1)), sparse.eye(n))
    bounds = sparse.bmat([[law, -math.exp(epsilon) * least], [-law, least]])
    sums = sparse.hstack([sparse.kron(sparse.eye(n), np.ones((1, n))), sparse.csr_matrix((n, n))])
    objective = np.concatenate([weighted.ravel(), np.zeros(n)])
    solved = linprog(objective, A_ub=bounds, b_ub=np.zeros(2 * n * n), A_eq=sums, b_eq=np.ones(n), method="highs")
    assert solved.status == 0
    return float(solved.fun)


def test_words_that_all_lie_in_one_place() -> None:
    same = Vocabulary(["a", "b", "c"], np.ones((3, 4)))
    channel = medoids(same).response(1.0)
    np.testing.assert_allclose(channel.rows(np.arange(3)).sum(axis=1), 1)
