"""What a plan would give, as curves: how agreement makes a release good, and what other ε or answers would change."""

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
        outcome: what a good release is, a clause.
        summary: what the task gives, in a few sentences.
        slots_mean: what the slots must do, beginning with "slots".
        voices: how many slots there are.
        needed: with how many the release is good in a share :attr:`reliable` of all cases; None: more than there are.
        reliable: that share.
        chances: (slots that agree, chance).
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
        shares: by task, (ε of the plan, or factor of its answers; share), above 1 where no slots are enough.
    """

    shares: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Otherwise:
    """What else a plan's budget would give, and what other budgets would.

    Attributes:
        proposals: what would be better for the same budget.
        alternatives: by task, at its share of the budget.
        over_epsilon: with other ε; None if no similar plan can be.
        over_answers: with other numbers of answers; None if no similar plan can be.
    """

    proposals: Sequence[Proposal]
    alternatives: Alternatives
    over_epsilon: Needed | None
    over_answers: Needed | None


def agreement(task: Task, noise: TaskNoise, public_size: int) -> Agreement:
    """How agreement makes a release of a task good."""
    adapter = adapter_of(task, noise)
    outlook, voices = adapter.outlook(), adapter.voices(public_size)
    steps = min(voices, _POINTS)
    slots = [round(i * voices / steps) for i in range(steps + 1)]
    return Agreement(
        outlook.outcome,
        outlook.in_words(None if task.once else task.answers, voices),
        outlook.slots_mean,
        voices,
        outlook.needed if outlook.needed <= voices else None,
        RELIABLE,
        [(n, outlook.chance(n)) for n in slots],
    )


def otherwise(calibrated: CalibratedPlan, *, embeds: bool, language_model: bool | None) -> Otherwise:
    """What else could be. Takes seconds.

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
    """Slots needed by each task, against the plan's ε; None if no similar plan can be."""
    budget = calibrated.plan.budget
    varied = {
        epsilon: {"budget": budget.model_copy(update={"epsilon": epsilon})}
        for epsilon in (budget.epsilon * factor for factor in FACTORS)
        if _SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON
    }
    return _needed(calibrated, varied)


def over_answers(calibrated: CalibratedPlan) -> Needed | None:
    """Slots needed by each task, against the factor of its answers; None if no similar plan can be."""
    tasks = calibrated.plan.tasks
    most = max(task.answers for task in tasks.values())
    varied = {
        factor: {"tasks": {name: _times_answers(task, factor) for name, task in tasks.items()}}
        for factor in FACTORS
        if most * factor <= _MOST_ANSWERS
    }
    return _needed(calibrated, varied)


def _times_answers(task: Task, factor: float) -> Task:
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
