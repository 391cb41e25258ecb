"""SANTEXT and SANTEXT+ (Yue, Du, Wang, Li, Sun, Chow: "Differential Privacy for Text Analytics via Natural Text
Sanitization", Findings of ACL 2021, arXiv 2106.01221), as their code has them (``SanText.py``).

SANTEXT draws y with probability proportional to e^(-ε·d(x,y)/2): ε·d(x,x′) metric privacy, which holds. Over a whole
vocabulary the true ε is well below ε times its diameter, since all normalisers are nearly the same.

SANTEXT+ draws from the rarer half only, and keeps a word of the other half with probability 1-p. Nothing else turns
into a kept word, so one of them in the output reveals the input: ε is infinite.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.vocabulary import FloatArray, IntArray


@dataclass(frozen=True)
class SanText(OnWords):
    """The exponential mechanism over the whole vocabulary.

    Args:
        epsilon: nominal, per unit of distance.
    """

    epsilon: float

    @override
    def rows(self, x: IntArray) -> FloatArray:
        return exponential(-self.epsilon / 2 * self.vocabulary.distances(x))


@dataclass(frozen=True)
class SanTextPlus(OnWords):
    """SANTEXT onto the sensitive words; the others are mostly kept.

    Args:
        epsilon: nominal ε, per unit of distance.
        sensitive_share: share of the words, the rarest, that are sensitive (w of the paper).
        replaced: probability of replacing another word too (p).
    """

    epsilon: float
    sensitive_share: float = 0.5
    replaced: float = 0.2

    @cached_property
    def sensitive(self) -> IntArray:
        """The rarest words, in order."""
        count = max(1, round(self.sensitive_share * len(self.vocabulary)))
        return np.sort(np.argsort(-self.vocabulary.shares, kind="stable")[-count:])

    @override
    def rows(self, x: IntArray) -> FloatArray:
        law = np.zeros((len(x), len(self.vocabulary)))
        law[:, self.sensitive] = exponential(-self.epsilon / 2 * self.vocabulary.distances(x)[:, self.sensitive])
        kept = ~np.isin(x, self.sensitive)
        law[kept] *= self.replaced
        law[kept, x[kept]] += 1 - self.replaced
        return law


def exponential(exponents: FloatArray) -> FloatArray:
    """Rows proportional to e^exponents that sum to 1."""
    exponents = exponents - exponents.max(axis=1, keepdims=True)
    weights: FloatArray = np.exp(exponents, out=exponents)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
