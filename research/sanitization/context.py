"""An attacker who also knows which words follow each other: Bayes' guess of each word from all outputs of a text.

A text is taken as a hidden Markov chain: words follow each other by bigrams counted in public text, and each emits its
output through the channel. Forward and backward sums (Baum et al. 1970) give every word's posterior given *all*
outputs, exactly. No ε per word bounds this attacker; a language model may know still more.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse

from sanitization.vocabulary import FloatArray, IntArray

_PRIOR = 100.0
"""Occurrences that the public frequencies count for."""


class Bigrams:
    """Probabilities of words after words: P(b|a) = ½·(c(ab) + t(a)·share(b)) / (c(a) + t(a)) + ½·share(b).

    c counts words and pairs, t(a) the different words seen after a: the rule of Witten and Bell (1991), and half of it
    only, since the attacker's texts are few: pairs never seen must not outweigh outputs.

    Args:
        texts: public ones, as places of words.
        shares: public frequencies of words, (n,), which the texts' own are added to.
    """

    def __init__(self, texts: Iterable[Sequence[int]], shares: FloatArray) -> None:
        n = len(shares)
        pairs: list[tuple[int, int]] = []
        counts = _PRIOR * shares
        for text in texts:
            pairs += pairwise(text)
            np.add.at(counts, np.array(text, dtype=np.int64), 1)
        self.shares: FloatArray = counts / counts.sum()
        before, after = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        counted = sparse.csr_array((np.ones(len(pairs)), (before, after)), shape=(n, n))
        counted.sum_duplicates()
        different = np.diff(counted.indptr)
        whole = np.asarray(counted.sum(axis=1)).ravel() + different
        self._counted = sparse.csr_array(sparse.diags_array(0.5 / np.maximum(whole, 1)) @ counted)
        self._rest: FloatArray = np.where(whole > 0, 0.5 + 0.5 * different / np.maximum(whole, 1), 1.0)

    def forward(self, now: FloatArray) -> FloatArray:
        """Σ_a now(a)·P(b|a), (n,)."""
        return np.asarray(self._counted.T @ now) + (now @ self._rest) * self.shares

    def backward(self, then: FloatArray) -> FloatArray:
        """Σ_b P(b|a)·then(b), (n,)."""
        return np.asarray(self._counted @ then) + self._rest * float(self.shares @ then)


def guesses(emitted: FloatArray, bigrams: Bigrams) -> IntArray:
    """The likeliest word at each place of a text, given all its outputs.

    Args:
        emitted: P(y|x) of the output at each place for all words x, (n, t).
        bigrams: bigrams of words.
    """
    length = emitted.shape[1]
    ahead = np.empty_like(emitted)
    state = bigrams.shares * emitted[:, 0] if length else bigrams.shares
    for at in range(length):
        if at:
            state = bigrams.forward(state) * emitted[:, at]
        state = state / state.sum()
        ahead[:, at] = state
    likeliest = np.empty(length, dtype=np.int64)
    behind = np.ones(len(emitted))
    for at in reversed(range(length)):
        likeliest[at] = int((ahead[:, at] * behind).argmax())
        behind = bigrams.backward(behind * emitted[:, at])
        behind /= behind.max()
    return likeliest
