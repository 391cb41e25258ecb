"""Answers charged and left over time, in charts. All of it is public: charges, not what was drawn for them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta

from accounting.ledger.history import Day, Use, midnight
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
from service.operations.forecast import Forecast
from service.operations.wording import number, percent

DAYS = 30
"""How far back the page looks, today among them."""


def first_day(today: date) -> datetime:
    """When the first of them begins."""
    return midnight(today) - timedelta(days=DAYS - 1)


def charged_by_day(spent: Sequence[Use], named: Callable[[Use], str], today: date) -> Chart | None:
    """Answers charged on each of the last days.

    Args:
        spent: on these days; others are ignored.
        named: the series that some of them belong to.
        today: the last of the days.
    """
    days = [first_day(today).date() + timedelta(days=i) for i in range(DAYS)]
    # Midnight may have passed since ``today`` was read, or another replica's clock be ahead of ours.
    spent = [use for use in spent if use.day in days]
    if not spent:
        return None
    series = _series(spent, named, days)
    highest = max(sum(heights[i] for _, heights in series) for i in range(DAYS))
    total = sum(use.answers for use in spent)
    return BarChart(
        f"Answers charged in the last {DAYS} days",
        f"{total:,} answers were charged in the last {DAYS} days, at most {highest:,} on a day.",
        "day (UTC)",
        [f"{day.day} {day:%b}" for day in days],
        series,
        counting("answers", max(highest, 4), words=number),
    )


def _series(spent: Sequence[Use], named: Callable[[Use], str], days: list[date]) -> list[tuple[str, list[int]]]:
    """Counts by name, the busiest first; those beyond what can be told apart are added up."""
    counts: dict[str, list[int]] = {}
    for use in spent:
        counts.setdefault(named(use), [0] * len(days))[days.index(use.day)] += use.answers
    ordered = sorted(counts.items(), key=lambda pair: -sum(pair[1]))
    if len(ordered) <= STYLES:
        return ordered
    rest = [sum(column) for column in zip(*(heights for _, heights in ordered[STYLES - 1 :]), strict=True)]
    return [*ordered[: STYLES - 1], ("all others", rest)]


def totals(spent: Sequence[Use], key_names: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """(key, task, answers), the most first."""
    counts: Counter[tuple[str, str]] = Counter()
    for use in spent:
        counts[key_names.get(use.key_id, use.key_id), use.task] += use.answers
    return [(key, task, answers) for (key, task), answers in counts.most_common()]


def burn_down(
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
        Axis("share of the answers", 0, 1, words=percent),
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
