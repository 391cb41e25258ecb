import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregation.accuracy import Accuracy, RightAnswers, largest_error, standard_error
from aggregation.noise import ONE
from tests.aggregation.contract import MechanismContract
from tests.aggregation.test_noise import NO_NOISE

COUNT = RightAnswers(2.0)
ANY = st.tuples(st.integers(-3, 2000), st.integers(-1, 1500))


class TestRightAnswers(MechanismContract):
    mechanism = COUNT
    wrong = [{"noise_multiplier": z} for z in NO_NOISE]
    contributions = ANY
    usable = [(3, 4), (0, 1)]
    unusable = [(0, 0), (5, 0), (1, -2)]
    squared = {"removed": ONE**2}
    worst = [([(1, 2), (7, 7)], [(1, 2)]), ([], [(0, 5)])]

    def statistic(self, contributions):
        return COUNT.sum(contributions)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions)

    def is_public(self, released):
        return 0 <= released.accuracy <= 1 and 0 <= released.standard_error <= 0.5 and released.units >= 1


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_unit_counts_once_whatever_it_holds(hits: int, texts: int) -> None:
    right, wrong = COUNT.sum([(hits, texts)]).tolist()
    assert right + wrong <= ONE
    assert right + wrong >= ONE - 1
    assert right / ONE == pytest.approx(min(hits, texts) / texts, abs=1e-11)


def test_a_sum_that_would_not_fit_stays_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregation.accuracy._LARGEST", 10 * ONE)
    assert COUNT.sum([(1, 1)] * 50 + [(0, 1)]).tolist() == [10 * ONE, ONE]


def test_the_noise_has_the_deviation_of_the_multiplier_on_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[int], float]] = []

    def noted(values: np.ndarray, sigma: float) -> np.ndarray:
        seen.append((values.tolist(), sigma))
        return values

    monkeypatch.setattr("aggregation.accuracy.add_gaussian_noise", noted)
    released = RightAnswers(3.5).release([(1, 1)] * 80 + [(1, 2)] * 20)
    assert seen == [([90 * ONE, 10 * ONE], 3.5)]
    assert (released.accuracy, released.units) == (0.9, 100)


@pytest.mark.parametrize(("units", "right", "sigma"), [(400, 0.9, 4.0), (1000, 0.5, 10.0), (150, 0.75, 1.0)])
def test_the_standard_error_is_that_of_many_releases(units: int, right: float, sigma: float) -> None:
    """Of 4,000 simulated releases; their deviation is right within 6 % except once in a million."""
    draw = np.random.default_rng(7)
    hits = draw.binomial(units, right, 4000)
    noise = draw.normal(0, sigma, (2, 4000))
    found = [Accuracy.of(h + a, units - h + b, sigma) for h, a, b in zip(hits, *noise, strict=True)]
    accuracies = np.array([one.accuracy for one in found])
    stated = math.sqrt(np.mean([one.standard_error**2 for one in found]))
    assert accuracies.mean() == pytest.approx(right, abs=5 * stated / math.sqrt(4000))
    assert accuracies.std() == pytest.approx(standard_error(units, sigma, right), rel=0.06)
    assert accuracies.std() == pytest.approx(stated, rel=0.06)
    assert np.mean([one.units for one in found]) == pytest.approx(units, abs=5 * sigma * math.sqrt(2 / 4000))


def test_few_units_leave_an_accuracy_unknown() -> None:
    unknown = Accuracy.of(-2.0, 1.5, 4.0)
    assert (unknown.standard_error, unknown.units) == (0.5, 1.0)
    assert Accuracy.of(3.0, -0.5, 0.1).accuracy == 1.0
    none_wrong = Accuracy.of(20.0, 0.0, 0.01)
    assert none_wrong.standard_error > 0.05  # not certain: one in twenty could well be wrong


def test_no_accuracy_has_a_larger_error_than_the_largest() -> None:
    for units, sigma in ((10, 0.1), (100, 3.7), (20, 30.0), (5000, 100.0)):
        errors = [standard_error(units, sigma, accuracy) for accuracy in np.linspace(0, 1, 101)]
        assert max(errors) == pytest.approx(largest_error(units, sigma))
