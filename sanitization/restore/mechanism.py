"""The release: a profile's number after k-ary randomised response.

Given the redacted text, any two lists of spans, and any public book of k profiles, each number comes out with
probabilities whose ratio is at most e^ε: the profile is a function of the spans, and k-ary randomised response has two
probabilities, W and U over the same total, with W/U ≤ e^ε (:mod:`sanitization.response`). Whatever a server makes of
the number costs nothing more. The bound is reached, so ε is exact; m questions cost mε.
"""

import warnings
from functools import lru_cache

import numpy as np

from sanitization.response import RandomisedResponse

LARGEST_EPSILON = 20.0
WEAK_EPSILON = 8.0
"""Above this, with a book of usual size, the true profile leaves almost always."""


def check_epsilon(epsilon: float) -> None:
    """Warn where ε protects little.

    Raises:
        ValueError: ε is not above 0 and at most 20.
    """
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise ValueError(f"ε must be above 0 and at most {LARGEST_EPSILON:g}, not {epsilon}")
    if epsilon > WEAK_EPSILON:
        warnings.warn(f"ε = {epsilon:g} protects little: the true profile leaves almost always", stacklevel=3)


@lru_cache(maxsize=64)
def response(k: int, epsilon: float) -> RandomisedResponse:
    """k-ary randomised response.

    Raises:
        ValueError: fewer than two profiles, or an ε that it does not take.
    """
    if k < 2:
        raise ValueError("a book needs at least two profiles")
    names = [str(number) for number in range(k)]
    return RandomisedResponse(names, names, np.arange(k)[:, None], epsilon)


def draw(profile: int, k: int, epsilon: float) -> int:
    """The number to send instead of a profile's own, by the operating system's generator."""
    return int(response(k, epsilon).draw(np.array([profile]))[0])


def truth(k: int, epsilon: float) -> float:
    """The probability that a profile's own number is sent."""
    return float(response(k, epsilon).rows(np.array([0]))[0, 0])
