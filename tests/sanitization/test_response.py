"""Randomised response: the exact law, by going through all the randomness there is."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exemplar_store import sampling
from sanitization import response, uniform
from sanitization.audit import audit
from sanitization.response import RandomisedResponse
from tests.laws import ALPHA, p_value


def make(outputs: int, near: list[list[int]], epsilon: float) -> RandomisedResponse:
    names = [f"y{i}" for i in range(outputs)]
    return RandomisedResponse([f"x{i}" for i in range(len(near))], names, np.array(near), epsilon)


@pytest.mark.parametrize("near", [[[2]], [[0]], [[6]], [[5, 1, 3]], [[0, 1, 6, 5]], [[3, 4, 5, 6, 0, 1]]])
def test_every_point_of_the_randomness(near: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each whole number below the total once: near outputs come W times, each other one U times."""
    monkeypatch.setattr(response, "UNIT", 3)
    channel = make(7, near, 1.5)
    weights = np.full(7, 3)
    weights[near[0]] = channel.weight
    assert channel.weight == 13  # ⌊3·e^1.5⌋
    monkeypatch.setattr(uniform, "below", lambda limit, count: np.arange(limit))
    drawn = channel.draw(np.zeros(weights.sum(), dtype=np.int64))
    np.testing.assert_array_equal(np.bincount(drawn, minlength=7), weights)
    np.testing.assert_allclose(channel.rows(np.array([0]))[0], weights / weights.sum(), rtol=1e-15)


@given(st.floats(1e-6, 25))
def test_the_weight_is_as_large_as_epsilon_allows(epsilon: float) -> None:
    channel = make(3, [[0], [1]], epsilon)
    with localcontext() as exact:
        exact.prec = 50
        limit = Decimal(epsilon).exp() * response.UNIT
    assert channel.weight <= limit < channel.weight + 1
    assert epsilon - 1e-6 < channel.true_epsilon < epsilon + 1e-14


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 25.0])
@pytest.mark.parametrize(("outputs", "k"), [(2, 1), (50, 1), (50, 7)])
def test_the_audit_finds_the_closed_form(epsilon: float, outputs: int, k: int) -> None:
    near = [[(i + j) % outputs for j in range(k)] for i in range(outputs)]
    channel = make(outputs, near, epsilon)
    assert audit(channel).epsilon == pytest.approx(channel.true_epsilon, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, 25.1, math.inf])
def test_epsilon_out_of_range(epsilon: float) -> None:
    with pytest.raises(ValueError, match="ε"):
        make(3, [[0]], epsilon)


@pytest.mark.parametrize("near", [[[0, 1, 2]], [[]]])
def test_near_to_all_or_none(near: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="output"):
        make(3, near, 1.0)


@pytest.mark.parametrize("below", [uniform.below, sampling.below])
@pytest.mark.parametrize("limit", [1, 2, 3, 10, 100, 1 << 40, (1 << 62) - 1, 1 << 62])
def test_uniform_numbers(below: Callable[[int, int], np.ndarray], limit: int) -> None:
    """The exemplar store has a generator of its own, since it does not use this package; both are tested."""
    drawn = below(limit, 20_000)
    assert drawn.shape == (20_000,)
    assert drawn.min() >= 0
    assert drawn.max() < limit
    parts = min(limit, 10)
    ends = [limit * part // parts for part in range(parts + 1)]
    shares = np.array([(b - a) / limit for a, b in pairwise(ends)])
    found = np.array([((drawn >= a) & (drawn < b)).sum() for a, b in pairwise(ends)])
    assert p_value(found, 20_000, shares) > ALPHA


@pytest.mark.parametrize("limit", [0, -1, (1 << 62) + 1])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        uniform.below(limit, 1)
