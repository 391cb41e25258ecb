"""Times as people read them: in UTC, until a script writes them in the reader's zone."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from markupsafe import Markup

_FORMS: Mapping[str, Callable[[datetime], str]] = {
    "full": lambda moment: f"{moment.day} {moment:%b %Y, %H:%M} UTC",
    "moment": lambda moment: f"{moment.day} {moment:%b, %H:%M}",
    "time": lambda moment: f"{moment:%H:%M}",
    "day": lambda moment: f"{moment.day} {moment:%b}",
    "month": lambda moment: f"{moment:%b %Y}",
}


def when(moment: datetime | None, missing: str = "never") -> Markup:
    """A time to the minute with its zone, exact in its ``datetime`` attribute."""
    return Markup.escape(missing) if moment is None else shown(moment, "full")


def shown(moment: datetime, form: str) -> Markup:
    """A time as an element that ``static/app.js`` writes in the reader's zone.

    Args:
        moment: the time.
        form: ``full``, with the zone; or ``moment``, ``time``, ``day`` or ``month``, beside which :func:`zoned` stands.
    """
    moment = moment.astimezone(UTC)
    exact = moment.isoformat()
    written = _FORMS[form](moment)
    return Markup('<time datetime="{}" title="{}" data-form="{}">{}</time>').format(exact, exact, form, written)


def zoned(quantity: str) -> Markup:
    """The label of times that stand without their zone."""
    return Markup('{} (<span class="zone">UTC</span>)').format(quantity)
