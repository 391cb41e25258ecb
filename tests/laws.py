"""Tests of a claimed law, valid for finite samples.

Every statistical check returns a p-value: a count that is Binomial(runs, p) under the law claimed gives
2·min(P(X ≤ x), P(X ≥ x)), and the smallest of m such values is multiplied by m (Bonferroni). A right sampler fails one
check with probability at most ALPHA = 1e-9; there are about 100 in all tests, which together fail by chance with a
probability of about 1e-7. Where a wrong sampler must be rejected, it escapes less than once in 10⁹ runs.
"""

import numpy as np
import pytest
from scipy import stats

from aggregation import keyword_joint_em

ALPHA = 1e-9

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For laws of the sampler alone; other tests show that both kinds of database return the exemplars that it draws."""


def p_value(counts: np.ndarray, runs: int, probabilities: np.ndarray | float) -> float:
    """The p-value of the hypothesis that every count is Binomial(runs, its probability)."""
    counts = np.asarray(counts)
    one_sided = np.minimum(
        stats.binom.cdf(counts, runs, probabilities), stats.binom.sf(counts - 1, runs, probabilities)
    )
    return float(min(1.0, 2 * one_sided.min() * counts.size))


def probability_of_top_k(mechanism: keyword_joint_em.JointExponentialMechanism, counts: list[int]) -> float:
    """The probability that a true top k is released, in order: such a sequence has weight 1 in the sampler's sum."""
    _, reach = mechanism._rank(np.array(counts))
    return keyword_joint_em._sequences(reach)[0] / float(sum(mechanism._weights(reach)))
