"""The bound on ε and the attacker who learns. Expected values are closed forms."""

import math

import numpy as np
import pytest

from research.leaks.bounds import epsilon_lower_bound
from research.leaks.signs import bound, learn

ERROR = 1e-3


def test_the_bound_of_an_event_that_is_always_seen_with_one_neighbour_only() -> None:
    """Clopper-Pearson for n of n, and for none of n: error^(1/n)."""
    low = ERROR ** (1 / 100)
    assert epsilon_lower_bound(0, 100, 100, 0.0, ERROR) == pytest.approx(math.log(low / (1 - low)))
    assert epsilon_lower_bound(0, 100, 100, 0.01, ERROR) == pytest.approx(math.log((low - 0.01) / (1 - low)))


def test_delta_alone_explains_what_is_rarely_seen() -> None:
    assert epsilon_lower_bound(0, 5, 1000, 0.01, ERROR) == 0
    assert epsilon_lower_bound(0, 0, 1000, 0.0, ERROR) == 0


def test_either_direction_bounds_the_same_epsilon() -> None:
    """What is hardly ever absent with the canary proves as much as what is hardly ever seen without it."""
    assert epsilon_lower_bound(500, 1000, 1000, 0.0, ERROR) < math.log(2)
    assert bound(500, 1000, 1000, 0.0, ERROR) == pytest.approx(epsilon_lower_bound(0, 500, 1000, 0.0, ERROR))


def _gaussians(shift: float, trials: int, seed: int) -> list[dict[str, float]]:
    drawn = np.random.default_rng(seed).normal(shift, 1.0, (trials, 2))
    return [{"votes a": one, "votes b": other} for one, other in drawn]


def test_an_attacker_learns_a_shift_of_the_votes() -> None:
    sign = learn(_gaussians(0, 400, 0), _gaussians(3, 400, 1), 1e-5, ERROR)
    without, with_canary = sign.seen(_gaussians(0, 400, 2)), sign.seen(_gaussians(3, 400, 3))
    assert with_canary - without > 350


def test_an_attacker_who_can_learn_nothing_proves_nothing() -> None:
    sign = learn(_gaussians(0, 400, 4), _gaussians(0, 400, 5), 1e-5, ERROR)
    assert bound(sign.seen(_gaussians(0, 400, 6)), sign.seen(_gaussians(0, 400, 7)), 400, 1e-5, ERROR) == 0


def test_texts_that_are_seen_once_are_not_learnt() -> None:
    once = [{f"text {number}": 1.0} for number in range(40)]
    assert learn(once[:20], once[20:], 1e-5, ERROR).weights == {}
