"""Charts as plain SVG, drawn here: no script, and text that keeps its size on a phone.

A chart is a view model that the macro ``figure`` in ``templates/chart.html`` draws: the lines stretch with the page,
the labels are HTML around them. Below each chart its numbers are a table, for readers without pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

from service import wording

WIDTH, HEIGHT = 1000, 400
STYLES = 6
"""How many series can be told apart, by colour and by dashes."""

_MOST_ROWS = 60
_T = TypeVar("_T")


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: what it measures, with its unit.
        low: where it begins.
        high: where it ends.
        log: whether it is logarithmic (both ends above 0).
        words: how a number on it is written.
        ticks: how many labels to aim for.
    """

    label: str
    low: float
    high: float
    log: bool = False
    words: Callable[[float], str] = wording.figure
    ticks: int = 5

    def share(self, value: float) -> float:
        """Where a value lies between the ends: 0 to 1, never outside."""
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
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step * 4 >= highest)
    return Axis(label, 0, 4 * step, words=words)


def calendar(label: str, first: date, last: date) -> Axis:
    """An axis of days; a day's number is :meth:`date.toordinal`."""
    span = max(last.toordinal() - first.toordinal(), 1)
    shown = "%b %Y" if span > 700 else "%b"

    def words(value: float) -> str:
        day = date.fromordinal(round(value))
        return f"{day:{shown}}" if span > 700 else f"{day.day} {day:{shown}}"

    return Axis(label, first.toordinal(), first.toordinal() + span, words=words, ticks=min(4, span + 1))


def clock(label: str, first: datetime, last: datetime) -> Axis:
    """An axis of hours and minutes; a moment's number is :func:`place`."""

    def words(value: float) -> str:
        return f"{datetime.min.replace(tzinfo=UTC) + timedelta(days=value - 1, seconds=0.5):%H:%M}"

    return Axis(label, place(first), place(last), words=words, ticks=3)


def place(moment: datetime) -> float:
    """A moment in UTC on an axis of days: the day's ordinal, and how much of the day has gone."""
    return moment.toordinal() + (moment - moment.replace(hour=0, minute=0, second=0, microsecond=0)) / timedelta(days=1)


@dataclass(frozen=True)
class Line:
    """A series of (x, y); ``foretold`` for what is expected rather than known, ``style`` 1 to 6 to be told apart."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 1
    foretold: bool = False


@dataclass(frozen=True)
class Mark:
    """A place on an axis that means something, such as where a budget ends."""

    name: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class Shape:
    """Something drawn: an SVG path, and how."""

    path: str
    style: int
    foretold: bool = False


@dataclass(frozen=True)
class LegendEntry:
    """An entry of the legend."""

    name: str
    style: int
    foretold: bool = False
    bar: bool = False


@dataclass(frozen=True)
class Chart:
    """What the macro draws. Made by :func:`line_chart` and :func:`bar_chart`."""

    title: str
    summary: str
    x_label: str
    y_label: str
    x_ticks: list[str]
    y_ticks: list[str]
    lines: list[Shape] = field(default_factory=list)
    bars: list[Shape] = field(default_factory=list)
    marks: list[tuple[str, str]] = field(default_factory=list)
    keys: list[LegendEntry] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    between: bool = False
    """Whether the labels of the x axis stand between its ticks, under bars."""

    @property
    def grid(self) -> list[float]:
        """Heights of the horizontal lines."""
        return [HEIGHT * i / (len(self.y_ticks) - 1) for i in range(len(self.y_ticks))]


def line_chart(title: str, summary: str, lines: Sequence[Line], x: Axis, y: Axis, marks: Sequence[Mark] = ()) -> Chart:
    """Lines over two axes.

    Args:
        title: what it shows, above it.
        summary: what it says, in a sentence: this is what a screen reader reads.
        lines: the series.
        x: horizontal axis.
        y: vertical axis.
        marks: places worth a line of their own, each named in the legend.
    """

    def place(point: tuple[float, float]) -> str:
        return f"{WIDTH * x.share(point[0]):.1f} {HEIGHT * (1 - y.share(point[1])):.1f}"

    shapes = [
        Shape("M" + "L".join(place(point) for point in line.points), line.style, line.foretold)
        for line in lines
        if line.points
    ]
    drawn = []
    for mark in marks:
        if mark.x is not None:
            at = WIDTH * x.share(mark.x)
            drawn.append((mark.name, f"M{at:.1f} 0V{HEIGHT}"))
        if mark.y is not None:
            at = HEIGHT * (1 - y.share(mark.y))
            drawn.append((mark.name, f"M0 {at:.1f}H{WIDTH}"))
    rows = [[line.name, x.words(a), y.words(b)] for line in lines for a, b in _thinned(line.points)]
    return Chart(
        title,
        summary,
        x.label,
        y.label,
        x.labels(),
        y.labels()[::-1],
        lines=shapes,
        marks=drawn,
        keys=[LegendEntry(line.name, line.style, line.foretold) for line in lines],
        header=["", x.label, y.label],
        rows=rows,
    )


def bar_chart(
    title: str, summary: str, x_label: str, names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], y: Axis
) -> Chart:
    """Stacked bars, side by side.

    Args:
        title: as of :func:`line_chart`.
        summary: as of :func:`line_chart`.
        x_label: what a bar stands for.
        names: of each bar.
        series: (name, a height for each bar); at most :data:`STYLES` of them.
        y: vertical axis, from 0.
    """
    wide = WIDTH / len(names)
    gap = min(0.25 * wide, 12)
    shapes, tops = [], [0.0] * len(names)
    for style, (_, heights) in enumerate(series, start=1):
        path = ""
        for i, height in enumerate(heights):
            if height:
                bottom, tops[i] = tops[i], tops[i] + height
                low, high = HEIGHT * (1 - y.share(bottom)), HEIGHT * (1 - y.share(tops[i]))
                path += f"M{i * wide + gap / 2:.1f} {low:.1f}h{wide - gap:.1f}V{high:.1f}h-{wide - gap:.1f}z"
        shapes.append(Shape(path, style))
    ticks = _evenly(names, 4)
    return Chart(
        title,
        summary,
        x_label,
        y.label,
        ticks,
        y.labels()[::-1],
        bars=shapes,
        keys=[LegendEntry(name, style, bar=True) for style, (name, _) in enumerate(series, start=1)],
        header=[x_label, *(name for name, _ in series)],
        rows=[
            [name, *(y.words(heights[i]) for _, heights in series)]
            for i, name in enumerate(names)
            if any(heights[i] for _, heights in series)
        ],
        between=True,
    )


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return _evenly(points, _MOST_ROWS)


def _evenly(values: Sequence[_T], most: int) -> list[_T]:
    """At most so many of the values, evenly, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
