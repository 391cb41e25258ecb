"""A chart of the answers left, over time, with what is foretold of them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from accounting.ledger.history import Day, midnight
from service import wording
from service.dashboard.charts import STYLES, Axis, Chart, Line, LineChart, Mark, calendar, clock, place
from service.plans.forecast import Forecast


def chart(
    knowledge_base: str, forecasts: Sequence[tuple[Forecast, datetime]], days: Sequence[Day], now: datetime
) -> Chart | None:
    """The shares of answers left, over time, with what is foretold.

    Args:
        knowledge_base: its name.
        forecasts: of its tasks, each with when its plan was signed; those with the least left are drawn.
        days: what was spent on which day, oldest first.
        now: the present, in UTC.
    """
    if not forecasts:
        return None
    drawn = sorted(forecasts, key=lambda pair: pair[0].left / pair[0].answers)[:STYLES]
    first = min(signed for _, signed in drawn)
    known = max(now - first, timedelta(days=1))
    # As far ahead as is known already, at least a month: a forecast for years would squeeze what happened into a line.
    horizon = now + min(max(known, timedelta(days=30)), timedelta(days=365))
    ends = [forecast.runs_out for forecast, _ in drawn if forecast.runs_out]
    last = min(max(ends), horizon) + timedelta(days=1) if ends else now + timedelta(days=1)
    lines = []
    for style, (forecast, signed) in enumerate(drawn, start=1):
        name = forecast.task.removeprefix(f"{knowledge_base}.")
        lines.append(Line(name, _spent(forecast, signed, days, now), style))
        if forecast.per_day:
            until = min(forecast.runs_out or last, last)
            then = forecast.left - forecast.per_day * ((until - now) / timedelta(days=1))
            foretold = [
                (place(now), forecast.left / forecast.answers),
                (place(until), max(0.0, then) / forecast.answers),
            ]
            lines.append(Line(f"{name}, at this rate", foretold, style, foretold=True))
    if now - first < timedelta(days=1):
        axis = clock("time (UTC)", first, now + max(now - first, timedelta(minutes=1)))
    else:
        axis = calendar("", first.date(), last.date())
    summary = "; ".join(
        f"{forecast.task}: {forecast.left:,} of {forecast.answers:,} answers left" for forecast, _ in drawn
    )
    return LineChart(
        "Answers left, by task",
        summary,
        lines,
        axis,
        Axis("share of the answers", 0, 1, words=wording.percent),
        [Mark("now", x=place(now))],
    )


def _spent(forecast: Forecast, signed: datetime, days: Sequence[Day], now: datetime) -> list[tuple[float, float]]:
    """The share left, from the signature until now: a step down at the end of each day on which answers were spent."""
    left, points = forecast.answers, [(place(signed), 1.0)]
    for day in days:
        if day.task == forecast.task:
            end = place(min(midnight(day.day) + timedelta(days=1), now))
            points.append((end, left / forecast.answers))
            left -= day.answers
            points.append((end, left / forecast.answers))
    return [*points, (place(now), forecast.left / forecast.answers)]
