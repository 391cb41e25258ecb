import math

import numpy as np
import pytest
from scipy import stats

from accounting.plan import SMALLEST_DELTA
from aggregation.rehearsal import ESCAPES, REPEATS, Counts, Rehearsal, most_turned


@pytest.mark.parametrize(("answers", "change"), [(64, 0.01), (640, 0.42), (4800, 0.065), (10, 0.5), (64, 1.0)])
def test_more_answers_than_stated_hardly_ever_turn(answers: int, change: float) -> None:
    turned = most_turned(answers, change)
    assert stats.binom.sf(turned, answers, change) <= ESCAPES
    exact = int(stats.binom.isf(ESCAPES, answers, change))
    assert exact <= turned <= 1.1 * exact + 2  # Chernoff's bound gives little away


def test_what_the_promised_delta_leaves_out_is_negligible_beside_it() -> None:
    assert ESCAPES <= 1e-3 * SMALLEST_DELTA


@pytest.mark.parametrize("rehearsal", [Rehearsal(2.0, 1, 1e-9, 1e-9), Rehearsal(2.0, 1000, 0.05, 0.2)])
def test_nobody_moves_the_counts_further_than_is_paid_for(rehearsal: Rehearsal) -> None:
    """In units of each count's noise: all that a question may count, and as many turned answers as there may be."""
    deviations = np.array([rehearsal.sigma, rehearsal.sigma_others, rehearsal.sigma_others])
    paid = 1 / rehearsal.noise_multiplier
    points = np.array([(c, 1, b) for c in np.linspace(0, 1, 65) for b in (0, 1)] + [(0, 0, 0)])
    questioner = max(np.linalg.norm((points - point) / deviations, axis=1).max() for point in points)
    answerer = most_turned(rehearsal.most * REPEATS, rehearsal.change) / REPEATS / rehearsal.sigma
    assert questioner == pytest.approx(paid)
    assert questioner <= paid
    assert answerer <= paid
    assert answerer == pytest.approx(paid) or rehearsal.sensitivity == math.sqrt(3)


def test_an_answerer_takes_part_a_little_more_often_than_expected_at_most() -> None:
    assert Rehearsal(2.0, 1000, 0.05, 0.2).most == 65  # 50 are expected
    assert Rehearsal(2.0, 3, 0.9, 0.2).most == 3


def test_noise_has_the_stated_deviations() -> None:
    rehearsal = Rehearsal(1.5, 100, 0.1, 0.3)
    counts = np.array([70 * REPEATS, 100, 50])
    drawn = np.array([[c.right, c.answered, c.zero_shot] for c in (rehearsal.release(counts) for _ in range(2000))])
    deviations = np.array([rehearsal.sigma, rehearsal.sigma_others, rehearsal.sigma_others])
    error = 6 / math.sqrt(2000)
    assert (np.abs(drawn.mean(axis=0) - [70, 100, 50]) < error * deviations).all()
    assert drawn.std(axis=0) == pytest.approx(deviations, rel=error)


@pytest.mark.parametrize(("accuracy", "asked", "sigma"), [(0.75, 500, 10.0), (0.97, 300, 20.0), (0.4, 60, 30.0)])
def test_the_interval_holds_95_of_100_times(accuracy: float, asked: int, sigma: float) -> None:
    """Questions drawn, noise drawn; at most 500 could be asked."""
    rng, runs = np.random.default_rng(1), 1000
    right = rng.binomial(asked, accuracy, runs)
    zero_shot = rng.binomial(asked, accuracy - 0.2, runs)
    deviations = np.array([sigma, sigma / 3, sigma / 3])
    noisy = np.stack([right, np.full(runs, asked), zero_shot], axis=1) + deviations * rng.standard_normal((runs, 3))
    held = np.zeros(2)
    for row in noisy:
        counts = Counts(*row, sigma, sigma / 3, 500)
        low, high = counts.accuracy
        below, above = counts.zero_shot_accuracy
        held += low - 1e-3 <= accuracy <= high + 1e-3, below - 1e-3 <= accuracy - 0.2 <= above + 1e-3
    assert (held / runs > 0.95 - 5 * math.sqrt(0.05 * 0.95 / runs)).all()


def test_nothing_is_claimed_where_there_is_only_noise() -> None:
    low, high = Counts(right=3.0, answered=-8.0, zero_shot=1.0, sigma=50.0, sigma_others=50.0, questions=100).accuracy
    assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize("wrong", [(1.0, 0, 0.1, 0.1), (1.0, 5, 0.0, 0.1), (1.0, 5, 0.1, 1.5)])
def test_parameters_out_of_range_are_refused(wrong: tuple[float, int, float, float]) -> None:
    with pytest.raises(ValueError, match="rehearsal"):
        Rehearsal(*wrong)
