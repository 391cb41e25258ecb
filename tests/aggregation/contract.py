"""Tests of what must hold for every mechanism; the tests of each mechanism inherit them."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


class MechanismContract(ABC):
    """A subclass names a mechanism, and the only statistic that the mechanism reads of its contributions.

    Attributes:
        mechanism: mechanism with usual parameters.
        wrong: changes of its parameters, each of which is refused.
        contributions: strategy of a slot's or a unit's contribution, usable or not.
        usable: contributions that count.
        unusable: contributions that count as nothing.
        squared: squares of the largest changes of the statistic, when a contribution is removed or added, and when it
            is replaced; units are not replaced. They are whole numbers or fractions, so they are exact.
        worst: pairs of neighbouring lists of contributions that reach the largest of these changes.
        others: strategy of the contributions beside those that change; by default, a few of any kind.
        short: part of the largest change that rounding may cost.
        euclidean: whether changes are measured in the L2 norm, else by the coordinate that moves the most.
    """

    mechanism: Any
    wrong: Sequence[Mapping[str, Any]]
    contributions: st.SearchStrategy
    usable: Sequence[Any]
    unusable: Sequence[Any]
    squared: Mapping[str, Any]
    worst: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    others: st.SearchStrategy | None = None
    short = 1e-9
    euclidean = True

    @abstractmethod
    def statistic(self, contributions: Sequence[Any]) -> np.ndarray:
        """The statistic, as whole numbers."""

    @abstractmethod
    def release(self, mechanism: Any, contributions: Sequence[Any]) -> Any: ...

    @abstractmethod
    def is_public(self, released: Any) -> bool:
        """Whether a release is a possible output, as public parameters alone define them."""

    def moved(self, before: Sequence[Any], after: Sequence[Any]) -> int:
        """The square of the change of the statistic."""
        pairs = zip(self.statistic(before).ravel().tolist(), self.statistic(after).ravel().tolist(), strict=True)
        squares = [(int(one) - int(other)) ** 2 for one, other in pairs]
        return sum(squares) if self.euclidean else max(squares)

    def test_parameters_out_of_range_are_refused(self) -> None:
        for wrong in self.wrong:
            with pytest.raises(ValueError):  # noqa: PT011  (nothing else is wrong)
                self.release(dataclasses.replace(self.mechanism, **wrong), [])

    def test_parameters_stay_what_they_are(self) -> None:
        for field in dataclasses.fields(self.mechanism):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(self.mechanism, field.name, None)

    def test_a_contribution_moves_the_statistic_by_at_most_the_sensitivity(self) -> None:
        """The order of the contributions does not matter either."""

        some = st.lists(self.contributions, max_size=4) if self.others is None else self.others

        @settings(max_examples=200)
        @given(some, self.contributions, self.contributions)
        def check(others: list, one: object, other: object) -> None:
            assert self.moved([*others, one], [one, *others[::-1]]) == 0
            assert self.moved([*others, one], others) <= self.squared["removed"]
            if "replaced" in self.squared:
                assert self.moved([*others, one], [*others, other]) <= self.squared["replaced"]

        check()

    def test_the_sensitivity_is_reached(self) -> None:
        """It is reached except for rounding towards zero."""
        for before, after in self.worst:
            assert self.moved(before, after) > (1 - self.short) * max(self.squared.values())

    def test_unusable_contributions_abstain(self) -> None:
        """No error and no warning reveals private data."""
        for unusable in self.unusable:  # not parametrized: pytest itself fails with some
            with np.errstate(all="raise"), warnings.catch_warnings():
                warnings.simplefilter("error")
                assert self.moved([unusable, *self.usable], self.usable) == 0
        assert self.moved([], self.usable) > 0

    def test_a_release_is_made_from_any_contributions(self) -> None:
        for contributions in ([], self.unusable, self.usable):
            assert self.is_public(self.release(self.mechanism, contributions))


class PlanningContract(ABC):
    """Tests of mechanisms that state beforehand how much agreement a release takes.

    Attributes:
        mechanism: mechanism with usual parameters.
        noisier: the same mechanism with more noise.
        refused: probabilities that no agreement reaches.
        step: the least difference between two agreements.
    """

    mechanism: Any
    noisier: Any
    refused: Sequence[float] = (0.0, 1.0, -0.1, 1.5, float("nan"))
    step: float = 1e-6

    @abstractmethod
    def required(self, mechanism: Any, *probability: float) -> float:
        """The required agreement, for the mechanism's default probability unless one is given."""

    @abstractmethod
    def probability(self, mechanism: Any, agreement: float) -> float: ...

    @pytest.mark.parametrize("probability", [0.6, 0.95, 0.999])
    def test_the_required_agreement_is_just_enough(self, probability: float) -> None:
        for mechanism in (self.mechanism, self.noisier):
            required = self.required(mechanism, probability)
            assert self.probability(mechanism, required) >= probability - 1e-9
            assert self.probability(mechanism, required - self.step) < probability

    def test_by_default_nineteen_of_twenty_releases_are_right(self) -> None:
        assert self.required(self.mechanism) == self.required(self.mechanism, 0.95)

    def test_more_noise_or_certainty_requires_more(self) -> None:
        likely, noisy, sure = (
            self.required(mechanism, probability)
            for mechanism, probability in ((self.mechanism, 0.9), (self.noisier, 0.9), (self.mechanism, 0.99))
        )
        assert likely < noisy
        assert likely < sure

    def test_what_no_agreement_reaches_is_refused(self) -> None:
        for probability in self.refused:
            with pytest.raises(ValueError):  # noqa: PT011  (nothing else is wrong)
                self.required(self.mechanism, probability)
