import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

from accounting.plans.mechanisms import RnmGaussianMechanism
from aggregation.posterior import SMOOTHING, LabelPosterior, PosteriorParameters, expected_voters

CALIBRATION = PosteriorParameters(prior=0.8, decisiveness=6.0, lead=0.2, echo=0.7)
ZERO_SHOT = np.array([0.6, 0.3, 0.1])
SHARES = (np.arange(100) + 0.5) / 100
HARD, SOFT = (
    PosteriorParameters(signed.calibration.prior, signed.decisiveness(6), signed.calibration.lead, echo=1.0)
    for signed in (RnmGaussianMechanism(type="rnm_gaussian", vote=vote) for vote in ("hard", "soft"))
)
Density = Callable[[np.ndarray], np.ndarray]


def smoothed(zero_shot: np.ndarray) -> np.ndarray:
    return (1 - SMOOTHING) * zero_shot + SMOOTHING / len(zero_shot)


def belief(zero_shot: np.ndarray, sigma: float, n: float, c: PosteriorParameters) -> np.ndarray:
    """Probabilities of the labels before any vote: the less noise there is, the less zero-shot counts."""
    variance = n**2 * c.lead / c.decisiveness
    heard = c.echo * variance / (variance + sigma**2)
    return special.softmax((1 - heard) * c.prior * np.log(smoothed(zero_shot)) + np.log(c.weights or 1))


def densities(labels: int, c: PosteriorParameters) -> tuple[Density, Density]:
    """Densities of a label's share of the votes if it is wrong, and if it is right."""
    power = c.decisiveness / math.log(50)
    shape = power / (c.lead * labels)
    wrong, right = (stats.gamma(k, scale=1 / labels / shape) for k in (shape, shape + power))
    return wrong.pdf, right.pdf


def laws(labels: int, c: PosteriorParameters) -> list[np.ndarray]:
    """The same two laws, on multiples of 1 %."""
    found = [density(SHARES) for density in densities(labels, c)]
    return [law / law.sum() for law in found]


def by_enumeration(
    noisy: np.ndarray, zero_shot: np.ndarray, sigma: float, slots: int, c: PosteriorParameters
) -> np.ndarray:
    """Bayes' rule as the model is written: the likelihood of all labels' votes, for each label that may be right."""
    n = expected_voters(float(noisy.sum()), sigma * math.sqrt(len(noisy)), slots)
    found, (wrong, right) = belief(zero_shot, sigma, n, c), laws(len(noisy), c)
    for label in range(len(noisy)):
        for other, seen in enumerate(noisy):
            density = stats.norm.pdf(seen, n * SHARES, math.hypot(sigma, 0.02 * n))
            found[label] *= density @ (right if other == label else wrong)
    return found / found.sum()


@pytest.mark.parametrize(("sigma", "echo"), [(0.5, 0.7), (3.0, 0.7), (3.0, 0.0), (3.0, 2.0), (20.0, 0.7)])
@pytest.mark.parametrize("weights", [(), (0.2, 1.5, 4.0)])
def test_it_is_bayes_rule_in_the_model(sigma: float, echo: float, weights: tuple[float, ...]) -> None:
    c = replace(CALIBRATION, echo=echo, weights=weights)
    for noisy in ([9.0, 8.0, 3.0], [2.0, 7.5, 4.0], [-6.0, 1.0, 12.0]):
        found = LabelPosterior(sigma, 20, c).probabilities(np.array(noisy), ZERO_SHOT)
        assert found == pytest.approx(by_enumeration(np.array(noisy), ZERO_SHOT, sigma, 20, c), rel=1e-6)


@pytest.mark.parametrize("sigma", [1.0, 5.0, 20.0])
def test_shares_that_are_not_multiples_of_a_percent_change_little(sigma: float) -> None:
    noisy, found = np.array([25.0, 60.0, 15.0]), belief(ZERO_SHOT, sigma, 100.0, CALIBRATION)
    wrong, right = densities(3, CALIBRATION)

    def likelihood(votes: float, density: Density) -> float:
        chance = stats.norm(votes, math.hypot(sigma, 2)).pdf
        return integrate.quad(lambda s: density(s) * chance(100 * s), 0, 1, limit=500)[0]

    found *= [likelihood(votes, right) / likelihood(votes, wrong) for votes in noisy]
    posterior = LabelPosterior(sigma, 100, CALIBRATION)
    assert np.exp(posterior.log_probabilities(noisy, ZERO_SHOT, 100.0)) == pytest.approx(found / found.sum(), abs=0.01)


