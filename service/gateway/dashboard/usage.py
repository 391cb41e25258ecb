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
    counting,
    place,
    styles,
    timeline,
)
from service.operations.forecast import Course
from service.operations.usage import DailyCharges
from service.operations.wording import number, percent

_AHEAD = 1 / 3
"""Length of what is foretold, at most, in lengths of the past: a forecast for years would squeeze the past."""

_REST = "all others"


def charged_by_day(charged: DailyCharges, tasks: Sequence[str] = ()) -> Chart | None:
    """Chart of the answers charged on each of the last days, since the first of them; None: there were none.

    Args:
        charged: the charges.
        tasks: names of all tasks without their knowledge base, oldest first; none: the series are those of keys.
    """
    if not charged.series:
        return None
    by_day = [sum(heights) for heights in zip(*(heights for _, heights in charged.series), strict=True)]
    first = next(i for i, answers in enumerate(by_day) if answers)
    days = charged.days[first:]
    series = _drawn([(name, heights[first:]) for name, heights in charged.series])
    names = [name for name, _ in series]
    total, highest = sum(by_day), max(by_day)
    since = "today" if len(days) == 1 else f"in the last {len(days)} days"
    return BarChart(
        f"Answers charged {since}",
        f"{total:,} answers were charged {since}, at most {highest:,} on a day.",
        "day (UTC)",
        [f"{day.day} {day:%b}" for day in days],
        series,
        styles(names, tasks or sorted(names)),
        counting("answers", max(highest, 4), words=number),
    )


def _drawn(series: Sequence[tuple[str, Sequence[int]]]) -> Sequence[tuple[str, Sequence[int]]]:
    """The busiest series; the others, for which there are no further styles, are added up."""
    if len(series) <= STYLES:
        return series
    rest = [sum(column) for column in zip(*(heights for _, heights in series[STYLES - 1 :]), strict=True)]
    return [*series[: STYLES - 1], (_REST, rest)]


def burn_down(knowledge_base: str, courses: Sequence[Course], now: datetime, tasks: Sequence[str] = ()) -> Chart | None:
    """Chart of the shares of answers left, over time, with their forecasts; None: there are no courses.

    Args:
        knowledge_base: name of the knowledge base.
        courses: courses of its tasks; those with the least left are drawn.
        now: the present, in UTC.
        tasks: names of all its tasks without the knowledge base, oldest first; none: those with a course.
    """
    if not courses:
        return None
    drawn = sorted(courses, key=lambda one: one.forecast.left / one.forecast.answers)[:STYLES]
    first = min(one.signed_at for one in drawn)
    known = max(now - first, timedelta(seconds=1))
    ends = [one.forecast.runs_out for one in drawn if one.forecast.runs_out]
    last = min(max(ends), now + known * _AHEAD) if ends and known > timedelta(days=1) else now
    lines = []
    names = [one.forecast.task.removeprefix(f"{knowledge_base}.") for one in drawn]
    for style, name, one in zip(styles(names, tasks or names), names, drawn, strict=True):
        forecast = one.forecast
        lines.append(Line(name, [(place(moment), share) for moment, share in one.left], style))
        if forecast.per_day and last > now:
            until = min(forecast.runs_out or last, last)
            then = forecast.left - forecast.per_day * ((until - now) / timedelta(days=1))
            foretold = [
                (place(now), forecast.left / forecast.answers),
                (place(until), max(0.0, then) / forecast.answers),
            ]
            lines.append(Line(f"{name}, at this rate", foretold, style, foretold=True))
    summary = "; ".join(
        f"{one.forecast.task}: {one.forecast.left:,} of {one.forecast.answers:,} answers left" for one in drawn
    )
    return LineChart(
        "Answers left, by task",
        summary,
        lines,
        timeline(first, max(last, first + known)),
        Axis("share of the answers", 0, 1, words=percent),
        [Mark("now", x=place(now))] if last > now else [],
    )
