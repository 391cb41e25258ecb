"""CUSTEXT+ (Chen, Mo, Wang, Chen, Nie, Wang, Cui: "A Customized Text Sanitization Mechanism with Differential Privacy",
Findings of ACL 2023, arXiv 2207.01193), as its code has it (``utils.py``).

A word is replaced by one of a list of K. Its code cuts the vocabulary into such lists ("conservative", the default) or
gives each word the list of its K nearest ("aggressive"). The paper's bound compares words with the same list. Words of
different lists share no output, so ε is infinite. Words it does not know it sends as they are.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.published.santext import exponential
from sanitization.vocabulary import FloatArray, IntArray


@dataclass(frozen=True)
class CusText(OnWords):
    """The exponential mechanism within a word's list.

    Args:
        epsilon: nominal.
        size: words in a list (K).
        aggressive: a list of its own for each word.
    """

    epsilon: float
    size: int = 20
    aggressive: bool = False

    @cached_property
    def clusters(self) -> list[IntArray]:
        """The vocabulary in lists: the most frequent word that has none yet, with the K-1 nearest that have none."""
        free = np.ones(len(self.vocabulary), dtype=bool)
        clusters = []
        for word in np.argsort(-self.vocabulary.shares, kind="stable"):
            if free[word]:
                distance = self.vocabulary.distances(np.array([word]))[0]
                candidates = np.flatnonzero(free)
                order = np.argsort(distance[candidates], kind="stable")[: self.size]
                clusters.append(candidates[order])
                free[clusters[-1]] = False
        return clusters

    @cached_property
    def _lists(self) -> dict[int, IntArray]:
        return {int(word): cluster for cluster in self.clusters for word in cluster}

    @override
    def rows(self, x: IntArray) -> FloatArray:
        law = np.zeros((len(x), len(self.vocabulary)))
        for row, (word, distance) in enumerate(zip(x, self.vocabulary.distances(x), strict=True)):
            own = np.argsort(distance, kind="stable")[: self.size] if self.aggressive else self._lists[int(word)]
            near = distance[own]
            law[row, own] = exponential(-self.epsilon / 2 * (near / (near.max() or 1))[None])[0]
        return law
