import math

import numpy as np
import pytest
from scipy import stats

from aggregation.rnm_gaussian import RnmGaussian, probability_correct, required_margin
from tests.laws import ALPHA, p_value

TRIALS = 4_000


@pytest.mark.slow
@pytest.mark.parametrize("vote", ["hard", "soft"])
def test_release_probability_matches_the_closed_form_for_two_labels(vote) -> None:
    """Two labels, margin m: the leader wins with probability Φ(m / (σ√2)); half the variance escapes with 3e-10."""
    contributions = [np.array([1.0, 0.0])] * 5 + [np.array([0.0, 1.0])] * 3 + [None] * 2
    mechanism = RnmGaussian(noise_multiplier=1.5, labels=2, vote=vote)
    wins = np.array([sum(mechanism.release(contributions) == 0 for _ in range(TRIALS))])
    sigma = 1.5 * math.sqrt(2)
    assert p_value(wins, TRIALS, stats.norm.cdf(2 / (sigma * math.sqrt(2)))) > ALPHA
    assert p_value(wins, TRIALS, stats.norm.cdf(2 / sigma)) < ALPHA


def test_the_public_prior_counts_its_weight_in_votes() -> None:
    with_prior = RnmGaussian(noise_multiplier=1.0, labels=3, prior_weight=5.0)
    assert with_prior.select(np.array([4.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])) == 1
    assert with_prior.select(np.array([6.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])) == 0
    assert with_prior.select(np.array([4.0, 0.0, 0.0]), None) == 0
    assert RnmGaussian(1.0, 3).select(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])) == 0


def test_probability_correct_against_simulation_and_closed_form() -> None:
    assert probability_correct(3.0, 2.0, 2) == pytest.approx(stats.norm.cdf(3 / (2 * math.sqrt(2))), abs=1e-9)
    assert probability_correct(0.0, 2.0, 6) == pytest.approx(1 / 6, abs=1e-9)
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(400_000, 4)) * 2.0
    noise[:, 0] += 3.0
    simulated = (noise.argmax(axis=1) == 0).mean()
    assert probability_correct(3.0, 2.0, 4) == pytest.approx(simulated, abs=0.005)


@pytest.mark.parametrize("labels", [2, 4, 20])
def test_required_margin_inverts_probability_correct(labels: int) -> None:
    margin = required_margin(sigma=10.0, labels=labels, probability=0.95)
    assert probability_correct(margin, 10.0, labels) == pytest.approx(0.95, abs=1e-9)


@pytest.mark.parametrize("probability", [0.2, 0.25, 1.0, 1.5])
def test_an_unreachable_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="between 1/labels and 1"):
        required_margin(1.0, 4, probability)
