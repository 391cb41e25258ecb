"""Charts of a plan: chances of a good release by agreement, and slots needed with other ε or numbers of answers."""

from collections.abc import Callable

from service.gateway.dashboard.charts import STYLES, Axis, Chart, Line, LineChart, Mark
from service.operations.plan_curves import Agreement, Needed
from service.operations.wording import figure, number, percent

_TIMES = {0.5: "half", 1.0: "as planned", 2.0: "twice"}


def agreement_chart(seen: Agreement) -> Chart:
    """The chance of a good release of a task against the number of slots that agree on it."""
    marks = [Mark(f"{percent(seen.reliable)} of releases", y=seen.reliable)]
    if seen.needed is not None:
        marks.append(Mark("needed for that", x=seen.needed))
    return LineChart(
        f"Chance that {seen.outcome}",
        seen.summary,
        [Line("chance", seen.chances)],
        Axis(f"{seen.slots_mean} (of {seen.voices:,})", 0, seen.voices, words=number),
        Axis("chance", 0, 1, words=percent),
        marks,
    )


def epsilon_chart(needed: Needed) -> Chart:
    """Slots needed by each task, against the plan's ε."""
    return _chart(needed, "Slots needed for a 95 % good release, by the plan’s ε", "ε of the plan", figure)


def answers_chart(needed: Needed) -> Chart:
    """Slots needed by each task, against the number of answers."""
    title = "Slots needed for a 95 % good release, by the number of answers"
    return _chart(needed, title, "answers", lambda factor: _TIMES.get(factor, figure(factor)))


def _chart(needed: Needed, title: str, label: str, words: Callable[[float], str]) -> Chart:
    drawn = list(needed.shares.items())[:STYLES]
    lines = [Line(name, points, style) for style, (name, points) in enumerate(drawn, start=1)]
    summary = "; ".join(
        f"{line.name}: " + ", ".join(f"{_reach(share)} at {words(x)}" for x, share in line.points) for line in lines
    )
    most = max(share for line in lines for _, share in line.points)
    top = next((top for top in (0.1, 0.2, 0.4) if most <= top), 1.0)
    places = [x for x, _ in lines[0].points]
    x = Axis(label, places[0], places[-1], log=True, words=words, ticks=len(places))
    return LineChart(title, summary, lines, x, Axis("share of the slots that must agree", 0, top, words=_reach))


def _reach(share: float) -> str:
    return percent(share) if share <= 1 else "out of reach"
