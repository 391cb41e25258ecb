import itertools
import secrets
from decimal import Decimal
from fractions import Fraction

import pytest

from aggregation.exponential_weights import draw, exponentials, shares


def exact_exponential(rate: float, steps: int) -> Fraction:
    """e^(-rate·steps) by its power series at rate/16, to about 70 digits."""
    x = -Fraction(rate) / 16
    term, total = Fraction(1), Fraction(0)
    for n in itertools.count(1):
        total += term
        term = term * x / n
        if abs(term) < Fraction(1, 10**75):
            return Fraction(round(total * 2**300), 2**300) ** (16 * steps)


@pytest.mark.parametrize("rate", [1e-9, 0.1, 0.75, 25.0])
def test_exponentials_are_right_to_fifty_digits(rate: float) -> None:
    weights = exponentials(rate, 101)
    assert len(weights) == 101
    for steps in (0, 1, 7, 100):
        exact = exact_exponential(rate, steps)
        assert abs(Fraction(weights[steps]) / exact - 1) < Fraction(1, 10**50)


def test_shares_keep_the_ratios_of_the_weights_down_to_the_smallest() -> None:
    weights = [Decimal("0.3"), Decimal("1e-400"), Decimal(2), Decimal("7e-13")]
    for share, weight in zip(shares(weights), weights, strict=True):
        assert share >= 2**128 - 1
        assert abs(Fraction(share, shares(weights)[2]) / (Fraction(weight) / 2) - 1) < Fraction(1, 2**126)


def test_each_index_has_as_many_points_as_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last uniform integer that belong to each index."""
    weights = [Decimal(3), Decimal(1), Decimal(5)]
    ends = list(itertools.accumulate(shares(weights)))
    for index, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
        for point in (first, end - 1):

            def fixed(below: int, point: int = point) -> int:
                assert below == ends[-1]
                return point

            monkeypatch.setattr(secrets, "randbelow", fixed)
            assert draw(weights) == index
