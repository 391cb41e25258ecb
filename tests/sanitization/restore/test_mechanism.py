"""k-ary randomised response: exact fractions over all pairs, and a likelihood test that a weaker law fails."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from sanitization import response as randomised
from sanitization import uniform
from sanitization.restore import mechanism
from tests.laws import ALPHA, p_value


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("k", [2, 5, 16])
def test_all_pairs_by_fractions(k: int, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """P(y|j)/P(y|i) for all i, j, y, as fractions of whole numbers: at most e^ε, and at least e^(0.99ε) somewhere."""
    law = mechanism.response(k, epsilon)
    total = law.weight + (k - 1) * randomised.UNIT
    # The generator's number alone decides; these are the numbers where the outcome changes, and the ones before them.
    step = randomised.UNIT
    edges = [0, law.weight - 1, *(law.weight + r * step + last for r in range(k - 1) for last in (0, step - 1))]
    monkeypatch.setattr(uniform, "below", lambda limit, count: np.array(edges) if limit == total else None)
    rows = [law.draw(np.full(len(edges), j)) for j in range(k)]
    for j, row in enumerate(rows):
        assert list(row[:2]) == [j, j]
        assert sorted(row[2::2]) == sorted(set(range(k)) - {j}) == sorted(row[3::2])
    own, other = Fraction(law.weight, total), Fraction(randomised.UNIT, total)
    law_of = [[own if y == j else other for y in range(k)] for j in range(k)]
    ratios = [one / two for first in law_of for second in law_of for one, two in zip(first, second, strict=True)]
    assert max(ratios) <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
    assert math.log(max(ratios)) >= 0.99 * epsilon
    assert own + (k - 1) * other == 1
    assert mechanism.truth(k, epsilon) == pytest.approx(float(own), rel=1e-12)


def likelihood(draws: np.ndarray, k: int, epsilon: float, profile: int) -> float:
    """The p-value of draws of one profile under the law that was promised."""
    law = mechanism.response(k, epsilon).rows(np.array([profile]))[0]
    return p_value(np.bincount(draws, minlength=k), len(draws), law)


def test_draws_follow_the_law_and_a_weaker_one_is_caught() -> None:
    k, epsilon, count = 8, 2.0, 40_000
    good = mechanism.response(k, epsilon).draw(np.full(count, 3))
    assert likelihood(good, k, epsilon, 3) > ALPHA
    weaker = mechanism.response(k, 1.15 * epsilon).draw(np.full(count, 3))  # as if the reply were a little too honest
    assert likelihood(weaker, k, epsilon, 3) < ALPHA
    # "keep with p, else uniform over all k", a usual slip, which keeps more often than was promised
    keep = mechanism.truth(k, epsilon)
    generator = np.random.default_rng(1)
    slip = np.where(generator.random(count) < keep, 3, generator.integers(0, k, count))
    assert likelihood(slip, k, epsilon, 3) < ALPHA


def test_one_draw_at_a_time() -> None:
    drawn = np.array([mechanism.draw(2, 4, 1.0) for _ in range(8_000)])
    assert likelihood(drawn, 4, 1.0, 2) > ALPHA


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 20.1, math.nan, math.inf])
def test_epsilon_out_of_range(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"ε .* 20"):
        mechanism.check_epsilon(epsilon)


def test_a_large_epsilon_warns() -> None:
    with pytest.warns(UserWarning, match=r"ε = 8\.1"):
        mechanism.check_epsilon(8.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism.check_epsilon(8.0)


def test_one_profile_hides_nothing() -> None:
    with pytest.raises(ValueError, match="two profiles"):
        mechanism.response(1, 1.0)
