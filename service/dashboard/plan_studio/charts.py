"""What a plan would give, drawn: how agreement makes a release good, and what other ε or answers would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from accounting.plan import LARGEST_EPSILON, CalibratedPlan, Plan, TaskNoise
from accounting.tasks import ClassifyTask, GenerateTask
from service.dashboard.charts import STYLES, Axis, Chart, Line, Mark, line_chart
from service.pipeline.mechanisms.adapter import adapter_of
from service.pipeline.mechanisms.outlook import RELIABLE
from service.wording import figure, number, percent

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
    return line_chart(
        f"Chance that {outlook.outcome}",
        outlook.in_words(None if task.once else task.answers, voices),
        [Line("chance", [(n, outlook.chance(n)) for n in slots])],
        Axis(f"{outlook.slots_mean} (of {voices:,})", 0, voices, words=number),
        Axis("chance", 0, 1, words=percent),
        marks,
    )


def variants(plan: Plan) -> tuple[dict[float, Plan], dict[float, Plan]]:
    """The plan with other ε, and with other numbers of answers, by factor; the plan itself is among both."""
    epsilons = {
        factor: plan.model_copy(update={"budget": plan.budget.model_copy(update={"epsilon": epsilon})})
        for factor in FACTORS
        if _SMALLEST_EPSILON <= (epsilon := plan.budget.epsilon * factor) <= LARGEST_EPSILON
    }
    answers = {
        factor: plan.model_copy(
            update={
                "tasks": {
                    name: task if task.once else _times_answers(task, factor) for name, task in plan.tasks.items()
                }
            }
        )
        for factor in FACTORS
        if max(task.answers for task in plan.tasks.values()) * factor <= _MOST_ANSWERS
    }
    return epsilons, answers


def _times_answers(task: ClassifyTask | GenerateTask, factor: float) -> ClassifyTask | GenerateTask:
    return task.model_copy(update={"answers": max(1, round(task.answers * factor))})


def over_epsilon(plans: Mapping[float, CalibratedPlan | None]) -> Chart | None:
    """Slots needed by each task, against the plan's ε; None for a plan that cannot be."""
    known = {calibrated.plan.budget.epsilon: calibrated for calibrated in plans.values() if calibrated is not None}
    return _needed("Slots needed for a 95 % good release, by the plan’s ε", "ε of the plan", known, figure)


def over_answers(plans: Mapping[float, CalibratedPlan | None]) -> Chart | None:
    """Slots needed by each task, against the number of answers; None for a plan that cannot be."""
    known = {factor: calibrated for factor, calibrated in plans.items() if calibrated is not None}
    title = "Slots needed for a 95 % good release, by the number of answers"
    return _needed(title, "answers", known, lambda factor: _TIMES.get(factor, figure(factor)))


def _needed(
    title: str, label: str, known: Mapping[float, CalibratedPlan], words: Callable[[float], str]
) -> Chart | None:
    if len(known) < 2:
        return None
    places = sorted(known)
    names = list(known[places[0]].plan.tasks)[:STYLES]
    lines = [Line(name, [(x, _share(known[x], name)) for x in places], style) for style, name in enumerate(names, 1)]
    summary = "; ".join(
        f"{line.name}: " + ", ".join(f"{_reach(share)} at {words(x)}" for x, share in line.points) for line in lines
    )
    most = max(share for line in lines for _, share in line.points)
    top = next((top for top in (0.1, 0.2, 0.4) if most <= top), 1.0)
    x = Axis(label, places[0], places[-1], log=True, words=words, ticks=len(places))
    return line_chart(title, summary, lines, x, Axis("share of the slots that must agree", 0, top, words=_reach))


def _share(calibrated: CalibratedPlan, name: str) -> float:
    adapter = adapter_of(calibrated.plan.tasks[name], calibrated.noise[name])
    return adapter.outlook().needed / adapter.voices(calibrated.public_size)


def _reach(share: float) -> str:
    return percent(share) if share <= 1 else "out of reach"
