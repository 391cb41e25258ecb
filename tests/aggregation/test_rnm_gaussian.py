import math

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from aggregation.noise import ONE
from aggregation.rnm_gaussian import RnmGaussian, probability_correct, required_margin
from aggregation.votes import sum_votes
from tests.aggregation.contract import MechanismContract, PlanningContract
from tests.aggregation.test_noise import NO_NOISE
from tests.laws import ALPHA, p_value

TRIALS = 4_000
LABELS = 4
anything = st.one_of(
    st.none(),
    st.sampled_from([*np.eye(LABELS)]),
    arrays(np.float64, LABELS, elements=st.floats(allow_nan=True, allow_infinity=True)),
    arrays(np.float64, LABELS, elements=st.floats(0, 1)).map(lambda a: a / a.sum() if a.sum() else a),
    arrays(np.float64, st.integers(0, 6), elements=st.floats(0, 1)),
)


class Hostile:
    def __array__(self, *_args: object, **_options: object) -> np.ndarray:
        raise RuntimeError("a tensor that wants its gradient")


UNUSABLE = [
    None,
    np.array([0.5, 0.5]),
    np.array([np.nan, 0.5, 0.5, 0]),
    np.array([np.inf, 0, 0, 0]),
    np.array([-0.1, 0.6, 0.5, 0]),
    np.array([0.9, 0.9, 0.9, 0]),
    np.zeros(4),
    np.array(["a", "b", "c", "d"]),
    "no vector",
    [10**400, 0, 0, 0],
    np.array([1e308, 1e308, 0, 0]),
    Hostile(),
]


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


class TestHardVotes(MechanismContract, PlanningContract):
    mechanism = RnmGaussian(1.0, LABELS)
    noisier = RnmGaussian(3.0, LABELS)
    wrong = [{"noise_multiplier": z} for z in NO_NOISE]
    contributions = anything
    usable = [np.eye(LABELS)[0], np.full(LABELS, 0.25)]
    unusable = UNUSABLE
    squared = {"removed": ONE**2, "replaced": 2 * ONE**2}
    worst = [([np.eye(LABELS)[0]], [np.eye(LABELS)[1]])]
    refused = (*PlanningContract.refused, 1 / LABELS, 0.2)

    def statistic(self, contributions):
        return sum_votes(contributions, LABELS, self.mechanism.vote)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions, np.full(LABELS, 0.25))

    def is_public(self, released):
        return released in range(LABELS)

    def required(self, mechanism, *probability):
        return required_margin(mechanism.sigma, LABELS, *probability)

    def probability(self, mechanism, agreement):
        return probability_correct(agreement, mechanism.sigma, LABELS)


class TestSoftVotes(TestHardVotes):
    mechanism = RnmGaussian(1.0, LABELS, "soft", prior_weight=2.0)
