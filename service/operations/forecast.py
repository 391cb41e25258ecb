"""Forecasts of a task's answers: the rate at which they are spent, and the day on which they run out.

The rate is the mean of today, as far as it has gone, and the six days before; for a task that was first asked later, of
the days since. Less than a day of asking gives no rate, and then no forecast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.ledger.history import Day, Minute, midnight
from service.operations import wording

WINDOW = timedelta(days=7)
HISTORY = timedelta(days=400)
"""Length of the past from which charges are read."""
RULE = (
    "The rate is the mean of today and the six days before, or of the days since the first answer if those are "
    "fewer. There is none on a task's first day."
)
_FAR = timedelta(days=5 * 365)


@dataclass(frozen=True)
class Forecast:
    """A task's answers, and the time for which they last.

    Attributes:
        task: address with version.
        answers: number of answers granted by the plan.
        left: number of answers not yet spent.
        per_day: rate, in answers per day; None: not enough history.
        runs_out: time at which they run out at this rate; None: not known, or beyond five years.
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
        """The forecast for an admin, a sentence."""
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


def week(now: datetime) -> datetime:
    """The beginning of the days that a rate is the mean of: today and the six before."""
    return midnight((now - WINDOW).date() + timedelta(days=1))


def forecast(task: str, answers: int, left: int, days: Sequence[Day], now: datetime) -> Forecast:
    """Forecast a task's answers.

    Args:
        task: address with version.
        answers: number of answers granted by the plan.
        left: number of answers not yet spent.
        days: answers of the task spent by day, oldest first.
        now: the present, in UTC.
    """
    if not left or not days:
        return Forecast(task, answers, left)
    begin = max(midnight(days[0].day), week(now))
    if now - begin < timedelta(days=1):
        return Forecast(task, answers, left)
    recent = sum(day.answers for day in days if day.day >= begin.date())
    per_day = recent / ((now - begin) / timedelta(days=1))
    lasts = timedelta(days=min(left / per_day, 1e6)) if per_day else _FAR
    return Forecast(task, answers, left, per_day, now + lasts if lasts < _FAR else None)


@dataclass(frozen=True)
class Course:
    """A task's answers left since its plan was signed, and their forecast.

    Attributes:
        forecast: forecast of the task.
        signed_at: time of the plan's signature.
        left: pairs (time, share of the answers left then) from the signature until now: a step down at the end of each
            past day on which answers were spent, and today one for each minute.
    """

    forecast: Forecast
    signed_at: datetime
    left: Sequence[tuple[datetime, float]]


def course(
    forecast: Forecast, signed_at: datetime, days: Sequence[Day], today: Sequence[Minute], now: datetime
) -> Course:
    """The course of a task's answers.

    Args:
        forecast: forecast of the task.
        signed_at: time of the plan's signature.
        days: answers of the task spent by day, oldest first; today's are ignored.
        today: answers of the task spent today by minute, oldest first.
        now: the present, in UTC.
    """
    past = [(midnight(one.day) + timedelta(days=1), one.answers) for one in days if one.day < now.date()]
    left, points = forecast.answers, [(signed_at, 1.0)]
    for moment, answers in (*past, *((one.last, one.answers) for one in today)):
        points.append((moment, left / forecast.answers))
        left -= answers
        points.append((moment, left / forecast.answers))
    return Course(forecast, signed_at, [*points, (now, forecast.left / forecast.answers)])


def _about(value: int) -> int:
    """Three significant digits, rounded down, so that admins do not count on more."""
    grain = int(10 ** max(len(str(value)) - 3, 0))
    return value // grain * grain
