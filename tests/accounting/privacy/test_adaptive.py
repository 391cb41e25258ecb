"""What an adaptive analyst learns from bounded ranges: value iteration against exhaustive play."""

import math

import numpy as np
import pytest
from scipy import optimize

from accounting.privacy import adaptive
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pairs import lower_epsilon
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian
from accounting.privacy.rdp import RdpAccountant
from accounting.privacy.subsampling import amplify


def pairs(width, q, size):
    """Two-outcome pairs for ``size`` values of t: probabilities without the unit, and ratios with it to these."""
    t = np.linspace(0, width, size)
    high = np.expm1(width - t) / math.expm1(width)
    return np.stack([high, 1 - high]), 1 - q + q * np.exp(np.stack([t, t - width]))


def played(width, q, answers, a, remove, size):
    """The largest divergence at ``a`` of all strategies that choose among ``size`` values of t, by playing them all."""
    if answers == 0:
        return np.maximum(1 - a, 0.0)
    (high, low), (up, down) = pairs(width, q, size)
    a = np.asarray(a)[..., None]
    if remove:
        after = [r * played(width, q, answers - 1, a / r, remove, size) for r in (up, down)]
    else:
        after = [played(width, q, answers - 1, a * r, remove, size) for r in (up, down)]
    return (high * after[0] + low * after[1]).max(axis=-1)


@pytest.mark.parametrize(("answers", "size"), [(2, 401), (3, 81), (4, 21)])
@pytest.mark.parametrize(("width", "q"), [(1.0, 0.2), (3.0, 0.6), (0.7, 1.0)])
def test_it_is_the_value_of_the_best_strategy(answers, size, width, q):
    event = Event(BoundedRange(width), Sampling("units", q), answers)
    (directions, count), *rest = adaptive.groups(event, 1e-12)
    assert (count, rest) == (1, [])
    for direction, remove in zip(directions, (True, False), strict=False):
        losses = np.linspace(0, 0.8, 5) * answers * math.log1p(q * math.expm1(width))
        found = direction.upper(losses)
        exact = np.array([played(width, q, answers, math.exp(x), remove, size) for x in losses])
        assert np.all(exact <= found)
        np.testing.assert_allclose(found, exact, rtol=0.03, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "q", "answers", "delta", "figure"),
    [(1.21, 0.04, 300, 1e-5, 1.825), (0.196, 1.0, 40, 6.3e-6, 2.594), (1.79, 0.066, 165, 6.6e-5, 3.527)],
)
def test_it_agrees_with_plain_value_iteration(width, q, answers, delta, figure):
    event = Event(BoundedRange(width), Sampling("units", q), answers)
    found = PldAccountant().bounds([event], delta)
    assert found.upper == pytest.approx(figure, rel=0.002)
    assert 0.975 * found.upper <= found.lower <= found.upper
    assert found.upper < 0.945 * RdpAccountant().upper([event], delta)


@pytest.mark.parametrize("answers", [2, 50, 321, 5000])
def test_it_lies_between_a_fixed_pair_and_the_envelope(answers, monkeypatch):
    events = [Event(BoundedRange(0.8), Sampling("units", 0.03), answers)]
    found = PldAccountant().upper(events, 1e-6)
    assert lower_epsilon(events, 1e-6) <= found
    assert found < 1.01 * RdpAccountant().upper(events, 1e-6)
    monkeypatch.setattr(adaptive, "applies", lambda event: False)
    assert found < 1.01 * PldAccountant().upper(events, 1e-6)


@pytest.mark.parametrize("width", [20.0, 34.0, 37.0, 38.5, 40.08005956148784, 60.0, 100.0])
def test_a_range_whose_smallest_probability_is_lost_in_one(width):
    """``1 - e^-ε`` is 1 for a double; here both answers are asked with the same t, the best one."""
    event = Event(BoundedRange(width), Sampling("units", 1.0), 2)
    (((direction,), _),) = adaptive.groups(event, 1e-12)
    losses = 2 * width - np.geomspace(1e-2, width, 200)
    down = np.geomspace(1e-3, 5, 2000)[:, None]
    exact = (np.expm1(-down) ** 2 * np.maximum(-np.expm1(losses - 2 * (width - down)), 0.0)).max(axis=0)
    assert np.all(exact <= direction.upper(losses))
    found = PldAccountant().bounds([event], 1e-4)
    assert 0.98 * found.upper <= found.lower <= found.upper <= 2 * width * 1.001


@pytest.mark.parametrize(("name", "coarser"), [("_NODES", 13), ("_STEP", 0.3)])
def test_coarser_grids_only_raise_it_and_by_little(name, coarser, monkeypatch):
    event = Event(BoundedRange(1.0), Sampling("units", 0.1), 20)
    losses = np.linspace(0, 1, 40)
    (((usual, _), _),) = adaptive.groups(event, 1e-10)
    adaptive.groups.cache_clear()
    monkeypatch.setattr(adaptive, name, coarser)
    (((coarse, _), _),) = adaptive.groups(event, 1e-10)
    adaptive.groups.cache_clear()
    assert np.all(usual.upper(losses) <= coarse.upper(losses) * (1 + 1e-6))
    assert np.all(coarse.upper(losses) <= 1.3 * usual.upper(losses))


def test_an_analyst_who_interleaves_two_tasks_and_a_gaussian_stays_below():
    """Three answers of two ranges are played in every order, then a Gaussian."""
    q, delta = 0.5, 1e-3
    one, two = pairs(1.0, q, 24), pairs(0.5, q, 24)
    (gaussian, _) = amplify(Gaussian(2.0), Sampling("units", q))

    def play(order, a):
        if not order:
            return gaussian.delta(np.log(a))
        (high, low), (up, down) = order[0]
        a = np.asarray(a)[..., None]
        return (high * up * play(order[1:], a / up) + low * down * play(order[1:], a / down)).max(axis=-1)

    brute = max(
        optimize.brentq(lambda x, order=order: float(play(order, math.exp(x))) - delta, 0, 3)
        for order in ((one, one, two), (one, two, one), (two, one, one))
    )
    sampling = Sampling("units", q)
    events = [
        Event(BoundedRange(1.0), sampling, 2),
        Event(BoundedRange(0.5), sampling),
        Event(Gaussian(2.0), sampling),
    ]
    assert brute <= PldAccountant().upper(events, delta) <= 1.07 * brute


def test_blocks_are_left_to_the_profile():
    assert not adaptive.applies(Event(BoundedRange(1.0), Sampling("blocks", 0.1), 10))
    assert adaptive.applies(Event(BoundedRange(1.0), Sampling("blocks", 1.0), 10))
    assert not adaptive.applies(Event(Gaussian(1.0), Sampling("units", 0.1), 10))


@pytest.mark.slow
def test_more_different_events_take_smaller_groups_and_promise_hardly_more():
    """Each event has iterations of its own, which take longer the more answers there are in a group."""
    event = Event(BoundedRange(0.6), Sampling("units", 0.02), 640)
    assert [count for _, count in adaptive.groups(event, 1e-10, adaptive._FEW)] == [5]
    assert [count for _, count in adaptive.groups(event, 1e-10, 100)] == [64]
    others = [Event(BoundedRange(0.1 + number / 1000), Sampling("units", 0.001), 1) for number in range(99)]
    alone, among = PldAccountant().upper([event], 1e-5), PldAccountant().upper([event, *others], 1e-5)
    assert alone < among < 1.05 * alone
