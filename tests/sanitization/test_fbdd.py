"""FBDD against closed forms and against its own draws."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from research.sanitization.as_published import PUBLISHED
from sanitization.attacks import attack
from sanitization.audit import audit
from sanitization.published import fbdd
from sanitization.published.fbdd import Fbdd, FbddOnSpans, metric_noise, nominal_epsilon
from sanitization.vocabulary import Vocabulary
from tests.sanitization.made_up import vocabulary

LINE = Vocabulary([f"w{i}" for i in range(5)], [[0.0], [0.3], [1.0], [1.4], [3.0]])
WORDS = vocabulary(60, 12)
EVERY = np.arange(60)


def laplace_law(words: Vocabulary, epsilon: float) -> np.ndarray:
    """In one dimension the noise is Laplace's, and a word's cell ends halfway to its neighbours."""
    places = words.vectors[:, 0]
    ends = [-np.inf, *((a + b) / 2 for a, b in pairwise(places)), np.inf]
    return np.stack([np.diff(stats.laplace.cdf(ends, place, 1 / epsilon)) for place in places])


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_one_dimension(epsilon: float) -> None:
    law = Fbdd(LINE, epsilon, draws=100_000).rows(np.arange(5))
    np.testing.assert_allclose(law, laplace_law(LINE, epsilon), atol=0.008)
    np.testing.assert_allclose(law.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("dimensions", [2, 3, 24])
def test_two_words(dimensions: int) -> None:
    """The other word is sent if the noise along the line between them is more than half of it. Given its length r, that
    has the law of a coordinate on the sphere: (1 - I(a²/r²; ½, (d-1)/2)) / 2 beyond a."""
    epsilon, distance = 4.0, 1.0
    two = Vocabulary(["no", "yes"], np.eye(dimensions)[:2] * distance / math.sqrt(2))
    length = stats.gamma(dimensions, scale=1 / epsilon)

    def beyond(r: float) -> float:
        return length.pdf(r) * (1 - special.betainc(0.5, (dimensions - 1) / 2, (distance / 2 / r) ** 2)) / 2

    exact = integrate.quad(beyond, distance / 2, length.isf(1e-12))[0]
    assert Fbdd(two, epsilon, draws=100_000).rows(np.array([0]))[0, 1] == pytest.approx(exact, abs=0.005)


def frequencies(epsilon: float, draws: int = 40_000) -> np.ndarray:
    """Shares of the words that a word becomes when noise is really added to it."""
    noisy = WORDS.vectors[0] + fbdd.metric_noise(12, epsilon, draws, np.random.default_rng(5))
    squares = ((noisy[:, None, :] - WORDS.vectors) ** 2).sum(axis=2)
    return np.bincount(squares.argmin(axis=1), minlength=60) / draws


def test_its_own_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate, which weighs points by density, is what drawing gives. A length by Gamma(1), as the code of
    PrivacyRestore has it on its server, gives another law."""
    law = Fbdd(WORDS, 8.0, draws=60_000).rows(np.array([0]))[0]
    drawn = frequencies(8.0)
    assert np.abs(law - drawn).max() < 0.012
    right = metric_noise
    monkeypatch.setattr(fbdd, "metric_noise", lambda d, *rest: right(d, *rest) / d)
    assert np.abs(law - frequencies(8.0)).max() > 0.1


def test_the_length_of_the_noise() -> None:
    lengths = np.linalg.norm(metric_noise(24, 3.0, 20_000, np.random.default_rng(1)), axis=1)
    assert stats.kstest(lengths, stats.gamma(24, scale=1 / 3).cdf).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [1.0, 6.0, 20.0])
def test_no_ratio_is_above_the_bound(epsilon: float) -> None:
    """Of the estimates neither, since all words weigh the same points."""
    channel = Fbdd(WORDS, epsilon, draws=20_000)
    logs = np.log(np.maximum(channel.rows(EVERY), 1e-300))
    distance = WORDS.distances(EVERY)
    for x in EVERY[::10]:
        assert (np.abs(logs - logs[x]).max(axis=1) <= epsilon * distance[x] + 0.3).all()
    assert audit(channel).epsilon < channel.bound == pytest.approx(epsilon * WORDS.diameter)
    exact = math.log(laplace_law(LINE, epsilon)[:, 0].max() / laplace_law(LINE, epsilon)[:, 0].min())
    assert exact == pytest.approx(Fbdd(LINE, epsilon).bound, rel=0.5)


def test_marked_words_hide_among_themselves_only() -> None:
    channel = FbddOnSpans(WORDS, 4.0, draws=10_000)
    classes = ["marked" if at in channel.private else "kept" for at in EVERY]
    found = audit(channel, classes=classes)
    assert (classes.count("marked"), found.epsilon) == (30, math.inf)
    assert found.by_class["marked"] <= channel.bound
    law = channel.rows(EVERY)
    kept = np.flatnonzero(np.array(classes) == "kept")
    assert (law[kept, kept] == 1).all()


def test_the_budgets_of_privacyrestore() -> None:
    """Table 6: words of a query or of its spans, the largest distance, and ε, at a budget of 150."""
    for words, diameter, epsilon in (
        (106, 1.64, 0.86),
        (72, 1.39, 1.50),
        (193, 1.45, 0.54),
        (49, 1.64, 1.86),
        (38, 1.39, 2.84),
        (42, 1.45, 2.46),
    ):
        two = Vocabulary(["a", "b"], [[0.0], [diameter]])
        assert nominal_epsilon(150, words, two) == pytest.approx(epsilon, abs=0.007)


def test_it_can_be_attacked_as_the_others() -> None:
    found = attack(PUBLISHED["fbdd"].channel(WORDS, 1.0), WORDS)
    assert found.prior <= found.bayes < 1.5 * found.prior, "the noise hides nearly all"
    assert attack(PUBLISHED["fbdd"].channel(WORDS, 400.0), WORDS).kept > 0.99
