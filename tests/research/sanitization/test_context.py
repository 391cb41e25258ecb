"""The attacker with context is compared with going through all texts."""

import itertools

import numpy as np
import pytest

from research.sanitization.context import Bigrams, guesses
from sanitization.attacks import attack
from sanitization.medoids import medoids
from tests.sanitization.made_up import random_rows, vocabulary

pytestmark = pytest.mark.model

N, M = 5, 4
TEXTS = [[0, 1, 2], [0, 1, 1, 3], [3, 0, 1], [2]]
SHARES = np.arange(1, N + 1) / 15


def transition(bigrams: Bigrams) -> np.ndarray:
    return np.array([bigrams.forward(row) for row in np.eye(N)])


def test_bigrams_are_probabilities_and_favour_what_was_seen() -> None:
    bigrams = Bigrams(TEXTS, SHARES)
    law = transition(bigrams)
    np.testing.assert_allclose(law.sum(axis=1), 1)
    np.testing.assert_allclose(law, np.array([bigrams.backward(column) for column in np.eye(N)]).T)
    assert law[0].argmax() == 1
    np.testing.assert_allclose(law[4], bigrams.shares, err_msg="nothing was seen after it")
    counts = 100 * SHARES + np.bincount([word for text in TEXTS for word in text], minlength=N)
    np.testing.assert_allclose(bigrams.shares, counts / counts.sum())
    seen = (3 * np.eye(N)[1] + bigrams.shares) / 4, (np.eye(N)[[1, 2, 3]].sum(axis=0) + 3 * bigrams.shares) / 6
    np.testing.assert_allclose(law[:2], (np.array(seen) + bigrams.shares) / 2, err_msg="0: three times 1, nothing else")


@pytest.mark.parametrize("outputs", [[0], [1, 3], [2, 0, 0, 1]])
@pytest.mark.parametrize("seed", range(3))
def test_every_guess_is_the_likeliest(outputs: list[int], seed: int) -> None:
    """By enumeration of all texts of this length."""
    law, bigrams = random_rows(N, M, seed, zeros=0.2).law + 0.01, Bigrams(TEXTS, SHARES)
    law /= law.sum(axis=1, keepdims=True)
    follows = transition(bigrams)
    weight = np.zeros((len(outputs), N))
    for text in itertools.product(range(N), repeat=len(outputs)):
        chance = bigrams.shares[text[0]]
        chance *= np.prod([follows[a, b] for a, b in itertools.pairwise(text)])
        chance *= np.prod([law[x, y] for x, y in zip(text, outputs, strict=True)])
        for at, word in enumerate(text):
            weight[at, word] += chance
    np.testing.assert_array_equal(guesses(law[:, outputs], bigrams), weight.argmax(axis=1))


def test_no_text_no_guess() -> None:
    assert len(guesses(np.empty((N, 0)), Bigrams(TEXTS, SHARES))) == 0


def test_long_texts_do_not_underflow_and_context_helps() -> None:
    """Words always follow each other in a circle: one word reveals all the others."""
    words = vocabulary(40)
    circle = [[(start + step) % 40 for step in range(2000)] for start in range(3)]
    channel = medoids(words).response(2.0)
    bigrams = Bigrams(circle, words.shares)
    rng, law = np.random.default_rng(1), channel.rows(np.arange(40))
    outputs = np.array([rng.choice(len(law[0]), p=law[x]) for x in circle[0]])
    found = guesses(law[:, outputs], bigrams)
    right = float((found == np.array(circle[0])).mean())
    assert right > 0.6 > 2 * attack(channel, words).bayes
