"""What a plan would give, drawn: how agreement makes a release good, and what other ε or answers would change."""

from collections.abc import Callable, Mapping
from typing import Any

from accounting.plans.plan import LARGEST_EPSILON, CalibratedPlan, PlanError, TaskNoise
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.mechanisms.adapter import adapter_of
from service.answering.mechanisms.outlook import RELIABLE
from service.answering.plans.calibrating import least_noise
from service.gateway.dashboard.charts import STYLES, Axis, Chart, Line, LineChart, Mark
from service.operations.wording import figure, number, percent

FACTORS = (0.5, 1.0, 2.0)
"""Half, the same, twice: of ε, or of the answers."""

_POINTS = 60
_TIMES = {0.5: "half", 1.0: "as planned", 2.0: "twice"}
_SMALLEST_EPSILON, _MOST_ANSWERS = 1e-3, 100_000_000


def agreement(task: ClassifyTask | GenerateTask, noise: TaskNoise, public_size: int) -> Chart:
    """The chance of a good release of a task against the number of slots that agree on it."""
    adapter = adapter_of(task, noise)
    outlook, voices = adapter.outlook(), adapter.voices(public_size)
    steps = min(voices, _POINTS)
    slots = [round(i * voices / steps) for i in range(steps + 1)]
    marks = [Mark(f"{percent(RELIABLE)} of releases", y=RELIABLE)]
    if outlook.needed <= voices:
        marks.append(Mark("needed for that", x=outlook.needed))
    return LineChart(
        f"Chance that {outlook.outcome}",
        outlook.in_words(None if task.once else task.answers, voices),
        [Line("chance", [(n, outlook.chance(n)) for n in slots])],
        Axis(f"{outlook.slots_mean} (of {voices:,})", 0, voices, words=number),
        Axis("chance", 0, 1, words=percent),
        marks,
    )


def over_epsilon(calibrated: CalibratedPlan) -> Chart | None:
    """Slots needed by each task, against the plan's ε; None if no similar plan can be."""
    budget = calibrated.plan.budget
    varied = {
        epsilon: {"budget": budget.model_copy(update={"epsilon": epsilon})}
        for epsilon in (budget.epsilon * factor for factor in FACTORS)
        if _SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON
    }
    title = "Slots needed for a 95 % good release, by the plan’s ε"
    return _needed(calibrated, title, "ε of the plan", varied, figure)


def over_answers(calibrated: CalibratedPlan) -> Chart | None:
    """Slots needed by each task, against the number of answers; None if no similar plan can be."""
    tasks = calibrated.plan.tasks
    most = max(task.answers for task in tasks.values())
    varied = {
        factor: {"tasks": {name: _times_answers(task, factor) for name, task in tasks.items()}}
        for factor in FACTORS
        if most * factor <= _MOST_ANSWERS
    }
    title = "Slots needed for a 95 % good release, by the number of answers"
    return _needed(calibrated, title, "answers", varied, lambda factor: _TIMES.get(factor, figure(factor)))


def _times_answers(task: ClassifyTask | GenerateTask, factor: float) -> ClassifyTask | GenerateTask:
    return task if task.once else task.model_copy(update={"answers": max(1, round(task.answers * factor))})


def _noise(calibrated: CalibratedPlan, varied: Mapping[str, Any]) -> Mapping[str, TaskNoise] | None:
    """The tasks' noise in the plan so varied; None if there is none."""
    plan = calibrated.plan.model_copy(update=varied)
    if plan == calibrated.plan:
        return calibrated.noise
    try:
        return least_noise(plan, calibrated.public_size)
    except PlanError:
        return None


def _needed(
    calibrated: CalibratedPlan,
    title: str,
    label: str,
    varied: Mapping[float, Mapping[str, Any]],
    words: Callable[[float], str],
) -> Chart | None:
    known = {x: noise for x, changes in varied.items() if (noise := _noise(calibrated, changes)) is not None}
    if len(known) < 2:
        return None
    places = sorted(known)
    lines = [
        Line(name, [(x, _share(task, known[x][name], calibrated.public_size)) for x in places], style)
        for style, (name, task) in enumerate(list(calibrated.plan.tasks.items())[:STYLES], start=1)
    ]
    summary = "; ".join(
        f"{line.name}: " + ", ".join(f"{_reach(share)} at {words(x)}" for x, share in line.points) for line in lines
    )
    most = max(share for line in lines for _, share in line.points)
    top = next((top for top in (0.1, 0.2, 0.4) if most <= top), 1.0)
    x = Axis(label, places[0], places[-1], log=True, words=words, ticks=len(places))
    return LineChart(title, summary, lines, x, Axis("share of the slots that must agree", 0, top, words=_reach))


def _share(task: ClassifyTask | GenerateTask, noise: TaskNoise, public_size: int) -> float:
    adapter = adapter_of(task, noise)
    return adapter.outlook().needed / adapter.voices(public_size)


def _reach(share: float) -> str:
    return percent(share) if share <= 1 else "out of reach"
