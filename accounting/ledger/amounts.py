"""Budgets as exact decimals: three plans of ε = 0.1 fit into 0.3, and nothing more does."""

from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext

Number = Decimal | float | str
Pair = tuple[Decimal, Decimal]
"""(ε, δ)."""

_EXACT = Context(prec=1000, traps=[Inexact, InvalidOperation])


def exact(value: Number) -> Decimal:
    """The decimal a number was written as: a float's shortest decimal, a string's own digits.

    Raises:
        ValueError: the number is not finite, has more than 100 digits, or is beyond 10^±400 (so that sums stay exact).
    """
    try:
        number = Decimal(value) if isinstance(value, Decimal | str | int) else Decimal(repr(float(value)))
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None
    if not number.is_finite() or len(number.as_tuple().digits) > 100 or (number and abs(number.adjusted()) > 400):
        raise ValueError(f"{value!r} is not a finite number of at most 100 digits between 1e-400 and 1e400")
    return number


def checked(epsilon: Number, delta: Number) -> Pair:
    """Both as decimals.

    Raises:
        ValueError: ε is not above 0, or δ not in [0, 1).
    """
    pair = exact(epsilon), exact(delta)
    if pair[0] <= 0:
        raise ValueError(f"epsilon: {epsilon} is not above 0")
    if not 0 <= pair[1] < 1:
        raise ValueError(f"delta: {delta} is not in [0, 1)")
    return pair


def total(pairs: Iterable[Pair]) -> Pair:
    """The exact sums."""
    with localcontext(_EXACT):
        added = Decimal(0), Decimal(0)
        for epsilon, delta in pairs:
            added = added[0] + epsilon, added[1] + delta
        return added


def rest(lifetime: Pair, signed: Iterable[Pair]) -> tuple[Pair, Pair]:
    """The amounts that signed plans promise, and that are free, both exact."""
    promised = total(signed)
    with localcontext(_EXACT):
        return promised, (lifetime[0] - promised[0], lifetime[1] - promised[1])


def smaller(one: Pair, other: Pair) -> Pair:
    """The smaller ε and the smaller δ."""
    return min(one[0], other[0]), min(one[1], other[1])


def times(lifetime: Pair, asked: Pair) -> int:
    """The number of plans of this size that fit: the greatest whose exact sums leave nothing below 0."""
    with localcontext(_EXACT):
        return int(min(whole // part for whole, part in zip(lifetime, asked, strict=True) if part))


def in_words(pair: Pair) -> str:
    """A budget as error messages write it."""
    return f"(ε = {figure(pair[0])}, δ = {figure(pair[1])})"


def figure(value: Decimal) -> str:
    """A decimal as people read it, exact: 20 and not 2e+1, 0.0001, 1e-7."""
    return f"{value.normalize():{'f' if value >= 1 else 'g'}}"
