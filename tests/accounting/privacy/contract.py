"""Tests of what must hold for every accountant; the tests of each accountant inherit them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from accounting.privacy.accountants import ACCOUNTANTS, get_accountant
from accounting.privacy.bounds import Accountant, EpsilonBounds, UnsupportedEventsError
from accounting.privacy.events import Event, Sampling
from accounting.privacy.profiles import (
    BoundedRange,
    Gaussian,
    GaussianThreshold,
    ProposeTestRelease,
    PtrTest,
    SymmetricProfile,
)
from tests.accounting.privacy.explicit import exact_gaussian_epsilon

UNITS, BLOCKS = Sampling("units", 0.03), Sampling("blocks", 0.03)
DELTA = 1e-5


@cache
def upper(accountant: str, events: tuple[Event, ...], delta: float) -> float:
    """An upper bound, cached because many tests use the same events."""
    return get_accountant(accountant).upper(events, delta)


def gentler(mechanism: SymmetricProfile) -> SymmetricProfile:
    """The same mechanism with a smaller privacy loss."""
    match mechanism:
        case Gaussian() | PtrTest():
            return replace(mechanism, noise_multiplier=1.5 * mechanism.noise_multiplier)
        case GaussianThreshold():
            return replace(mechanism, gaussian=gentler(mechanism.gaussian))
        case _:
            return replace(mechanism, epsilon=mechanism.epsilon / 1.5)


EVERY_MECHANISM = tuple(
    Event(mechanism, sampling, 50)
    for sampling in (UNITS, BLOCKS)
    for mechanism in (
        Gaussian(1.5),
        BoundedRange(1.0),
        PtrTest(1.5, 1e-8),
        GaussianThreshold(Gaussian(1.5), 1e-8),
        ProposeTestRelease(1.0, 1.5, 1e-8),
    )
) + tuple(Event(Gaussian(1.5, kind), BLOCKS, 50) for kind in ("votes", "ball"))


class AccountantContract:
    """A subclass names an accountant.

    Attributes:
        name: name of the accountant in plans.
        events: events that it supports.
        unsupported: events that it does not support.
        tolerance: relative tolerance for monotonicity and for equal compositions.
        slack: largest allowed ratio of its upper bound to the exact value, for many Gaussian answers.
    """

    name: str
    events: Sequence[Event] = EVERY_MECHANISM
    unsupported: Sequence[Event] = ()
    tolerance = 1e-9
    slack: float

    @property
    def accountant(self) -> Accountant:
        return get_accountant(self.name)

    def upper(self, events: Sequence[Event], delta: float = DELTA) -> float:
        return upper(self.name, tuple(events), delta)

    def at_most(self, smaller: float, larger: float) -> None:
        assert smaller <= larger * (1 + self.tolerance)

    def test_plans_may_name_it(self) -> None:
        assert self.name in ACCOUNTANTS

    def test_what_it_does_not_support_is_refused_with_the_reason(self) -> None:
        assert self.accountant.unsupported(self.events) is None
        for event in self.unsupported:
            assert self.accountant.unsupported([*self.events, event])
            with pytest.raises(UnsupportedEventsError):
                self.accountant.bounds([*self.events, event], DELTA)

    def test_bounds_enclose_the_exact_value(self) -> None:
        """400 answers with z = 20 cost as much as one Gaussian answer with z = 1."""
        found = self.accountant.bounds([Event(Gaussian(20.0), Sampling("units", 1.0), 400)], DELTA)
        exact = exact_gaussian_epsilon(1.0, DELTA)
        assert found.lower <= exact <= found.upper <= self.slack * exact

    def test_upper_is_above_lower_and_positive(self) -> None:
        for event in self.events:
            found = self.accountant.bounds([event], DELTA)
            assert 0 < found.lower <= found.upper == self.upper([event])

    def test_a_larger_delta_never_costs_more(self) -> None:
        for event in self.events:
            uppers = [self.upper([event], delta) for delta in (1e-4, 1e-5, 1e-6)]
            self.at_most(uppers[0], uppers[1])
            self.at_most(uppers[1], uppers[2])

    def test_more_answers_cost_more(self) -> None:
        for event in self.events:
            assert self.upper([event]) < self.upper([replace(event, count=2 * event.count)])

    def test_more_noise_costs_less(self) -> None:
        for event in self.events:
            assert self.upper([replace(event, mechanism=gentler(event.mechanism))]) < self.upper([event])

    def test_a_larger_sampling_probability_costs_more(self) -> None:
        for event in self.events:
            more = replace(event, sampling=Sampling(event.sampling.kind, 0.045))
            assert 1.2 * self.upper([event]) < self.upper([more])

    def test_adding_events_never_lowers_epsilon(self) -> None:
        for one in self.events[1:]:
            self.at_most(self.upper([self.events[0]]), self.upper([self.events[0], replace(one, count=5)]))

    def test_order_does_not_matter(self) -> None:
        assert self.upper(self.events) == pytest.approx(self.upper(self.events[::-1]), rel=1e-9)

    def test_n_answers_equal_n_events_of_one_answer(self) -> None:
        for event in self.events:
            assert self.upper([replace(event, count=7)]) == self.upper([replace(event, count=1)] * 7)

    def test_nothing_costs_nothing(self) -> None:
        for events in ([], [replace(self.events[0], count=0)]):
            assert self.accountant.bounds(events, DELTA) == EpsilonBounds(0.0, 0.0)

    def test_arguments_out_of_range_are_refused(self) -> None:
        for delta in (0.0, 1.0, -1e-5, math.nan):
            with pytest.raises(ValueError, match="delta"):
                self.accountant.bounds(self.events, delta)
