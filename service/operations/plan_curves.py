"""Curves of a plan: the chance of a good release by agreement, and slots needed with other ε or other answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.plans.plan import LARGEST_EPSILON, CalibratedPlan, PlanError, TaskNoise
from accounting.plans.tasks import Task
from service.answering.mechanisms.adapter import adapter_of
from service.answering.mechanisms.outlook import RELIABLE
from service.answering.plans.alternatives import Alternatives, alternatives
from service.answering.plans.calibrating import least_noise
from service.answering.plans.proposals import Proposal, proposals

FACTORS = (0.5, 1.0, 2.0)
"""Half, the same, twice: of ε, or of the answers."""

_POINTS = 60
_SMALLEST_EPSILON, _MOST_ANSWERS = 1e-3, 100_000_000


@dataclass(frozen=True)
class Agreement:
    """The chance of a good release of a task against the number of slots that agree on it.

    Attributes:
        outcome: meaning of a good release, a clause.
        summary: description of the task's answers, a few sentences.
        slots_mean: behaviour of slots that agree, beginning with "slots".
        voices: number of slots.
        needed: number of slots that must agree for a chance of :attr:`reliable`; None: more than there are.
        reliable: chance at which a release counts as reliable.
        chances: pairs (number of slots that agree, chance).
    """

    outcome: str
    summary: str
    slots_mean: str
    voices: int
    needed: float | None
    reliable: float
    chances: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Needed:
    """The share of the slots that each task needs for a good release, against ε or against the number of answers.

    Attributes:
        shares: pairs (ε of the plan or factor of its answers, share) by task; a share above 1 is out of reach.
    """

    shares: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Otherwise:
    """Other uses of a plan's budget, and other budgets.

    Attributes:
        proposals: improvements for the same budget.
        alternatives: alternatives to each task, at its share of the budget.
        over_epsilon: slots needed with other ε; None: no similar plan can be calibrated.
        over_answers: slots needed with other numbers of answers; None: no similar plan can be calibrated.
    """

    proposals: Sequence[Proposal]
    alternatives: Alternatives
    over_epsilon: Needed | None
    over_answers: Needed | None


def agreement(task: Task, noise: TaskNoise, public_size: int) -> Agreement:
    """The chance of a good release of a task, at numbers of slots that agree."""
    adapter = adapter_of(task, noise)
    outlook, voices = adapter.outlook(), adapter.voices(public_size)
    steps = min(voices, _POINTS)
    slots = [round(i * voices / steps) for i in range(steps + 1)]
    return Agreement(
        outlook.outcome,
        outlook.in_words(task.releases.shown(task.answers), voices),
        outlook.slots_mean,
        voices,
        outlook.needed if outlook.needed <= voices else None,
        RELIABLE,
        [(n, outlook.chance(n)) for n in slots],
    )


def otherwise(calibrated: CalibratedPlan, *, embeds: bool, language_model: bool | None) -> Otherwise:
    """Other uses of a plan's budget, and other budgets. Takes seconds.

    Args:
        calibrated: the plan.
        embeds: whether its knowledge base stores embeddings.
        language_model: whether a language model answers; None: not known.
    """
    return Otherwise(
        proposals(calibrated, embeds=embeds, language_model=language_model),
        alternatives(calibrated.plan, calibrated.public_size),
        over_epsilon(calibrated),
        over_answers(calibrated),
    )


def over_epsilon(calibrated: CalibratedPlan) -> Needed | None:
    """Slots needed by each task, against the plan's ε; None: no similar plan can be calibrated."""
    budget = calibrated.plan.budget
    varied = {
        epsilon: {"budget": budget.model_copy(update={"epsilon": epsilon})}
        for epsilon in (budget.epsilon * factor for factor in FACTORS)
        if _SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON
    }
    return _needed(calibrated, varied)


def over_answers(calibrated: CalibratedPlan) -> Needed | None:
    """Slots needed by each task, against the factor of its answers; None: no similar plan can be calibrated."""
    plan = calibrated.plan
    most = max(task.answers for task in plan.tasks.values())
    varied = {
        factor: {"tasks": plan.tasks | {name: _times_answers(task, factor) for name, task in plan.each.items()}}
        for factor in FACTORS
        if most * factor <= _MOST_ANSWERS
    }
    return _needed(calibrated, varied)


def _times_answers(task: Task, factor: float) -> Task:
    return task.model_copy(update={"answers": max(1, round(task.answers * factor))})


def _noise(calibrated: CalibratedPlan, varied: Mapping[str, Any]) -> Mapping[str, TaskNoise] | None:
    """The tasks' noise in the plan so varied; None: it cannot be calibrated."""
    plan = calibrated.plan.model_copy(update=varied)
    if plan == calibrated.plan:
        return calibrated.noise
    try:
        return least_noise(plan, calibrated.public_size)
    except PlanError:
        return None


def _needed(calibrated: CalibratedPlan, varied: Mapping[float, Mapping[str, Any]]) -> Needed | None:
    known = {x: noise for x, changes in varied.items() if (noise := _noise(calibrated, changes)) is not None}
    if len(known) < 2:
        return None
    return Needed(
        {
            name: [(x, _share(task, known[x][name], calibrated.public_size)) for x in sorted(known)]
            for name, task in calibrated.plan.tasks.items()
        }
    )


def _share(task: Task, noise: TaskNoise, public_size: int) -> float:
    adapter = adapter_of(task, noise)
    return adapter.outlook().needed / adapter.voices(public_size)
