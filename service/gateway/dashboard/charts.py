"""Charts as plain SVG, drawn here: no script, and text that keeps its size on a phone.

The macro ``figure`` in ``templates/chart.html`` draws a chart: its lines stretch with the page, its labels are HTML
around them. Below each chart its numbers are a table, for readers without pictures.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from markupsafe import Markup

from service.gateway.dashboard.times import shown, zoned
from service.operations import wording

WIDTH, HEIGHT = 1000, 400
STYLES = 6
"""Number of series that can be distinguished, by colour and by dashes."""

_MOST_ROWS = 60
_WIDEST = 200
_T = TypeVar("_T")


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: quantity with its unit.
        low: lower end.
        high: upper end.
        log: whether it is logarithmic (both ends above 0).
        words: function that writes a number of the axis.
        ticks: number of labels.
    """

    label: str
    low: float
    high: float
    log: bool = False
    words: Callable[[float], str] = wording.figure
    ticks: int = 5

    def share(self, value: float) -> float:
        """The place of a value between the ends, from 0 to 1; values outside are moved to the nearer end."""
        low, high, value = self.low, self.high, max(value, self.low)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def labels(self) -> list[str]:
        """Evenly spaced labels, both ends among them."""
        steps = self.ticks - 1
        if self.log:
            return [self.words(self.low * (self.high / self.low) ** (i / steps)) for i in range(self.ticks)]
        return [self.words(self.low + (self.high - self.low) * i / steps) for i in range(self.ticks)]


def counting(label: str, highest: float, words: Callable[[float], str] = wording.figure) -> Axis:
    """An axis from 0 up to a round number that is at least ``highest``."""
    step = 10 ** math.floor(math.log10(max(highest, 1e-9) / 4))
    step *= next(factor for factor in (1, 2, 2.5, 3, 4, 5, 10) if factor * step * 4 >= highest)
    return Axis(label, 0, 4 * step, words=words)


def timeline(first: datetime, last: datetime) -> Axis:
    """An axis of time, whose labels are as fine as its length needs; a moment's number is :func:`place`."""
    span = last - first
    form = next((form for least, form in _FORMS if span > least), "time")

    def words(value: float) -> str:
        moment = datetime.min.replace(tzinfo=UTC) + timedelta(days=value - 1, seconds=0.5)
        return shown(moment.replace(second=0, microsecond=0), form)

    ticks = 4 if form in ("day", "month") else 3 if span > timedelta(minutes=3) else 2
    return Axis(zoned("time"), place(first), place(last), words=words, ticks=ticks)


_FORMS = ((timedelta(days=700), "month"), (timedelta(days=4), "day"), (timedelta(days=1), "moment"))


def place(moment: datetime) -> float:
    """A moment in UTC on an axis of time: the day's ordinal, plus the part of the day that has passed."""
    return moment.toordinal() + (moment - moment.replace(hour=0, minute=0, second=0, microsecond=0)) / timedelta(days=1)


@dataclass(frozen=True)
class Line:
    """A series of points.

    Attributes:
        name: name in the legend.
        points: pairs (x, y).
        style: number of its colour and dashes, from 1 to :data:`STYLES`.
        foretold: whether the points are expected rather than known.
    """

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 1
    foretold: bool = False


@dataclass(frozen=True)
class Mark:
    """A place on an axis to be marked, such as the end of a budget."""

    name: str
    x: float | None = None
    y: float | None = None


def styles(drawn: Sequence[str], every: Collection[str]) -> list[int]:
    """Styles of series, by their names: a task keeps its own in all charts, unless too many tasks are drawn at once.

    Args:
        drawn: names of the series, at most :data:`STYLES` of them.
        every: names that share the styles, oldest first.
    """
    places = {name: place for place, name in enumerate(dict.fromkeys([*every, *drawn]))}
    own = [places[name] % STYLES + 1 for name in drawn]
    free = [style for style in range(1, STYLES + 1) if style not in own]
    return [free.pop(0) if style in own[:i] else style for i, style in enumerate(own)]


