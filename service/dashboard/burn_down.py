"""How fast a task's answers are spent, and until when they last at that rate.

The rate is the mean of today, as far as it has gone, and the six days before; for a task that was first asked later, of
the days since. Less than a day of asking says nothing of a rate, and then nothing is foretold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from accounting.ledger.history import Day
from service.dashboard import wording
from service.dashboard.charts import STYLES, Axis, Chart, Line, Mark, calendar, clock, line_chart, place

WINDOW = timedelta(days=7)
RULE = (
    "The rate is the mean of today and the six days before, or of the days since the first answer if those are "
    "fewer. There is none on a task's first day."
)
_FAR = timedelta(days=5 * 365)


@dataclass(frozen=True)
class Forecast:
    """A task's answers, and how long they last.

    Attributes:
        task: address with version.
        answers: granted by the plan.
        left: not yet spent.
        per_day: rate; None while there is not enough history.
        runs_out: when, at this rate; None if it cannot be told or lies beyond five years.
    """

    task: str
    answers: int
    left: int
    per_day: float | None = None
    runs_out: datetime | None = None

    @property
    def exactly(self) -> str:
        """The figures behind the sentence."""
        rate = "" if self.per_day is None else f", {self.per_day:.3g} a day"
        return f"{self.left:,} of {self.answers:,} answers left{rate}"

    @property
    def sentence(self) -> str:
        """What an admin wants to know."""
        if not self.left:
            return "All answers are spent. Repeated questions are still answered."
        left = (
            f"About {wording.plural(_about(self.left), 'answer')} left"
            if self.left > 1000
            else (f"{wording.plural(self.left, 'answer')} left")
        )
        if self.per_day is None:
            return f"{left}; not enough history for a forecast."
        if not self.per_day:
            return f"{left}; none were asked for in the last seven days."
        if self.runs_out is None:
            return f"{left}, at this rate for more than five years."
        return f"{left}, at this rate until {wording.day(self.runs_out)}."


def forecast(task: str, answers: int, left: int, days: Sequence[Day], now: datetime) -> Forecast:
    """How long a task's answers last.

    Args:
        task: address with version.
        answers: granted by the plan.
        left: not yet spent.
        days: what it spent on which day, oldest first; other tasks' are ignored.
        now: the present, in UTC.
    """
    mine = [day for day in days if day.task == task]
    if not left or not mine:
        return Forecast(task, answers, left)
    begin = max(_start(mine[0].day), _start((now - WINDOW).date() + timedelta(days=1)))
    if now - begin < timedelta(days=1):
        return Forecast(task, answers, left)
    recent = sum(day.answers for day in mine if _start(day.day) >= begin)
    per_day = recent / ((now - begin) / timedelta(days=1))
    lasts = timedelta(days=min(left / per_day, 1e6)) if per_day else _FAR
    return Forecast(task, answers, left, per_day, now + lasts if lasts < _FAR else None)


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
    ends = [one.runs_out for one, _ in drawn if one.runs_out]
    last = min(max(ends), horizon) + timedelta(days=1) if ends else now + timedelta(days=1)
    lines = []
    for style, (one, signed) in enumerate(drawn, start=1):
        name = one.task.removeprefix(f"{knowledge_base}.")
        lines.append(Line(name, _spent(one, signed, days, now), style))
        if one.per_day:
            until = min(one.runs_out or last, last)
            then = one.left - one.per_day * ((until - now) / timedelta(days=1))
            foretold = [(place(now), one.left / one.answers), (place(until), max(0.0, then) / one.answers)]
            lines.append(Line(f"{name}, at this rate", foretold, style, foretold=True))
    if now - first < timedelta(days=1):
        axis = clock("time (UTC)", first, now + max(now - first, timedelta(minutes=1)))
    else:
        axis = calendar("", first.date(), last.date())
    summary = "; ".join(f"{one.task}: {one.left:,} of {one.answers:,} answers left" for one, _ in drawn)
    return line_chart(
        "Answers left, by task",
        summary,
        lines,
        axis,
        Axis("share of the answers", 0, 1, words=wording.percent),
        [Mark("now", x=place(now))],
    )


def _spent(one: Forecast, signed: datetime, days: Sequence[Day], now: datetime) -> list[tuple[float, float]]:
    """The share left, from the signature until now: a step down at the end of each day on which answers were spent."""
    left, points = one.answers, [(place(signed), 1.0)]
    for day in days:
        if day.task == one.task:
            end = place(min(_start(day.day) + timedelta(days=1), now))
            points.append((end, left / one.answers))
            left -= day.answers
            points.append((end, left / one.answers))
    return [*points, (place(now), one.left / one.answers)]


def _about(value: int) -> int:
    """Three significant digits, rounded down: nobody should count on more."""
    grain = int(10 ** max(len(str(value)) - 3, 0))
    return value // grain * grain


def _start(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
