"""Draws with probabilities proportional to e^(-rate·loss), for integer losses, without floating point's errors.

Weights are decimal numbers of 60 digits whose exponent cannot overflow; a draw turns them into integers, the smallest
of at least 2¹²⁸, and asks the operating system's generator for one uniform integer below their sum. So *every*
probability, the smallest too, is within a factor 1 ± 2⁻¹²⁰ of what it should be. Two consequences: the total variation
distance to the exact law is below 2⁻¹²⁰; and log-likelihood ratios of neighbours move by less than 2⁻¹¹⁸, so a bound on
them holds to that precision with no δ added. Neither is so for e^x in doubles and the largest of Gumbel noises
-log(-log(U)) with a 53-bit U: those miss every event rarer than 2⁻⁵³ and leak through the gaps between doubles.
"""

import secrets
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from itertools import accumulate, repeat

CONTEXT = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Arithmetic of weights: a rounding errs by a relative 10⁻⁵⁹ ≈ 2⁻¹⁹⁵."""

_SMALLEST_SHARE = Decimal(1 << 128)


def exponentials(rate: float, count: int) -> list[Decimal]:
    """``e^(-rate·t)`` for t = 0..count-1, the rate taken as the exact binary fraction it is.

    A running product of roundings: the relative error is below count·(1 + rate)·10⁻⁵⁸.
    """
    ratio = CONTEXT.exp(CONTEXT.minus(Decimal(rate)))
    return list(accumulate(repeat(ratio, count - 1), CONTEXT.multiply, initial=Decimal(1)))


def shares(weights: Sequence[Decimal]) -> list[int]:
    """Whole numbers in the ratios of the weights, all above 0; the smallest is at least 2¹²⁸ - 1."""
    unit = CONTEXT.divide(min(weights), _SMALLEST_SHARE)
    return [int(CONTEXT.divide(weight, unit)) for weight in weights]


def draw(weights: Sequence[Decimal]) -> int:
    """An index, with probability proportional to its weight; all weights are above 0."""
    ends = list(accumulate(shares(weights)))
    point = secrets.randbelow(ends[-1])
    return next(index for index, end in enumerate(ends) if point < end)
