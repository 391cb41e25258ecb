"""One conformance suite that every accountant inherits, and their comparison."""

import math
from functools import cache

import pytest

from accounting.privacy.accountants import (
    ACCOUNTANTS,
    AccountantsDisagreeError,
    EpsilonBounds,
    compare,
    get_accountant,
    require_agreement,
)
from accounting.privacy.events import Event, Sampling
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease, PtrTest

pytestmark = pytest.mark.slow

UNITS, BLOCKS = Sampling("units", 0.03), Sampling("blocks", 0.03)
DELTA = 1e-5


@cache
def upper(accountant: str, events: tuple[Event, ...], delta: float) -> float:
    """Many conditions speak of the same events."""
    return get_accountant(accountant).upper(events, delta)


class AccountantConformance:
    """What must hold of every accountant; subclasses name it and the events it supports."""

    name: str
    events: tuple[Event, ...]
    tolerance = 1e-9  # relative, of monotonicity and of equal compositions

    @property
    def accountant(self):
        return get_accountant(self.name)

    def upper(self, events, delta=DELTA):
        return upper(self.name, tuple(events), delta)

    def at_most(self, smaller, larger):
        assert smaller <= larger * (1 + self.tolerance)

    def test_upper_is_above_lower_and_positive(self):
        for event in self.events:
            found = self.accountant.bounds([event], DELTA)
            assert 0 < found.lower <= found.upper == self.upper([event])

    def test_a_larger_delta_never_costs_more(self):
        for event in self.events:
            uppers = [self.upper([event], delta) for delta in (1e-4, 1e-5, 1e-6)]
            self.at_most(uppers[0], uppers[1])
            self.at_most(uppers[1], uppers[2])

    def test_more_answers_cost_more(self):
        for event in self.events:
            more = Event(event.mechanism, event.sampling, event.count * 2)
            assert self.upper([event]) < self.upper([more])

    def test_a_larger_sampling_probability_costs_more(self):
        for event in self.events:
            more = Event(event.mechanism, Sampling(event.sampling.kind, 0.045), event.count)
            assert 1.2 * self.upper([event]) < self.upper([more])

    def test_adding_events_never_lowers_epsilon(self):
        for one in self.events[1:]:
            few = Event(one.mechanism, one.sampling, 5)
            self.at_most(self.upper([self.events[0]]), self.upper([self.events[0], few]))

    def test_order_does_not_matter(self):
        assert self.upper(self.events) == pytest.approx(self.upper(self.events[::-1]), rel=1e-9)

    def test_n_answers_equal_n_events_of_one_answer(self):
        for event in self.events:
            one = Event(event.mechanism, event.sampling)
            assert self.upper([Event(event.mechanism, event.sampling, 7)]) == self.upper([one] * 7)

    def test_nothing_costs_nothing(self):
        never = Event(self.events[0].mechanism, self.events[0].sampling, 0)
        for events in ([], [never]):
            assert self.accountant.bounds(events, DELTA) == EpsilonBounds(0.0, 0.0)

    def test_arguments_out_of_range_are_refused(self):
        for delta in (0.0, 1.0, -1e-5, math.nan):
            with pytest.raises(ValueError, match="delta must be"):
                self.accountant.bounds(self.events, delta)


EVERY_MECHANISM = tuple(
    Event(mechanism, sampling, 50)
    for sampling in (UNITS, BLOCKS)
    for mechanism in (Gaussian(1.5), BoundedRange(1.0), PtrTest(1.5, 1e-8), ProposeTestRelease(1.0, 1.5, 1e-8))
) + tuple(Event(Gaussian(1.5, kind), BLOCKS, 50) for kind in ("votes", "ball"))


class TestPld(AccountantConformance):
    name = "pld"
    events = EVERY_MECHANISM
    tolerance = 1e-3  # the grid moves with the events; every grid is an upper bound

    def test_delta_falls_with_epsilon_and_agrees_with_bounds(self):
        for event in self.events:
            upper = self.upper([event])
            deltas = [self.accountant.delta([event], upper * share) for share in (0.5, 1.0, 1.5)]
            assert deltas[0] > deltas[1] >= deltas[2] >= 0
            assert deltas[1] <= DELTA * 1.5
        assert self.accountant.delta([], 0.5) == 0.0
        for epsilon in (-0.1, math.nan):
            with pytest.raises(ValueError, match="epsilon must be"):
                self.accountant.delta(self.events, epsilon)


class TestRdp(AccountantConformance):
    name = "rdp"
    events = EVERY_MECHANISM
    tolerance = 1e-3  # of its branch and bound


class TestPrv(AccountantConformance):
    name = "prv"
    events = (Event(Gaussian(1.5), UNITS, 50), Event(Gaussian(0.9), UNITS, 20))
    tolerance = 0.01


class TestComparison:
    def test_all_three_agree_on_gaussians(self):
        found = compare([Event(Gaussian(1.0), UNITS, 100)], DELTA)
        assert list(found) == ["pld", "prv", "rdp"]
        assert found["prv"].lower <= found["pld"].upper <= found["prv"].upper
        assert found["pld"].upper < found["rdp"].upper

    def test_those_that_do_not_support_the_events_are_left_out(self):
        assert list(compare([Event(BoundedRange(1.0), UNITS, 10)], DELTA)) == ["pld", "rdp"]
        assert list(compare([Event(Gaussian(1.0), BLOCKS, 10)], DELTA)) == ["pld", "rdp"]

    def test_so_are_those_whose_numerics_do_not_reach_that_delta(self):
        assert list(compare([Event(Gaussian(1.0), UNITS, 10)], 1e-12)) == ["pld", "rdp"]

    def test_an_unknown_name_lists_the_known(self):
        assert set(ACCOUNTANTS) == {"pld", "prv", "rdp"}
        with pytest.raises(ValueError, match="pld, prv, rdp"):
            get_accountant("moments")

    def test_an_upper_bound_below_anothers_lower_is_a_contradiction(self):
        with pytest.raises(AccountantsDisagreeError, match=r"rdp says that epsilon is at most 0\.8"):
            require_agreement({"prv": EpsilonBounds(0.9, 1.0), "rdp": EpsilonBounds(0.0, 0.8)})
        require_agreement({"prv": EpsilonBounds(0.9, 1.0), "rdp": EpsilonBounds(0.0, 0.95)})

    def test_prv_and_pld_may_be_two_percent_apart(self):
        require_agreement({"pld": EpsilonBounds(0.0, 1.01), "prv": EpsilonBounds(0.98, 1.0)})
        with pytest.raises(AccountantsDisagreeError, match="more than 2%"):
            require_agreement({"pld": EpsilonBounds(0.0, 1.03), "prv": EpsilonBounds(0.98, 1.0)})
