"""A lower bound on ε, from how often an attacker was seen to succeed.

To distinguish two neighbours, an attacker picks a set of outcomes, and guesses "the second one" when the answer falls
in it. (ε, δ)-DP bounds how well that can work: P₁ ≤ e^ε·P₀ + δ. One-sided Clopper-Pearson intervals for both
probabilities turn frequencies into a bound that holds whatever the number of trials.
"""

import math

from scipy import stats


def epsilon_lower_bound(hits0: int, hits1: int, trials: int, delta: float, error: float) -> float:
    """The largest ε, in nats, that P₁ ≤ e^ε·P₀ + δ certainly needs; 0 if it holds without any.

    Args:
        hits0: trials with the first neighbour in which the event was seen.
        hits1: the same with the second.
        trials: number of trials with each, independent of each other and of the choice of the event.
        delta: δ of the promise.
        error: probability that one interval is wrong; the bound is wrong with twice this, at most.
    """
    low1 = stats.beta.ppf(error, hits1, trials - hits1 + 1) if hits1 else 0.0
    high0 = stats.beta.ppf(1 - error, hits0 + 1, trials - hits0) if hits0 < trials else 1.0
    return max(0.0, math.log((low1 - delta) / high0)) if low1 > delta else 0.0
