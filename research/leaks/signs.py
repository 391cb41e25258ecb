"""What an attacker learns from trials: a score of answers, and the event that distinguishes two worlds best.

The attacker learns from trials that are not counted afterwards, so that the event is fixed before it is counted, as
Clopper-Pearson intervals need. How well they learn decides only how high the bound is, never whether it holds.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from research.leaks.bounds import epsilon_lower_bound

Features = Mapping[str, float]
"""What is seen in all answers of a trial; what is not named is 0."""
_OFTEN = 5
"""Trials that a feature must be seen in: a rarer one only describes the trials that were learnt from."""
_THRESHOLDS = 200


@dataclass(frozen=True)
class Sign:
    """An event that is likelier in one of two worlds.

    Attributes:
        weights: weight of each feature in the score.
        threshold: score from which on the event is seen.
    """

    weights: Mapping[str, float]
    threshold: float

    def seen(self, trials: Sequence[Features]) -> int:
        """The number of trials in which the event is seen."""
        return int(np.sum(_scores(self.weights, trials) >= self.threshold))


def learn(without: Sequence[Features], with_canary: Sequence[Features], delta: float, error: float) -> Sign:
    """The sign of the canary that these trials show: linear discriminant analysis with a diagonal covariance.

    Args:
        without: trials without the canary.
        with_canary: equally many with it.
        delta: δ of the promise that is attacked.
        error: probability that one interval is wrong.
    """
    trials = len(without)
    zero, one = _moments(without), _moments(with_canary)
    weights = {}
    for name in {*zero, *one}:
        (n0, sum0, square0), (n1, sum1, square1) = zero[name], one[name]
        if n0 + n1 >= min(_OFTEN, trials):
            mean0, mean1 = sum0 / trials, sum1 / trials
            variance = (square0 + square1) / trials - mean0**2 - mean1**2
            weights[name] = (mean1 - mean0) / max(variance, 1 / trials)
    scores = _scores(weights, without), _scores(weights, with_canary)
    every = np.unique(np.concatenate(scores))
    candidates = every[np.linspace(0, len(every) - 1, min(len(every), _THRESHOLDS)).astype(int)]

    def worth(threshold: float) -> tuple[float, int]:
        hits0, hits1 = (int(np.sum(of >= threshold)) for of in scores)
        return bound(hits0, hits1, trials, delta, error), abs(hits1 - hits0)

    return Sign(weights, float(max(candidates, key=worth)))


def bound(hits0: int, hits1: int, trials: int, delta: float, error: float) -> float:
    """The larger lower bound on ε of an event seen with the canary, and of its absence without it.

    Removing the person and adding them are both promised, so either direction bounds the same ε.
    """
    return max(
        epsilon_lower_bound(hits0, hits1, trials, delta, error),
        epsilon_lower_bound(trials - hits1, trials - hits0, trials, delta, error),
    )


def _moments(trials: Sequence[Features]) -> dict[str, tuple[int, float, float]]:
    """By feature: number of trials that show it, sum, and sum of squares."""
    found: dict[str, tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))
    for trial in trials:
        for name, value in trial.items():
            number, total, squares = found[name]
            found[name] = number + 1, total + value, squares + value**2
    return found


def _scores(weights: Mapping[str, float], trials: Sequence[Features]) -> np.ndarray:
    """The score of each trial, rounded so that equal answers have equal ones."""
    scores = [sum(weights.get(name, 0.0) * value for name, value in sorted(trial.items())) for trial in trials]
    return np.round(np.array(scores), 9)
