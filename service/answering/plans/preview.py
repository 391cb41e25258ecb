"""The expected effect of a plan, in words and numbers an admin can decide by, before anything is spent.

Everything here is computed from public figures: the plan, and the public size of its knowledge base.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from accounting.ledger.entries import by_task
from accounting.plans.plan import CalibratedPlan, TaskNoise
from accounting.plans.strict import is_unset
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.privacy.accountants import get_accountant
from service.answering.mechanisms.adapter import adapter_of, needs_written_texts
from service.answering.mechanisms.outlook import RELIABLE
from service.engines.prompts import CHARACTERS_PER_TOKEN
from service.records.signed import read_signed


class TopicPreview(BaseModel):
    """One topic of a task, with its sampling. Its noise and its number of answers are the task's.

    Attributes:
        public_size: the public number of exemplars on it.
        sampling_probability: chance of each unit on it to take part in an answer.
        expected_exemplars: exemplars drawn per answer, at the public size.
        epsilon: ε of all answers on the topic to a unit on it, at the plan's δ; in a dry run only.
        texts: some public texts of the plan that are on the topic; in a dry run only.
    """

    public_size: int
    sampling_probability: float
    expected_exemplars: float
    epsilon: float | None = Field(default=None, exclude_if=is_unset)
    texts: list[str] = Field(default=[], exclude_if=lambda texts: not texts)


class TaskPreview(BaseModel):
    """One task of a plan.

    Attributes:
        kind: "classify" or "generate".
        mechanism: mechanism that releases the answers.
        answers: number of answers at most, on each topic if it has topics; None: any number, from a one-time release.
        sampling_probability: chance of each privacy unit to take part in an answer; of topics, the largest.
        expected_exemplars: exemplars drawn per answer, or for the one release, at the public size; of topics, the most.
        ensemble: slots an answer is drawn from; with a one-time release, the units that a label has if each
            exemplar is a unit's and labels are equally frequent.
        noise: the mechanism's public numbers, by name.
        noise_words: the same in short.
        slots_for_95_percent: number of slots which, if they meet ``slots_mean``, make the release good in 95 of 100
            cases; None where even the whole ensemble is too small.
        slots_mean: requirement that these slots meet.
        llm_calls: engine calls per answer, at most.
        llm_tokens: rough prompt tokens per answer, if slots are as large as the plan lets them be.
        fitted_to: number of labelled public rows that its labels' scores were fitted to, so that answers carry a
            probability; None: to none, or there are no scores.
        gives: promise to a person: the number of answers, when they are good, and what slots show.
        summary: the same in figures, what to change if it can hardly hold, and the meaning of a label's score.
        warning: why its answers are not expected to be worth their price; None if they may be.
        remedies: advice then, or where the slots needed are out of reach; None if nothing has to change.
        topics: sampling of answers on each topic; absent if it has none. Together they cost as much as the dearest.
    """

    kind: str
    mechanism: str
    answers: int | None
    sampling_probability: float
    expected_exemplars: float
    ensemble: int
    noise: dict[str, float]
    noise_words: str
    slots_for_95_percent: float | None
    slots_mean: str
    llm_calls: int
    llm_tokens: int
    fitted_to: int | None
    gives: str
    summary: str
    warning: str | None
    remedies: str | None = None
    topics: dict[str, TopicPreview] | None = Field(default=None, exclude_if=is_unset)


class PlanPreview(BaseModel):
    """A calibrated plan for people.

    Attributes:
        knowledge_base: knowledge base whose budget the plan takes from.
        epsilon: ε that the plan promises.
        delta: δ that the plan promises.
        accountant: accountant whose figure the promise rests on.
        cohorts: numbers of those that it is charged to, and draws on.
        public_size: the public number of their exemplars, which sampling probabilities rest on.
        epsilon_by_accountant: (lower, upper) bounds of the plan's true ε by every accountant that supports it.
        unsupported: reasons of the accountants that do not support it, by accountant.
        tasks: previews of the plan's tasks, by name.
    """

    knowledge_base: str
    epsilon: float
    delta: float
    accountant: str
    cohorts: list[int]
    public_size: int
    epsilon_by_accountant: dict[str, tuple[float, float]]
    unsupported: dict[str, str]
    tasks: dict[str, TaskPreview]

    @property
    def warnings(self) -> list[str]:
        """The warning of every task that has one."""
        return [f"{name}: {task.warning}" for name, task in self.tasks.items() if task.warning]


def preview(calibrated: CalibratedPlan) -> PlanPreview:
    """Describe a calibrated plan. A task that takes its prior from another asks the engine for that, too."""
    plan, size = calibrated.plan, calibrated.public_size
    tasks = {name: describe(task, calibrated.noise[name], size) for name, task in plan.tasks.items()}
    for name, task in plan.tasks.items():
        if isinstance(task, ClassifyTask) and task.prior_from is not None:
            own, prior = tasks[name], tasks[task.prior_from]
            calls, tokens = own.llm_calls + prior.llm_calls, own.llm_tokens + prior.llm_tokens
            tasks[name] = own.model_copy(update={"llm_calls": calls, "llm_tokens": tokens})
    return PlanPreview(
        knowledge_base=plan.knowledge_base,
        epsilon=plan.budget.epsilon,
        delta=plan.budget.delta,
        accountant=plan.accountant,
        cohorts=list(calibrated.cohorts),
        public_size=size,
        epsilon_by_accountant={name: (e.lower, e.upper) for name, e in calibrated.epsilon.items()},
        unsupported=calibrated.unsupported,
        tasks=tasks,
    )


def describe(task: ClassifyTask | GenerateTask, noise: TaskNoise, public_size: int) -> TaskPreview:
    """Describe a task with its noise, in a knowledge base of that public size."""
    q, adapter = noise.sampling_probability, adapter_of(task, noise)
    seen, voices = adapter.outlook(), adapter.voices(public_size)
    topics = None if task.topics is None else {name: _topic(task, name, public_size) for name in task.topics.all}
    expected = [topic.expected_exemplars for topic in (topics or {}).values()] or [q * public_size]
    answers, warning = task.releases.shown(task.answers), seen.warning(voices)
    number = None if topics is None else len(topics)
    return TaskPreview(
        kind=task.kind,
        mechanism=task.mechanism.type,
        answers=answers,
        sampling_probability=q,
        expected_exemplars=max(expected),
        ensemble=voices,
        noise=dict(seen.noise),
        noise_words=seen.noise_words,
        slots_for_95_percent=seen.needed if seen.needed <= voices else None,
        slots_mean=seen.slots_mean,
        llm_calls=adapter.calls,
        llm_tokens=_prompt_tokens(task, adapter.calls, adapter.exemplars),
        fitted_to=task.mechanism.fitted if isinstance(task, ClassifyTask) else None,
        gives=seen.gives(answers, voices, number) + _chosen(task) + _engine_needed(task),
        summary=seen.in_words(answers, voices, number) + _chosen(task) + _engine_needed(task) + _of_scores(task),
        warning=warning,
        remedies=seen.remedies if warning or seen.needed > voices else None,
        topics=topics,
    )


def _topic(task: ClassifyTask | GenerateTask, name: str, public_size: int) -> TopicPreview:
    if task.topics is None:
        raise TypeError("the task has no topics")
    size, q = task.topics.size(name, public_size), task.topic_probability(name, public_size)
    return TopicPreview(public_size=size, sampling_probability=q, expected_exemplars=q * size)


def _chosen(task: ClassifyTask | GenerateTask) -> str:
    if task.order != "nearest":
        return ""
    if task.slots == "quote":
        return f" Each slot draws about {task.expected} exemplars and repeats the response of the nearest one."
    shown = "the one" if task.shots == 1 else f"the {task.shots}"
    return f" Each slot draws about {task.expected} exemplars and shows {shown} nearest to the question."


def _engine_needed(task: ClassifyTask | GenerateTask) -> str:
    if not needs_written_texts(task):
        return ""
    return " Only a language model can answer: `nearest_exemplar` needs `public_answers`, or a `document_field`."


def _of_scores(task: ClassifyTask | GenerateTask) -> str:
    """The meaning of the number beside a label."""
    if not isinstance(task, ClassifyTask) or not task.mechanism.gives_score:
        return ""
    if task.mechanism.fitted is not None:
        return f" Answers carry the label's probability of being right, fitted to {task.mechanism.fitted} public rows."
    how = " `dpicl eval --fit` makes it one, with labelled public rows." if task.mechanism.can_be_fitted else ""
    return f" Answers carry a score of the label, which is not its probability of being right.{how}"


def _prompt_tokens(task: ClassifyTask | GenerateTask, calls: int, exemplars: int) -> int:
    """Tokens of all calls of an answer, roughly: exemplars and the question take as much as a slot may show."""
    prompt_characters = len(task.prompt.instruction) + len(task.prompt.query)
    exemplar_tokens = task.slot_room // task.shots
    return calls * (prompt_characters // CHARACTERS_PER_TOKEN + exemplar_tokens) + exemplars * exemplar_tokens


def epsilon_spent(document: str, charged: dict[str, int]) -> float:
    """ε of the charges so far, at the plan's δ, by the plan's accountant. For information: the promise is the plan's.

    Counts are rounded up to whole percents of the task's answers, so that a busy day computes a hundred values, not one
    per answer.

    Args:
        document: the plan as it was signed.
        charged: charges by task, or by task and topic (:func:`accounting.ledger.entries.entry`): a unit has paid for
            those on one topic, at most for those on the busiest.
    """
    tasks = read_signed(document).plan.tasks
    rounded = []
    for name, count in sorted(by_task(charged).items()):
        answers = tasks[name].answers
        grain = -(-answers // 100)
        rounded.append((name, min(answers, -(-count // grain) * grain)))
    return _epsilon_spent(document, tuple(rounded))


@lru_cache(maxsize=1024)
def _epsilon_spent(document: str, charged: tuple[tuple[str, int], ...]) -> float:
    calibrated = read_signed(document)
    events = calibrated.events(dict(charged))
    if not events:
        return 0.0
    bounds = get_accountant(calibrated.plan.accountant).bounds(events, calibrated.plan.budget.delta)
    return min(bounds.upper, calibrated.plan.budget.epsilon)


def plot(calibrated: CalibratedPlan) -> Any:
    """A matplotlib figure with, per task, the chance of a good release against the number of slots that agree on it."""
    from matplotlib.figure import Figure

    tasks = calibrated.plan.tasks
    figure = Figure(figsize=(7.0, 0.5 + 3.2 * len(tasks)), layout="constrained")
    for axes, (name, task) in zip(figure.subplots(len(tasks), squeeze=False).flat, tasks.items(), strict=True):
        adapter = adapter_of(task, calibrated.noise[name])
        seen, voices = adapter.outlook(), adapter.voices(calibrated.public_size)
        slots = np.unique(np.linspace(0, voices, 201).astype(int)).tolist()
        axes.plot(slots, [seen.chance(n) for n in slots])
        axes.axhline(RELIABLE, color="grey", linewidth=0.8, linestyle="--")
        if seen.needed <= voices:
            axes.axvline(seen.needed, color="grey", linewidth=0.8, linestyle="--")
        axes.set_title(f"{name} ({task.mechanism.type})\nchance that {seen.outcome}", fontsize="medium")
        axes.set(xlabel=f"{seen.slots_mean} (of {voices})", ylabel="chance", ylim=(-0.02, 1.02))
        axes.set_xlim(0, voices)
    budget = calibrated.plan.budget
    figure.suptitle(f"{calibrated.plan.knowledge_base}: ε = {budget.epsilon:g}, δ = {budget.delta:g}")
    return figure
