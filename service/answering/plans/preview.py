"""The expected effect of a plan, in words and numbers an admin can decide by, before anything is spent.

Everything here is computed from public figures: the plan, and the public size of its knowledge base.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from accounting.ledger.entries import by_task
from accounting.plans.labels import codes
from accounting.plans.plan import CalibratedPlan, TaskNoise
from accounting.plans.strict import is_unset
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.privacy.accountants import get_accountant
from accounting.privacy.profiles import Gaussian
from aggregation.accuracy import RightAnswers, largest_error
from service.answering.mechanisms.adapter import adapter_of, needs_written_texts
from service.answering.mechanisms.outlook import RELIABLE, Reach
from service.answering.queries import public_tokens
from service.engines.prompts import CHARACTERS_PER_TOKEN
from service.records.signed import read_signed

COARSE = 0.1
"""Standard error of a measured accuracy above which it decides little."""
_SEVERAL = 4
_AS_TIGHT = 0.97  # of ε: two accountants whose bounds differ by less are as good
"""An example of how many exemplars a unit may have."""
_MANY_EMPTY = 10.0
"""Empty slots of 100 that are worth a sentence, if units have that many."""
TYPICAL_LEADS = {4: (2, 39), 16: (12, 82)}
"""Least and most average lead of the right label, in percent of the slots, on four public data sets (docs/fit.md), by
the number of exemplars of which a slot quotes the nearest."""


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


class MeasurePreview(BaseModel):
    """How well a one-time release can measure itself.

    Attributes:
        units: number of units to expect among those that are left out, if each exemplar is a unit's.
        standard_error: standard error of the accuracy that it will state, at most: 0 to 0.5.
    """

    units: int
    standard_error: float


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
        reach: whether good releases can be expected.
        llm_calls: engine calls per answer, at most.
        llm_tokens: rough prompt tokens per answer, if slots are as large as the plan lets them be.
        fitted_to: number of labelled public rows that its labels' scores were fitted to, so that answers carry a
            probability; None: to none, or there are no scores.
        gives: promise to a person: the number of answers, when they are good, and what slots show.
        summary: the same in figures, what to change if it can hardly hold, and the meaning of a label's score.
        warning: why its answers are not expected to be worth their price; None if they may be.
        remedies: advice unless good releases are in reach; None if nothing has to change.
        unknown: description of what cannot be known of labels without labelled rows; None: the answers are texts.
        advice: another change to make, whatever the noise; absent if there is none.
        topics: sampling of answers on each topic; absent if it has none. Together they cost as much as the dearest.
        measured: precision with which its one-time release measures itself; absent if it does not.
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
    reach: Reach
    llm_calls: int
    llm_tokens: int
    fitted_to: int | None
    gives: str
    summary: str
    warning: str | None
    remedies: str | None = None
    unknown: str | None = None
    advice: str | None = Field(default=None, exclude_if=is_unset)
    topics: dict[str, TopicPreview] | None = Field(default=None, exclude_if=is_unset)
    measured: MeasurePreview | None = Field(default=None, exclude_if=is_unset)


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
        looser: note that another accountant promises more with the same noise; None where none does.
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
    looser: str | None = Field(default=None, exclude_if=is_unset)
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
        looser=_looser(calibrated),
        tasks=tasks,
    )


def _looser(calibrated: CalibratedPlan) -> str | None:
    """A note for a plan whose accountant is not the one that needs the least noise."""
    named, upper = calibrated.plan.accountant, {name: one.upper for name, one in calibrated.epsilon.items()}
    best = min((name for name in upper if name in ("pld", "rdp")), key=lambda name: upper[name], default=named)
    if upper[best] > _AS_TIGHT * upper[named]:
        return None
    return (
        f"{named} states ε = {upper[named]:.3g} for this noise, and {best} {upper[best]:.3g}: with `accountant: "
        f"{best}`, or without that line, the plan needs less noise"
    )


def describe(task: ClassifyTask | GenerateTask, noise: TaskNoise, public_size: int) -> TaskPreview:
    """Describe a task with its noise, in a knowledge base of that public size."""
    q, adapter = noise.sampling_probability, adapter_of(task, noise)
    seen, voices = adapter.outlook(), adapter.voices(public_size)
    topics = None if task.topics is None else {name: _topic(task, name, public_size) for name in task.topics.all}
    expected = [topic.expected_exemplars for topic in (topics or {}).values()] or [q * public_size]
    answers, warning = task.releases.shown(task.answers), seen.warning(voices)
    measured = _measured(task, noise, public_size)
    also = _shown(task) + _empty(task, public_size) + _of_measure(measured) + _engine_needed(task)
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
        reach=seen.reach(voices),
        llm_calls=adapter.calls,
        llm_tokens=_prompt_tokens(task, adapter.calls, adapter.exemplars),
        fitted_to=task.mechanism.fitted if isinstance(task, ClassifyTask) else None,
        gives=seen.gives(answers, voices, number) + also,
        summary=seen.in_words(answers, voices, number) + also + _of_scores(task),
        warning=warning,
        remedies=None if seen.reach(voices) == "in reach" else seen.remedies,
        unknown=_unknown(task),
        advice=_of_codes(task),
        topics=topics,
        measured=measured,
    )


def _measured(task: ClassifyTask | GenerateTask, noise: TaskNoise, public_size: int) -> MeasurePreview | None:
    if not task.mechanism.left_out or not isinstance(noise.mechanism, Gaussian):
        return None
    units = max(1, round(task.mechanism.left_out * public_size))
    error = largest_error(units, RightAnswers(noise.mechanism.noise_multiplier).sigma)
    return MeasurePreview(units=units, standard_error=error)


def _of_measure(measured: MeasurePreview | None) -> str:
    if measured is None:
        return ""
    error = f"± {100 * measured.standard_error:.1f} points or less"
    if measured.standard_error > COARSE:
        error += ", which is too coarse to decide by: more exemplars or a larger `measured_on` help"
    return (
        f" About {measured.units:,} people, if each has one exemplar, are left out of it; its share of right answers "
        f"among them is counted with noise, and stated with every answer, to {error}."
    )


def _unknown(task: ClassifyTask | GenerateTask) -> str | None:
    if not isinstance(task, ClassifyTask):
        return None
    return (
        "How many labels will be right depends on your data, and is unknown without labelled rows to measure it on."
        f"{_typical_lead(task)}"
    )


def _typical_lead(task: ClassifyTask) -> str:
    """How far the right label led elsewhere, of slots that quote the nearest of about as many exemplars."""
    if task.once or task.slots != "quote":
        return ""
    drawn = min(TYPICAL_LEADS, key=lambda drawn: abs(math.log(task.expected / drawn)))
    if not drawn / 2 <= task.expected <= 2 * drawn:
        return ""
    least, most = TYPICAL_LEADS[drawn]
    return (
        f" In public data sets, where slots quoted the nearest of {drawn}, the right label had on average {least} to "
        f"{most} of 100 slots more than any other."
    )


def _topic(task: ClassifyTask | GenerateTask, name: str, public_size: int) -> TopicPreview:
    if task.topics is None:
        raise TypeError("the task has no topics")
    size, q = task.topics.size(name, public_size), task.topic_probability(name, public_size)
    return TopicPreview(public_size=size, sampling_probability=q, expected_exemplars=q * size)


def _shown(task: ClassifyTask | GenerateTask) -> str:
    """What slots show or repeat, and the public exemplars that a model is shown before."""
    if not task.public_exemplars:
        return _chosen(task)
    count = len(task.public_exemplars)
    public = "1 public exemplar" if count == 1 else f"{count} public exemplars"
    return f"{_chosen(task)} Every prompt first shows {public}, of about {public_tokens(task)} tokens."


def _chosen(task: ClassifyTask | GenerateTask) -> str:
    if task.order != "nearest":
        return ""
    if task.slots == "quote":
        return f" Each slot draws about {task.expected} exemplars and repeats the response of the nearest one."
    shown = "the one" if task.shots == 1 else f"the {task.shots}"
    return f" Each slot draws about {task.expected} exemplars and shows {shown} nearest to the question."


def empty_share(drawn: int, public_size: int, each: int) -> float:
    """The expected share of slots that draw no unit, and abstain.

    Each unit falls into a slot with probability drawn / public size, independently of the others.

    Args:
        drawn: exemplars that a slot expects to draw.
        public_size: the public number of exemplars that slots are drawn from.
        each: number of exemplars of each unit.
    """
    return (1 - min(1.0, drawn / public_size)) ** (public_size / each)


def _empty(task: ClassifyTask | GenerateTask, public_size: int) -> str:
    """How many slots stay empty, where those may be many."""
    if task.once:
        return ""
    size = public_size if task.topics is None else min(task.topics.size(name, public_size) for name in task.topics.all)
    one, several = (100 * empty_share(task.expected, size, each) for each in (1, _SEVERAL))
    if several < _MANY_EMPTY:
        return ""
    return (
        f" About {one:.0f} of 100 slots stay empty if each unit has one exemplar, and {several:.0f} if each has "
        f"{_SEVERAL}."
    )


def _engine_needed(task: ClassifyTask | GenerateTask) -> str:
    if not needs_written_texts(task):
        return ""
    return (
        " Only a language model can answer: `nearest_exemplar` needs `public_answers`, `public_exemplars`, or a "
        "`document_field`."
    )


def _of_codes(task: ClassifyTask | GenerateTask) -> str | None:
    """Advice where labels mean nothing to an engine."""
    if not isinstance(task, ClassifyTask):
        return None
    unsaid = codes([label for label in task.labels if label not in task.label_descriptions])
    if not unsaid:
        return None
    shown = ", ".join(unsaid[:_MOST_CODES]) + (", …" if len(unsaid) > _MOST_CODES else "")
    votes = "" if task.once else " Or choose `decide: argmax`, which leaves zero-shot out."
    return (
        f"{shown} read as codes, of which an engine without exemplars knows nothing. Give each a public sentence in "
        f"`label_descriptions`.{votes}"
    )


_MOST_CODES = 3


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
    always = prompt_characters // CHARACTERS_PER_TOKEN + public_tokens(task)
    return calls * (always + exemplar_tokens) + exemplars * exemplar_tokens


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
    upper = get_accountant(calibrated.plan.accountant).upper(events, calibrated.plan.budget.delta)
    return min(upper, calibrated.plan.budget.epsilon)


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