def test_a_label_that_weighs_twice_as_much_has_twice_the_odds() -> None:
    """This holds whatever zero-shot and the votes are; the lead to take is that of labels of equal weight."""
    weighed = replace(CALIBRATION, weights=(1.0, 2.0, 1.0))
    for sigma in (0.1, 5.0, 1e4):
        both = [LabelPosterior(sigma, 20, c) for c in (CALIBRATION, weighed)]
        plain, found = (posterior.probabilities(np.array([9.0, 8.0, 3.0]), ZERO_SHOT) for posterior in both)
        assert found / found[0] == pytest.approx(plain / plain[0] * [1, 2, 1])
        assert both[0].lead_against(4.0, 20, 3) == both[1].lead_against(4.0, 20, 3)


@pytest.mark.parametrize("sure", [0.99, 0.999])
@pytest.mark.parametrize("labels", [2, 4, 6, 50])
@pytest.mark.parametrize("calibration", [replace(HARD, decisiveness=7.0), SOFT], ids=["hard", "soft"])
def test_slots_that_agree_overrule_zero_shot_that_is_sure(
    sure: float, labels: int, calibration: PosteriorParameters
) -> None:
    """Zero-shot is as sure as language models are."""
    zero_shot = np.full(labels, (1 - sure) / (labels - 1))
    zero_shot[0] = sure
    for sigma in (0.01, 0.3, 1.0, 3.0):
        posterior = LabelPosterior(sigma, 100, calibration)
        for votes, least in ((95, 0.9), (100, 0.95)):
            noisy = np.zeros(labels)
            noisy[:2] = 100 - votes, votes
            assert posterior.probabilities(noisy, zero_shot)[1] >= least
            assert replace(posterior, calibration=HARD).probabilities(noisy, zero_shot).argmax() == 1


@pytest.mark.slow
@pytest.mark.parametrize("sure", [0.0, 0.5, 0.99, 0.999])
@pytest.mark.parametrize("labels", [2, 4, 6, 50])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
def test_more_votes_for_a_label_never_lower_its_probability(sigma: float, labels: int, sure: float) -> None:
    zero_shot = np.full(labels, (1 - sure) / (labels - 1))
    zero_shot[0] = sure
    for calibration, label in itertools.product((HARD, SOFT), (0, 1)):
        posterior = LabelPosterior(sigma, 100, calibration)
        # The number of votes is fixed: they move from one other label, or from all others alike.
        other = 1 - label
        for give in (np.eye(labels)[other], (1 - np.eye(labels)[label]) / (labels - 1)):
            votes = np.arange(101.0)[:, None]
            found = posterior.probabilities((100 - votes) * give + votes * np.eye(labels)[label], zero_shot)[:, label]
            assert (np.diff(found) > -1e-12).all()
            assert found[-1] > found[0]
        # Only the label's own votes change, noise included.
        noisy = np.full((401, labels), 10.0)
        noisy[:, label] = np.linspace(-200, 200, 401)
        found = np.exp(posterior.log_probabilities(noisy, zero_shot, np.full((401, 1), 100.0)))[:, label]
        assert (np.diff(found) > -1e-12).all()


@pytest.mark.parametrize("sigma", [0.5, 5.0, 15.0])
def test_the_lead_that_makes_up_for_zero_shot(sigma: float) -> None:
    posterior = LabelPosterior(sigma, 100, CALIBRATION)
    lead = posterior.lead_against(4.0, 100, 3)
    assert lead is not None

    def likeliest(more: int) -> int:
        noisy = (100 - lead - more) / 3 + (lead + more) * np.eye(3)[0]
        return posterior.log_probabilities(noisy, np.array([1.0, 4.0, 4.0]), 100.0).argmax()

    assert likeliest(0) == 0 < lead
    assert likeliest(-1) != 0


def test_no_lead_makes_up_for_zero_shot_in_too_much_noise() -> None:
    assert LabelPosterior(1e5, 100, CALIBRATION).lead_against(4.0, 100, 3) is None


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
    """However unlikely the noise, its votes cause no error and no warning; warnings are errors here."""
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
