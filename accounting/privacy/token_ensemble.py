"""The cost of an answer of many tokens, each of them drawn from the opinions of the slots of *one* sample.

Given the tokens before it, each token is a mechanism of a bounded range. So the answer is their adaptive composition,
whose profile is the value iteration of :mod:`accounting.privacy.adaptive` without sampling. The sample is drawn once
for the answer, so sampling amplifies this profile, once: released tokens reveal whether a unit is in the sample, and
amplifying each token as if it had a sample of its own would promise too much.

Proof. Fix neighbours. Let A be the answer if the differing unit is not in the sample and B if it is. Given the tokens
before it, each token's law under A and B is a pair of an epsilon-bounded-range mechanism. So (A, B), in either order,
comes from a strategy of as many adaptive answers, whose divergence the value iteration bounds (Theorem 18 in
``docs/privacy/composition.md``). With the unit in the knowledge base the answer is (1 - q) A + q B, without it A: the
pair that :func:`accounting.privacy.subsampling.amplify` takes.
"""

import math
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from accounting.privacy.adaptive import LARGEST_LOSS, composed
from accounting.privacy.profiles import Array, BoundedRange, SymmetricProfile, require_positive

MOST_TOKENS = 320
"""Largest number of tokens of an answer: as many as the value iteration takes together."""
LARGEST_MU = 1.0
"""Above, drawing a sample once for a whole answer costs much more than drawing one for each token."""


@dataclass(frozen=True)
class TokenEnsembleProfile(SymmetricProfile):
    """A number of tokens, each drawn from the slots of the same sample by a mechanism of range ``epsilon``.

    Args:
        epsilon: range of a token's log-likelihood ratios, in nats.
        tokens: number of tokens paid for; shorter answers cost the same, since where a text ends is an output.

    Raises:
        ValueError: epsilon is not a positive number, or tokens is not a whole number from 1 to 320.
    """

    epsilon: float
    tokens: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if isinstance(self.tokens, bool) or not isinstance(self.tokens, int) or not 1 <= self.tokens <= MOST_TOKENS:
            raise ValueError(f"tokens must be a whole number from 1 to {MOST_TOKENS}, not {self.tokens!r}")

    @property
    def mu(self) -> float:
        """The answer's noise as that of a Gaussian: the distance of two means over the standard deviation."""
        return self.epsilon * math.sqrt(self.tokens) / 2

    def unsampled(self, count: int) -> tuple[SymmetricProfile, int]:
        """The profile of one token, and the number of tokens: nothing is amplified, so all of them compose."""
        return BoundedRange(self.epsilon), count * self.tokens

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        if self.epsilon * self.tokens > LARGEST_LOSS:  # too large to be of use: ranges add up
            return BoundedRange(self.epsilon * self.tokens).upper_delta(epsilon)
        found = composed(self.epsilon, self.tokens).upper(np.minimum(epsilon, LARGEST_LOSS))
        return np.asarray(np.where(epsilon < self.epsilon * self.tokens, found, 0.0))
