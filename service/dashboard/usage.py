"""Answers charged over time, by task or by key. All of it is public: charges, not what was drawn for them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta

from accounting.ledger.history import Use, midnight
from service.dashboard.charts import STYLES, BarChart, Chart, counting
from service.wording import number

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
    counts: dict[tuple[str, str], int] = {}
    for use in spent:
        both = key_names.get(use.key_id, use.key_id), use.task
        counts[both] = counts.get(both, 0) + use.answers
    return sorted(((key, task, answers) for (key, task), answers in counts.items()), key=lambda row: -row[2])
