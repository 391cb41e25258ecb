"""Public medoids: words that stand for the words around them.

Greedy facility location (Cornuejols, Fisher, Nemhauser 1977) on public frequencies: each next medoid is the word that
saves most of Σπ(x)·c(x, nearest medoid), c = d²/2 (1 - cosine of unit vectors). One order serves any number of them.
How much a word saves only shrinks, so old savings are bounds, and few are computed again (Minoux 1978).
Only the most frequent words may become medoids, so time and memory grow with the vocabulary, not with its square.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from sanitization.response import RandomisedResponse
from sanitization.vocabulary import FloatArray, IntArray, Vocabulary, blocks, distances

MOST = 1500
"""Medoids looked for: with more, keeping words is as good."""
CANDIDATES = 6000
"""Number of words that may become medoids."""


@dataclass(frozen=True, eq=False)
class Medoids:
    """An order of medoids, and what each number of them costs."""

    vocabulary: Vocabulary
    order: IntArray
    """Words, the most useful medoid first, (m,)."""
    nearest_cost: FloatArray
    """Σπ(x)·c(x, nearest of the first j), j = 1..m."""
    random_cost: FloatArray
    """Σπ(x)·Σc(x, s) over the first j."""

    def best_count(self, epsilon: float) -> int:
        """The number of medoids with the least expected cost of randomised response, at least 2."""
        gain, counts = math.expm1(epsilon), np.arange(1, len(self.order) + 1)
        cost = (gain * self.nearest_cost + self.random_cost) / (gain + counts)
        return 2 + int(cost[1:].argmin())

    def response(self, epsilon: float, count: int | None = None) -> RandomisedResponse:
        """``medoid_rr`` with this many medoids, or the best number."""
        chosen = self.order[: count or self.best_count(epsilon)]
        places = self.vocabulary.vectors[chosen]
        near = [distances(self.vocabulary.vectors[x], places).argmin(axis=1) for x in blocks(len(self.vocabulary))]
        names = [self.vocabulary.words[at] for at in chosen]
        return RandomisedResponse(self.vocabulary.words, names, np.concatenate(near)[:, None], epsilon)


def medoids(vocabulary: Vocabulary, most: int = MOST, *, candidates: int = CANDIDATES) -> Medoids:
    """The greedy order of at most ``most`` medoids, chosen from the ``candidates`` most frequent words."""
    frequent = np.argsort(-vocabulary.shares, kind="stable")[:candidates]
    count = min(most, len(frequent))
    cost = _costs(vocabulary, frequent)
    shares = vocabulary.shares.astype(np.float32)
    totals = cost @ shares
    first = int(totals.argmin())
    order, best = [first], cost[first].copy()
    nearest_cost, random_cost = [float(totals[first])], [float(totals[first])]
    savings = [(-float(shares @ np.maximum(best - row, 0)), at, 1) for at, row in enumerate(cost) if at != first]
    heapq.heapify(savings)
    while len(order) < count:
        _, at, known = heapq.heappop(savings)
        if known < len(order):
            heapq.heappush(savings, (-float(shares @ np.maximum(best - cost[at], 0)), at, len(order)))
            continue
        order.append(at)
        np.minimum(best, cost[at], out=best)
        nearest_cost.append(float(shares @ best))
        random_cost.append(random_cost[-1] + float(totals[at]))
    return Medoids(vocabulary, frequent[order], np.array(nearest_cost), np.array(random_cost))


def _costs(vocabulary: Vocabulary, words: IntArray) -> np.ndarray:
    """c of these words to all, float32 (len(words), n): only an order of public words hangs on its last digits."""
    costs = np.empty((len(words), len(vocabulary)), dtype=np.float32)
    for x in blocks(len(words)):
        costs[x] = distances(vocabulary.vectors[words[x]], vocabulary.vectors) ** 2 / 2
    return costs
