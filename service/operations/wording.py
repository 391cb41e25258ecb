"""Numbers and times for people: rounded to what matters, with the exact figure in a title."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from markupsafe import Markup


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


def exactly(value: float | Decimal) -> Markup:
    """A number for people, with its exact value in a title."""
    exact = f"{value.normalize():f}" if isinstance(value, Decimal) else repr(value)
    return Markup('<span title="{}">{}</span>').format(exact, figure(value))


def one_in(delta: float | Decimal) -> str:
    """A small probability in words: 1e-4 is ``1 in 10,000``."""
    if not delta:
        return "none"
    odds = 1 / float(delta)
    return f"1 in {round(odds, 1 - math.floor(math.log10(odds))):,.0f}"


def percent(share: float) -> str:
    """A share as a percentage, ``37 %``; 0 and 100 only if exact."""
    rounded = round(100 * share)
    if rounded == 0 and share > 0:
        return "under 1 %"
    if rounded == 100 and share < 1:
        return "over 99 %"
    return f"{rounded} %"


def day(moment: datetime | date) -> str:
    """A day in UTC, ``14 March 2027``."""
    if isinstance(moment, datetime):
        moment = moment.astimezone(UTC).date()
    return f"{moment.day} {moment:%B %Y}"


def when(moment: datetime | None, missing: str = "never") -> Markup:
    """A time to the minute in UTC, exact in its ``datetime`` attribute."""
    if moment is None:
        return Markup.escape(missing)
    moment = moment.astimezone(UTC)
    shown = f"{moment.day} {moment:%b %Y, %H:%M} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), moment.isoformat(), shown)


def lasting(seconds: float) -> str:
    """A span in words: ``40 seconds``, ``3 minutes``, ``2 hours``, ``12 days``."""
    span = timedelta(seconds=seconds)
    for unit, name in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute")):
        if span >= 2 * unit or (span >= unit and name == "day"):
            return plural(round(span / unit), name)
    return plural(math.ceil(seconds), "second")


_ALL: tuple[Callable[..., Any], ...] = (number, plural, figure, exactly, one_in, percent, day, when, lasting)
FILTERS = {filtering.__name__: filtering for filtering in _ALL}
