"""RANTEXT's constants a, b, c, d for an embedder, by the paper's own rule (InferDPT, appendix B and table XI).

The list of the word *happy* is to have at most 5 % of the vocabulary with a probability of 1.5 % at ε = 2, 9 % at 6,
10 % at 10 and 10.5 % at 14. A list has at most k words if the radius T reaches no farther than the k+1-th nearest, and
T is inversely proportional to Z. So each probability determines Z, and the curve a·ln(b·ε + c) + d is fitted to the
four values. (It has three degrees of freedom, so b is 1.)

The paper's table has the "probability when" the share "= 0.05". A share of exactly 5 % has no probability to speak of,
and with at most 5 % the printed constants agree: in 1,536 dimensions, ada-002's, they give 9 to 10 % at ε = 6 where
they give 1.5 % at ε = 2 (a test). In other spaces they do not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy.optimize import minimize_scalar

from sanitization.published.rantext import Constants, radius_quantile, ranges
from sanitization.vocabulary import FloatArray, Vocabulary

TARGETS: Mapping[float, float] = MappingProxyType({2.0: 0.015, 6.0: 0.09, 10.0: 0.1, 14.0: 0.105})
"""Table XI: probabilities that a list has at most 5 % of the words, by ε."""
SHARE = 0.05
WORD = "happy"


@dataclass(frozen=True)
class Fit:
    """Constants for an embedder.

    Attributes:
        constants: fitted constants.
        rates: Z that each of :data:`TARGETS` asks for, by ε.
        radius: distance from the word that 5 % of the words are nearer than.
    """

    constants: Constants
    rates: Mapping[float, float]
    radius: float


def fit(vocabulary: Vocabulary, word: str = WORD) -> Fit:
    """Constants for a vocabulary and its vectors.

    Args:
        vocabulary: at least 20 words.
        word: word whose list is looked at.

    Raises:
        ValueError: the word is not known, there are too few others, or too few dimensions.
    """
    if word not in vocabulary.index:
        raise ValueError(f"the vocabulary does not know {word!r}: give another word with --token")
    most = math.floor(SHARE * len(vocabulary))
    if not most:
        raise ValueError(f"at least {1 / SHARE:.0f} words are needed, not {len(vocabulary)}")
    radius = float(np.sort(vocabulary.distances(np.array([vocabulary.index[word]]))[0])[most])
    spans = ranges(vocabulary)
    rates = {epsilon: radius_quantile(spans, share) / radius for epsilon, share in TARGETS.items()}
    return Fit(curve(np.array(list(rates)), np.array(list(rates.values()))), rates, radius)


def curve(epsilons: FloatArray, rates: FloatArray) -> Constants:
    """The curve a·ln(ε + c) + d with the least squared error; c is above -2, where the curve begins."""

    def solved(exponent: float) -> tuple[float, FloatArray]:
        columns = np.stack([np.log(epsilons - epsilons.min() + 10**exponent), np.ones(len(epsilons))], axis=1)
        solution: FloatArray = np.linalg.lstsq(columns, rates, rcond=None)[0]
        return float(((columns @ solution - rates) ** 2).sum()), solution

    best = minimize_scalar(lambda exponent: solved(exponent)[0], bounds=(-12, 3), method="bounded")
    a, d = solved(best.x)[1]
    return Constants(float(a), 1.0, float(10**best.x - epsilons.min()), float(d))
