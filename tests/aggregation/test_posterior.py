import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from aggregation.posterior import SMOOTHING, Calibration, LabelPosterior, expected_voters
from aggregation.rnm_gaussian import RnmGaussian

CALIBRATION = Calibration(prior=0.8, decisiveness=6.0, lead=0.2, echo=0.7)
ZERO_SHOT = np.array([0.6, 0.3, 0.1])


def smoothed(zero_shot: np.ndarray) -> np.ndarray:
    return (1 - SMOOTHING) * zero_shot + SMOOTHING / len(zero_shot)


def by_integration(noisy: np.ndarray, zero_shot: np.ndarray, sigma: float, slots: int, c: Calibration) -> np.ndarray:
    """Bayes' rule as the model is written: each label's likelihood integrated over the votes without noise."""
    n = expected_voters(float(noisy.sum()), sigma * math.sqrt(len(noisy)), slots)
    log_p, spread = np.log(smoothed(zero_shot)), math.sqrt(c.lead / c.decisiveness)
    belief = special.softmax(c.prior * log_p)
    for right in range(len(noisy)):
        for label, seen in enumerate(noisy):
            mean = n * (c.echo * c.prior / c.decisiveness * log_p[label] + c.lead * (label == right))

            def joint(votes, seen=seen, mean=mean):
                return stats.norm.pdf(seen, votes, sigma) * stats.norm.pdf(votes, mean, n * spread)

            middle, wide = [f(seen, mean) for f in (min, max)], 12 * (sigma + n * spread)
            bounds = middle[0] - wide, middle[1] + wide
            likelihood, _ = integrate.quad(joint, *bounds, points=middle, limit=400, epsabs=0, epsrel=1e-9)
            belief[right] *= likelihood
    return belief / belief.sum()


@pytest.mark.parametrize(("sigma", "echo"), [(0.5, 0.7), (3.0, 0.7), (3.0, 0.0), (3.0, 2.0), (20.0, 0.7)])
def test_it_is_bayes_rule_in_the_model(sigma: float, echo: float) -> None:
    c = Calibration(CALIBRATION.prior, CALIBRATION.decisiveness, CALIBRATION.lead, echo)
    for noisy in ([9.0, 8.0, 3.0], [2.0, 7.5, 4.0], [-6.0, 1.0, 12.0]):
        found = LabelPosterior(sigma, 20, c).probabilities(np.array(noisy), ZERO_SHOT)
        assert found == pytest.approx(by_integration(np.array(noisy), ZERO_SHOT, sigma, 20, c), rel=1e-6)


