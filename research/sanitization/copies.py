"""The leakage of independent copies of a word, which the service never gives."""

import numpy as np

from sanitization.channel import Channel
from sanitization.vocabulary import Vocabulary


def repeated(channel: Channel, vocabulary: Vocabulary, copies: int, *, most: int = 1500, runs: int = 2000) -> float:
    """Share of Bayes' guesses that are right after independent ``copies`` of one word, by simulation (±1 % or so).

    Hence the same text must not be drawn again: a repeat has to get the same output.
    """
    x = np.argsort(-vocabulary.shares, kind="stable")[:most]
    prior = vocabulary.shares[x] / vocabulary.shares[x].sum()
    law = channel.rows(x)
    generator = np.random.default_rng()
    truth = generator.choice(len(x), runs, p=prior)
    with np.errstate(divide="ignore"):
        score = np.tile(np.log(prior), (runs, 1))
        logarithm = np.log(law)
    cumulative = np.cumsum(law, axis=1)
    for _ in range(copies):
        points = generator.random(runs)
        seen = [
            min(int(np.searchsorted(cumulative[at], p)), law.shape[1] - 1) for at, p in zip(truth, points, strict=True)
        ]
        score += logarithm[:, seen].T
    return float((score.argmax(axis=1) == truth).mean())
