"""How long answers last, in figures and in words."""

from datetime import UTC, date, datetime, timedelta

import pytest

from accounting.ledger.history import Day
from service.operations.forecast import forecast

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = NOW.date()
LAST_WEEK = TODAY - timedelta(days=9)
TASK = "toys.colour@1"


def days(*answers: int, last: date = TODAY, task: str = TASK) -> list[Day]:
    """The history of days with the given numbers of answers; the last of them is ``last``."""
    first = last - timedelta(days=len(answers) - 1)
    return [Day(first + timedelta(days=i), task, count) for i, count in enumerate(answers) if count]


def test_the_rate_is_the_mean_of_a_week() -> None:
    # Half of today has gone, so the window is 6.5 days.
    spent = days(1000, *[10] * 6, 5)
    one = forecast(TASK, 5000, 500, spent, NOW)
    assert (one.per_day, one.runs_out) == (pytest.approx(10), NOW + timedelta(days=50))
    assert one.sentence == "500 answers left, at this rate until 29 April 2026."
    assert one.exactly == "500 of 5,000 answers left, 10 a day"
    # A task younger than a week is judged by the days since its first answer.
    assert forecast(TASK, 100, 70, days(20, 10), NOW).per_day == pytest.approx(20)


@pytest.mark.parametrize(
    ("left", "spent", "sentence"),
    [
        (20, [], "20 answers left; not enough history for a forecast."),
        (19, days(1), "19 answers left; not enough history for a forecast."),
        (0, days(20), "All answers are spent. Repeated questions are still answered."),
        (5, days(15, last=LAST_WEEK), "5 answers left; none were asked for in the last seven days."),
        (987654, days(1, 1), "About 987,000 answers left, at this rate for more than five years."),
        (1, days(1, 1), "1 answer left, at this rate until 11 March 2026."),
    ],
)
def test_the_forecast_in_words(left: int, spent: list[Day], sentence: str) -> None:
    assert forecast(TASK, 1_000_000, left, spent, NOW).sentence == sentence
