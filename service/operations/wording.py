"""Numbers and times for people, rounded to what matters."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any


def number(value: float) -> str:
    """A number with separators of thousands: ``12,345``."""
    return f"{value:,.0f}"


def plural(count: int, singular: str, many: str | None = None) -> str:
    """A count with its noun: ``1 answer``, ``2 answers``."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def figure(value: float | Decimal) -> str:
    """A number with up to three significant digits, without trailing zeros: 0.25, 12, 3.14, 2e-4."""
    value = float(value)
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 1e-3:
        return f"{value:.3g}"
    digits, _, exponent = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def one_in(delta: float | Decimal) -> str:
    """A small probability in words: 1e-4 is ``1 in 10,000``."""
    if not delta:
        return "none"
    odds = 1 / float(delta)
    return f"1 in {round(odds, 1 - math.floor(math.log10(odds))):,.0f}"


def odds(epsilon: float | Decimal) -> str:
    """The factor e^ε by which odds may change, to two digits: ``2.7`` for 1, ``3,000`` for 8."""
    epsilon = float(epsilon)
    if epsilon > math.log(_MOST_ODDS):
        return f"more than {_MOST_ODDS:,}"
    factor = math.exp(epsilon)
    return f"{factor:.2g}" if factor < 10 else f"{round(factor, 1 - math.floor(math.log10(factor))):,.0f}"


_MOST_ODDS = 1_000_000_000


def digits(value: float | Decimal) -> str:
    """All digits of a number, without an exponent: 1e-5 is ``0.00001``."""
    return f"{Decimal(str(value)).normalize():f}"


def percent(share: float) -> str:
    """A share as a percentage, ``37 %``; 0 and 100 only if exact."""
    rounded = round(100 * share)
    if rounded == 0 and share > 0:
        return "under 1 %"
    if rounded == 100 and share < 1:
        return "over 99 %"
    return f"{rounded} %"


def chance(probability: float) -> str:
    """The probability that an answer is right in words, with its figure: ``Probably right (87 %)``."""
    words = ((0.95, "Almost certainly right"), (0.75, "Probably right"), (0.5, "More likely right than wrong"))
    return f"{next((word for least, word in words if probability >= least), 'Doubtful')} ({percent(probability)})"


def right_in(accuracy: float, standard_error: float, units: float) -> str:
    """The accuracy of a one-time release by its own count, ``right in 86.1 % ± 1.1 of about 1,090 people left out``.

    Args:
        accuracy: share of right answers.
        standard_error: standard error of it.
        units: number of units that were left out, with noise.
    """
    about = round(units, 2 - math.floor(math.log10(max(units, 1))))
    return f"right in {100 * accuracy:.1f} % ± {100 * standard_error:.1f} of about {about:,.0f} people left out"


def accuracy(share: float, error: float | None, rows: int) -> str:
    """A share of right answers with its standard error, ``86.3 ± 2.1 %``; without one, ``86.3 %``.

    Where rows show no spread, the bound by the rule of three (at 95 %) takes its place.

    Args:
        share: share of right answers, in percent.
        error: standard error, in points; None: not known.
        rows: number of questions.
    """
    if 0 < share < 100:
        return f"{share:.1f} %" if error is None else f"{share:.1f} ± {error:.1f} %"
    bound = 300 / rows
    return f"100 % (at least {max(0.0, 100 - bound):.1f})" if share else f"0 % (at most {min(100.0, bound):.1f})"


def day(moment: datetime | date) -> str:
    """A day in UTC, ``14 March 2027``."""
    if isinstance(moment, datetime):
        moment = moment.astimezone(UTC).date()
    return f"{moment.day} {moment:%B %Y}"


def lasting(seconds: float) -> str:
    """A span in words: ``40 seconds``, ``3 minutes``, ``2 hours``, ``12 days``."""
    span = timedelta(seconds=seconds)
    for unit, name in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute")):
        if span >= 2 * unit or (span >= unit and name == "day"):
            return plural(round(span / unit), name)
    return plural(math.ceil(seconds), "second")


_ALL: tuple[Callable[..., Any], ...] = (
    number,
    plural,
    figure,
    one_in,
    odds,
    digits,
    percent,
    chance,
    accuracy,
    day,
    lasting,
)
FILTERS = {filtering.__name__: filtering for filtering in _ALL}