def test_what_it_claims_is_how_often_it_is_right_where_the_model_holds() -> None:
    """Answers drawn from the model: among those claimed with about the same probability, that share is right."""
    rng, draws, slots, sigma, c = np.random.default_rng(3), 20_000, 20, 3.0, CALIBRATION
    zero_shot = rng.dirichlet(np.ones(4), draws)
    posterior, claimed, right = LabelPosterior(sigma, slots, c), [], []
    for one in zero_shot:
        log_p = np.log(smoothed(one))
        truth = rng.choice(4, p=special.softmax(c.prior * log_p))
        votes = c.echo * c.prior / c.decisiveness * log_p + c.lead * np.eye(4)[truth]
        votes += math.sqrt(c.lead / c.decisiveness) * rng.standard_normal(4)
        votes += (1 - votes.sum()) / 4  # all slots vote: the constant of the model
        p = posterior.probabilities(slots * votes + sigma * rng.standard_normal(4), one)
        claimed.append(p.max())
        right.append(p.argmax() == truth)
    bins = np.digitize(claimed, [0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    for one in np.unique(bins):
        inside = bins == one
        error = math.sqrt(0.25 / inside.sum())
        assert abs(np.mean(np.array(right)[inside]) - np.mean(np.array(claimed)[inside])) < 6 * error + 0.01


def test_with_nothing_but_noise_zero_shot_decides() -> None:
    found = LabelPosterior(1e7, 10, CALIBRATION).probabilities(np.array([0.0, 5.0, 10.0]), ZERO_SHOT)
    assert found == pytest.approx(special.softmax(CALIBRATION.prior * np.log(smoothed(ZERO_SHOT))), rel=1e-5)


def test_without_noise_the_votes_alone_decide() -> None:
    c = Calibration(prior=1.0, decisiveness=6.0, lead=0.2, echo=1.0)
    found = LabelPosterior(0.01, 100, c).probabilities(np.array([30.0, 50.0, 20.0]), ZERO_SHOT)
    assert found == pytest.approx(special.softmax(6.0 * np.array([0.3, 0.5, 0.2])), rel=1e-3)


def test_reliability_grows_from_nothing_to_one() -> None:
    found = [LabelPosterior(sigma, 100, CALIBRATION).reliability(100.0) for sigma in (1e6, 100.0, 10.0, 1.0, 0.01)]
    assert found == sorted(found)
    assert found[0] < 1e-6 < 1 - 1e-6 < found[-1]
    assert LabelPosterior(1.0, 100, CALIBRATION).reliability(0.0) == 0.0
    # (n · spread)² = σ²: half of each
    assert LabelPosterior(100 * math.sqrt(0.2 / 6), 100, CALIBRATION).reliability(100.0) == pytest.approx(0.5)


def test_only_the_share_of_each_label_in_zero_shot_counts() -> None:
    posterior, noisy = LabelPosterior(3.0, 20, CALIBRATION), np.array([1.0, 8.0, 4.0])
    assert posterior.probabilities(noisy, 7 * ZERO_SHOT) == pytest.approx(posterior.probabilities(noisy, ZERO_SHOT))


@pytest.mark.parametrize("most", [1, 20, 1000])
@pytest.mark.parametrize("share_of_noise", [0.001, 0.05, 0.5, 3.0, 1000.0])
def test_expected_voters_against_quadrature(most: int, share_of_noise: float) -> None:
    sd = most * share_of_noise
    for total in (-6 * sd, -sd, 0.0, 0.3 * most, most, most + sd, most + 6 * sd):

        def density(n, total=total):
            nearest = min(max(total, 0.0), most)  # only ratios matter; this keeps them from vanishing
            return math.exp(((nearest - total) ** 2 - (n - total) ** 2) / (2 * sd**2))

        middle = min(max(total, 0.0), most)
        around = sorted({min(max(middle + k * sd, 0.0), most) for k in (-9, -3, -1, -0.1, 0, 0.1, 1, 3, 9)} | {0, most})
        mass, moment = (
            sum(integrate.quad(f, a, b)[0] for a, b in itertools.pairwise(around))
            for f in (density, lambda n: n * density(n))
        )
        assert expected_voters(total, sd, most) == pytest.approx(moment / mass, rel=1e-6, abs=1e-6 * most)


def test_extreme_values_give_probabilities() -> None:
    """Nothing that noise, however unlikely, can make of the votes fails or warns: warnings are errors here."""
    for sigma, slots, size, zero_shot in itertools.product(
        (0.01, 1.0, 1e6), (1, 10_000), (0.0, 1.0, 1e4, 1e9), ([1.0, 0.0], [0.5, 0.5])
    ):
        for signs in itertools.product((-1.0, 1.0), repeat=2):
            found = LabelPosterior(sigma, slots, CALIBRATION).probabilities(size * np.array(signs), np.array(zero_shot))
            assert np.isfinite(found).all()
            assert found.sum() == pytest.approx(1.0)
            assert (found >= 0).all()


def test_a_thousand_labels() -> None:
    found = LabelPosterior(2.0, 100, CALIBRATION).probabilities(60.0 * np.eye(1000)[7], np.full(1000, 1e-3))
    assert found.argmax() == 7


@pytest.mark.parametrize("vote", ["hard", "soft"])
def test_on_released_votes_it_prefers_what_most_slots_say(vote) -> None:
    mechanism = RnmGaussian(noise_multiplier=0.5, labels=3, vote=vote)
    posterior = LabelPosterior(mechanism.sigma, 60, CALIBRATION)
    noisy = mechanism.noisy_votes([np.eye(3)[2]] * 50 + [np.eye(3)[0]] * 5 + [None] * 5)
    assert noisy == pytest.approx([5, 0, 50], abs=10)  # 14 standard deviations
    assert posterior.probabilities(noisy, ZERO_SHOT).argmax() == 2
