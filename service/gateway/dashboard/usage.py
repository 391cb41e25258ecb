"""Answers charged and left over time, in charts. All of it is public: charges, not the exemplars drawn for them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from service.gateway.dashboard.charts import (
    STYLES,
    Axis,
    BarChart,
    Chart,
    Line,
    LineChart,
    Mark,
    calendar,
    clock,
    counting,
    place,
)
from service.operations.forecast import Course
from service.operations.usage import DailyCharges
from service.operations.wording import number, percent


def charged_by_day(charged: DailyCharges) -> Chart | None:
    """Chart of the answers charged on each of the last days; None: there were none."""
    if not charged.series:
        return None
    days = charged.days
    by_day = [sum(heights) for heights in zip(*(heights for _, heights in charged.series), strict=True)]
    total, highest = sum(by_day), max(by_day)
    return BarChart(
        f"Answers charged in the last {len(days)} days",
        f"{total:,} answers were charged in the last {len(days)} days, at most {highest:,} on a day.",
        "day (UTC)",
        [f"{day.day} {day:%b}" for day in days],
        _drawn(charged.series),
        counting("answers", max(highest, 4), words=number),
    )


def _drawn(series: Sequence[tuple[str, Sequence[int]]]) -> Sequence[tuple[str, Sequence[int]]]:
    """The busiest series; the others, for which there are no further styles, are added up."""
    if len(series) <= STYLES:
        return series
    rest = [sum(column) for column in zip(*(heights for _, heights in series[STYLES - 1 :]), strict=True)]
    return [*series[: STYLES - 1], ("all others", rest)]


def burn_down(knowledge_base: str, courses: Sequence[Course], now: datetime) -> Chart | None:
    """Chart of the shares of answers left, over time, with their forecasts; None: there are no courses.

    Args:
        knowledge_base: name of the knowledge base.
        courses: courses of its tasks; those with the least left are drawn.
        now: the present, in UTC.
    """
    if not courses:
        return None
    drawn = sorted(courses, key=lambda one: one.forecast.left / one.forecast.answers)[:STYLES]
    first = min(one.signed_at for one in drawn)
    known = max(now - first, timedelta(days=1))
    # As far ahead as the past shown, at least a month: a forecast for years would squeeze the past into a line.
    horizon = now + min(max(known, timedelta(days=30)), timedelta(days=365))
    ends = [one.forecast.runs_out for one in drawn if one.forecast.runs_out]
    last = min(max(ends), horizon) + timedelta(days=1) if ends else now + timedelta(days=1)
    lines = []
    for style, one in enumerate(drawn, start=1):
        forecast = one.forecast
        name = forecast.task.removeprefix(f"{knowledge_base}.")
        lines.append(Line(name, [(place(moment), share) for moment, share in one.left], style))
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
        f"{one.forecast.task}: {one.forecast.left:,} of {one.forecast.answers:,} answers left" for one in drawn
    )
    return LineChart(
        "Answers left, by task",
        summary,
        lines,
        axis,
        Axis("share of the answers", 0, 1, words=percent),
        [Mark("now", x=place(now))],
    )