@dataclass(frozen=True)
class LineChart:
    """Lines over two axes.

    Attributes:
        title: title above it.
        summary: content in a sentence, for screen readers.
        lines: the series.
        x: horizontal axis.
        y: vertical axis.
        marks: places worth a line of their own, each named in the legend.
    """

    title: str
    summary: str
    lines: Sequence[Line]
    x: Axis
    y: Axis
    marks: Sequence[Mark] = ()

    def path(self, line: Line) -> str:
        """A line as SVG draws it."""
        return "M" + "L".join(f"{self._across(x)} {self._down(y)}" for x, y in line.points)

    def mark_path(self, mark: Mark) -> str:
        """A mark as SVG draws it."""
        if mark.x is not None:
            return f"M{self._across(mark.x)} 0V{HEIGHT}"
        return "" if mark.y is None else f"M0 {self._down(mark.y)}H{WIDTH}"

    def _across(self, x: float) -> str:
        return f"{WIDTH * self.x.share(x):.1f}"

    def _down(self, y: float) -> str:
        return f"{HEIGHT * (1 - self.y.share(y)):.1f}"

    @property
    def header(self) -> list[str]:
        """Header of the table of its numbers."""
        return ["Series", self.x.label, self.y.label]

    @property
    def rows(self) -> list[list[str]]:
        """Rows of the table of its numbers: each place once, with the value after a step."""
        rows = []
        for line in self.lines:
            places = {self._read(x): (self.x.words(x), y) for x, y in line.points}
            rows += [[line.name, where, self.y.words(y)] for where, y in _evenly(list(places.values()), _MOST_ROWS)]
        return rows

    def _read(self, x: float) -> str:
        """What people read at a place of the horizontal axis."""
        return Markup(self.x.words(x)).striptags()  # noqa: S704  (it is not shown)


@dataclass(frozen=True)
class BarChart:
    """Stacked bars, side by side.

    Attributes:
        title: title above it.
        summary: content in a sentence, for screen readers.
        label: meaning of a bar.
        names: names of the bars.
        series: pairs (name, heights of the bars); at most :data:`STYLES` of them.
        styles: styles of the series (:func:`styles`).
        y: vertical axis, from 0.
    """

    title: str
    summary: str
    label: str
    names: Sequence[str]
    series: Sequence[tuple[str, Sequence[float]]]
    styles: Sequence[int]
    y: Axis

    @property
    def x_ticks(self) -> list[str]:
        """Labels of the x axis, which stand between its ticks."""
        return _evenly(self.names, 4)

    @property
    def paths(self) -> list[str]:
        """Each series as SVG draws it, on top of the series before."""
        wide = WIDTH / len(self.names)
        gap = max(min(0.25 * wide, 12), wide - _WIDEST)
        paths, tops = [], [0.0] * len(self.names)
        for _, heights in self.series:
            path = ""
            for i, height in enumerate(heights):
                if height:
                    bottom, tops[i] = tops[i], tops[i] + height
                    low, high = HEIGHT * (1 - self.y.share(bottom)), HEIGHT * (1 - self.y.share(tops[i]))
                    path += f"M{i * wide + gap / 2:.1f} {low:.1f}h{wide - gap:.1f}V{high:.1f}h-{wide - gap:.1f}z"
            paths.append(path)
        return paths

    @property
    def header(self) -> list[str]:
        """Header of the table of its numbers."""
        return [self.label, *(name for name, _ in self.series)]

    @property
    def rows(self) -> list[list[str]]:
        """Rows of the table of its numbers, without bars of height 0."""
        columns = zip(*(heights for _, heights in self.series), strict=True)
        return [
            [name, *map(self.y.words, column)] for name, column in zip(self.names, columns, strict=True) if any(column)
        ]


Chart = LineChart | BarChart


def _evenly(values: Sequence[_T], most: int) -> list[_T]:
    """At most ``most`` of the values, evenly spaced, including the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
