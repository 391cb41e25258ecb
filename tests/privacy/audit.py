"""A statistical attack on neighbouring inputs: how large must ε at least be, given what came out?

An adversary who must tell two neighbouring knowledge bases apart picks a set of labels and says "the second one" when
the answer falls in it. (ε, δ)-DP bounds how well that can work: P₁ ≤ e^ε·P₀ + δ. Clopper-Pearson intervals for both
probabilities turn observed frequencies into a lower bound on ε that is wrong with probability at most ``error``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from accounting.events import Event, Sampling
from accounting.pld import PldAccountant
from accounting.profiles import Mechanism

ERROR = 1e-7
"""Chance that one interval is wrong. An audit looks at no more than a hundred."""


@dataclass(frozen=True)
class Verdict:
    """What the audit found at one δ."""

    delta: float
    claimed: float
    lower_bound: float

    @property
    def caught(self) -> bool:
        """Whether the claim is certainly false."""
        return self.lower_bound > self.claimed


def epsilon_lower_bound(hits0: int, hits1: int, trials: int, delta: float) -> float:
    """Largest ε that P₁ ≤ e^ε·P₀ + δ certainly needs, 0 if none."""
    low1 = stats.beta.ppf(ERROR, hits1, trials - hits1 + 1) if hits1 else 0.0
    high0 = stats.beta.ppf(1 - ERROR, hits0 + 1, trials - hits0) if hits0 < trials else 1.0
    return max(0.0, math.log((low1 - delta) / high0)) if low1 > delta else 0.0


def audit(
    one: Callable[[], int],
    other: Callable[[], int],
    *,
    labels: int,
    trials: int,
    mechanism: Mechanism,
    probability: float,
    deltas: Sequence[float],
) -> list[Verdict]:
    """Attack a pipeline that claims a Poisson-sampled release.

    Args:
        one: draws an answer (a label's index) from a knowledge base.
        other: draws an answer from its neighbour.
        labels: number of labels.
        trials: answers drawn from each.
        mechanism: claimed profile of one answer, before sampling.
        probability: claimed sampling probability.
        deltas: where the claim is tested.
    """
    counts = [np.bincount([draw() for _ in range(trials)], minlength=labels) for draw in (one, other)]
    return judge(counts, mechanism=mechanism, probability=probability, deltas=deltas)


def judge(
    counts: Sequence[np.ndarray], *, mechanism: Mechanism, probability: float, deltas: Sequence[float]
) -> list[Verdict]:
    """Hold a claim against answers already drawn.

    Args:
        counts: how often each label came out, from a knowledge base and from its neighbour; int (labels,) each, with
            the same sum.
        mechanism: claimed profile of one answer, before sampling.
        probability: claimed sampling probability.
        deltas: where the claim is tested.
    """
    labels, trials = len(counts[0]), int(counts[0].sum())
    event = Event(mechanism, Sampling("units", probability), 1)
    verdicts = []
    for delta in deltas:
        bounds = [
            epsilon_lower_bound(int(zero[list(chosen)].sum()), int(first[list(chosen)].sum()), trials, delta)
            for zero, first in (counts, counts[::-1])
            for size in range(1, labels)
            for chosen in itertools.combinations(range(labels), size)
        ]
        verdicts.append(Verdict(delta, PldAccountant().bounds([event], delta).upper, max(bounds)))
    return verdicts
