"""Changes of a plan that are better for the same budget, as lines that can be pasted into the plan.

A proposal is made only where the numbers of the preview, or a measurement in docs/evaluation.md, show an improvement,
and only if the task can be calibrated with it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from pydantic import BaseModel

from accounting.plans import plain_yaml
from accounting.plans.mechanisms import (
    EmbeddingMeanMechanism,
    KeywordJointEmMechanism,
    KeywordPtrMechanism,
    RnmGaussianMechanism,
    SoftmaxRegressionMechanism,
    TokenEnsembleMechanism,
)
from accounting.plans.plan import CalibratedPlan, Plan, PlanError, TaskNoise, parse_plan
from accounting.plans.tasks import ClassifyTask, GenerateTask, Task
from accounting.plans.topics import Topics, TopicsByField, TopicsByTexts
from service.answering.mechanisms.outlook import DEMANDING
from service.answering.plans.calibrating import Variants, least_noise
from service.answering.plans.preview import COARSE, TaskPreview, describe

_TIMES_DRAWN = (8, 4, 2)
"""Multiples of what it shows that a slot may draw: the more, the nearer to the question, and the dearer."""
_FEWER_ANSWERS = (2, 5, 10, 20, 50, 100)
_SHARE_OF_PRIOR = 0.25
_USUAL_LEAD = 0.2
"""The share of the slots by which most questions' labels lead."""
_BARELY_MORE = 1.5
"""Times the slots needed as planned."""
_TEXTS_A_TOPIC = 4
_LEFT_OUT = 0.2
"""Share of the people that a release measures itself on."""
_LONGEST_NAME = 64


Previews = Mapping[str, TaskPreview]
"""Previews by task."""
Wanted = Callable[[TaskPreview], bool]


class Proposal(BaseModel):
    """One change of one task.

    Attributes:
        task: name of the task.
        why: improvement, in a sentence.
        lines: YAML below the task, in place of its present lines with these keys; empty for none.
        tasks: YAML of a whole task, below ``tasks``: a further one, or in place of the one of its name; empty for none.
    """

    task: str
    why: str
    lines: str = ""
    tasks: str = ""

    @property
    def pasted(self) -> list[tuple[str, str]]:
        """The lines to paste, each after the place to paste them, for people."""
        whole = "Below `tasks`:" if self.lines else f"Below `tasks`, in place of `{self.task}`:"
        parts = ((f"Below `{self.task}`:", self.lines), (whole, self.tasks))
        return [(where, text) for where, text in parts if text]


@dataclass(frozen=True)
class _Offer:
    """The facts that proposals rest on.

    Attributes:
        calibrated: the plan.
        embeds: whether its knowledge base stores embeddings.
        language_model: whether a language model answers; None: not known.
    """

    calibrated: CalibratedPlan
    embeds: bool
    language_model: bool | None

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The plan's tasks, by name."""
        return self.calibrated.plan.tasks

    def now(self, name: str) -> TaskPreview:
        """The task as planned."""
        return describe(self.tasks[name], self.calibrated.noise[name], self.calibrated.public_size)

    def changed(self, name: str, wanted: Wanted, **changes: Any) -> TaskPreview | None:
        """The task with some settings in the same plan; None if that cannot be or is not wanted."""
        other = {name: _plain(self.tasks[name]) | changes}
        return self.with_tasks(other, lambda seen: wanted(seen[name])).get(name)

    def with_tasks(self, others: Mapping[str, Mapping[str, Any]], wanted: Callable[[Previews], bool]) -> Previews:
        """Tasks in place of the plan's, or beside them, at the same budget; none if that cannot be or is not wanted.

        Beside other tasks a change hardly moves the plan's cost, so whether it is wanted is first seen at that cost.
        What is shown is calibrated, and still wanted then.
        """
        plan = self.calibrated.plan
        tasks = {name: _plain(task) for name, task in self.tasks.items()} | dict(others)
        try:
            changed = parse_plan(plan.model_dump(mode="json") | {"tasks": tasks})
            for found in self._noise:
                noise = found(changed)
                seen = {
                    name: describe(changed.tasks[name], noise[name], self.calibrated.public_size) for name in others
                }
                if not wanted(seen):
                    return {}
        except PlanError:
            return {}
        return seen

    @cached_property
    def _noise(self) -> Sequence[Callable[[Plan], Mapping[str, TaskNoise]]]:
        """Ways to a plan's noise; what is wanted by one is looked at by the next."""
        if len(self.tasks) == 1:
            return [lambda plan: least_noise(plan, self.calibrated.public_size)]
        variants = Variants(self.calibrated)
        return [variants.rough_noise, variants.least_noise]

    def to_nearest(self, name: str, **further: Any) -> tuple[dict[str, Any], TaskPreview] | None:
        """Settings by which slots show what is nearest, and what the task gives then.

        Drawing more than is shown costs noise. A label that leads as usual must still win, or by hardly more than as
        planned; words hardly ever stand out among exemplars at random. The last resort shows fewer of as many, which
        costs nothing.
        """
        task, now = self.tasks[name], self.now(name)
        planned = DEMANDING if now.slots_for_95_percent is None else now.slots_for_95_percent / now.ensemble
        most = DEMANDING if isinstance(task, GenerateTask) else max(_USUAL_LEAD, _BARELY_MORE * planned)
        wider = [] if task.max_exemplars else [{"drawn": times * task.shots} for times in _TIMES_DRAWN]
        narrower = [{"shots": max(1, task.shots // 4), "drawn": task.shots}] if task.shots > 1 else []
        for changes in (*wider, *narrower):
            settings = {"order": "nearest", **changes, **further}
            share = DEMANDING if changes in narrower else min(most, DEMANDING)
            seen = self.changed(name, partial(_in_reach, share=share), **settings)
            if seen is not None:
                return settings, seen
        return None


def proposals(calibrated: CalibratedPlan, *, embeds: bool = True, language_model: bool | None = None) -> list[Proposal]:
    """Changes that are better for the same budget. Takes about half a second, and as much again for each five tasks.

    Args:
        calibrated: the plan.
        embeds: whether its knowledge base stores embeddings.
        language_model: whether a language model answers; None: not known.
    """
    offer = _Offer(calibrated, embeds, language_model)
    return [one for name, task in offer.tasks.items() for one in (_once_of if task.once else _of)(offer, name, task)]


def adopted(plan: Plan, proposal: Proposal) -> Plan:
    """The plan with a proposal's lines in it, as an admin pastes them.

    Raises:
        PlanError: it does not fit the plan, which was changed since.
    """
    tasks = {name: _plain(task) for name, task in plan.tasks.items()}
    tasks[proposal.task] |= plain_yaml.load(proposal.lines) if proposal.lines else {}
    tasks |= plain_yaml.load(proposal.tasks) if proposal.tasks else {}
    return parse_plan(plan.model_dump(mode="json") | {"tasks": tasks})


def _of(offer: _Offer, name: str, task: Task) -> Iterator[Proposal]:
    now = offer.now(name)
    if isinstance(task, ClassifyTask) and offer.embeds:
        yield from _released_once(offer, name, task)
    if offer.embeds and task.sampling == "units" and task.order == "random":
        yield from _nearest(offer, name, task, now)
    if task.slots == "quote" or offer.language_model is False:
        yield from _sentences(offer, name, task)
    if isinstance(task, ClassifyTask):
        yield from _prior(offer, name, task)
    if offer.embeds and task.topics is None:
        yield from _topics(offer, name, task)
    if offer.language_model and isinstance(task.mechanism, RnmGaussianMechanism | EmbeddingMeanMechanism):
        yield from _blocks(offer, name, task, now)
    if now.remedies:
        yield from _fewer_answers(offer, name, task, now)


def _once_of(offer: _Offer, name: str, task: Task) -> Iterator[Proposal]:
    """A release that measures itself, where that is exact enough to decide by."""
    mechanism = task.mechanism
    if not isinstance(mechanism, SoftmaxRegressionMechanism) or mechanism.left_out:
        return
    written = {"type": mechanism.type, **mechanism.model_dump(mode="json", exclude_defaults=True)}
    settings = {"mechanism": {**written, "measured_on": _LEFT_OUT}}
    seen = offer.changed(name, lambda seen: _measure_error(seen) <= COARSE, **settings)
    if seen is not None:
        why = (
            f"The release leaves {100 * _LEFT_OUT:.0f} % of the people out and counts, with noise and at no further "
            f"cost, how often it is right about them, to ± {100 * _measure_error(seen):.1f} points or less. Every "
            "answer then states it. Right where no labelled row may be looked at."
        )
        yield Proposal(task=name, why=why, lines=_yaml(settings))


def _measure_error(seen: TaskPreview) -> float:
    return math.inf if seen.measured is None else seen.measured.standard_error


def _nearest(offer: _Offer, name: str, task: Task, now: TaskPreview) -> Iterator[Proposal]:
    found = offer.to_nearest(name)
    if found is not None:
        settings, seen = found
        shown, drawn = settings.get("shots", task.shots), settings["drawn"]
        why = (
            f"Each slot draws about {drawn} exemplars and shows the {shown} nearest to the question, which are more "
            f"often about it, so that more slots should agree. {_needs(now, seen)}"
        )
        yield Proposal(task=name, why=why, lines=_yaml(settings))
    if not isinstance(task, GenerateTask) or isinstance(task.mechanism, TokenEnsembleMechanism):
        return
    if offer.language_model is False:
        return  # its slots quote already
    found = offer.to_nearest(name, slots="quote")
    if found is not None and found[1].llm_calls < now.llm_calls:
        why = (
            f"Each slot repeats the response of its nearest exemplar, so an answer takes {found[1].llm_calls} calls of "
            f"the model in place of {now.llm_calls}. Right for what many people wrote, wrong where a model must "
            "transform what it reads."
        )
        yield Proposal(task=name, why=why, lines=_yaml(found[0]))


def _sentences(offer: _Offer, name: str, task: Task) -> Iterator[Proposal]:
    """Sentences in place of words, where slots repeat what people wrote about the question."""
    if task.order != "nearest" or not isinstance(task.mechanism, KeywordPtrMechanism | KeywordJointEmMechanism):
        return
    settings = {"mechanism": {"type": "common_sentences"}}
    seen = offer.changed(name, lambda seen: not seen.warning and _in_reach(seen), **settings)
    if seen is not None:
        why = (
            f"Whole sentences in place of words: one that {math.ceil(_needed(seen)):,} of {seen.ensemble:,} slots "
            "share, word for word, is released in 95 of 100 cases. Right where people answer by habit, such as with "
            "macros or standard advice, wrong where each answer is written anew."
        )
        yield Proposal(task=name, why=why, lines=_yaml(settings))


def _released_once(offer: _Offer, name: str, task: ClassifyTask) -> Iterator[Proposal]:
    """One release in place of all votes, unless the plan has one of the same labels."""
    if any(other.once and isinstance(other, ClassifyTask) and _alike(other, task) for other in offer.tasks.values()):
        return
    once = {name: _once(task, task.share)}
    seen = offer.with_tasks(once, lambda seen: seen[name].reach != "out of reach").get(name)
    if seen is not None:
        why = (
            f"One release of weights for each label gives any number of answers, where votes give {task.answers:,}. It "
            f"is made when the plan is signed, from the exemplars stored then. {_MEASURED} {seen.gives}"
        )
        yield Proposal(task=name, why=why, tasks=_yaml(once))


def _prior(offer: _Offer, name: str, task: ClassifyTask) -> Iterator[Proposal]:
    """One release weighed against the votes: one that the plan has already, which is free, or else a new one."""
    if task.prior_from is not None or not isinstance(task.mechanism, RnmGaussianMechanism):
        return
    if not task.mechanism.gives_score or task.mechanism.fitted:
        return
    for other, there in offer.tasks.items():
        if there.once and offer.changed(name, lambda _: True, prior_from=other):
            why = f"The release of `{other}` takes the place of zero-shot's opinion, at no cost. {_MEASURED}"
            yield Proposal(task=name, why=why, lines=_yaml({"prior_from": other}))
            return
    own = f"{name[: _LONGEST_NAME - len(_WEIGHTS)]}{_WEIGHTS}"
    if own in offer.tasks or not offer.embeds:
        return
    once = _once(task, _SHARE_OF_PRIOR * task.share)
    both = {own: once, name: _plain(task) | {"prior_from": own}}
    if offer.with_tasks(both, lambda seen: seen[own].reach != "out of reach" and _in_reach(seen[name])):
        why = (
            "Or keep the votes, which follow exemplars that come later: one release then takes the place of "
            "zero-shot's opinion, which knows nothing of exemplars."
        )
        yield Proposal(task=name, why=why, lines=_yaml({"prior_from": own}), tasks=_yaml({own: once}))


_WEIGHTS = "-weights"
_MEASURED = (
    "On public data sets it is right more often than votes at the same budget, where sentences with the same label are "
    "alike. Where one must read, such as for a tone, a language model's votes may know more."
)


def _alike(one: ClassifyTask, other: ClassifyTask) -> bool:
    """Whether two tasks ask for the same labels."""
    return (set(one.labels), one.label_field) == (set(other.labels), other.label_field)


def _once(task: ClassifyTask, share: float) -> dict[str, Any]:
    """The same labels by softmax regression."""
    described = {"label_descriptions": dict(task.label_descriptions)} if task.label_descriptions else {}
    return {
        "kind": "classify",
        "release": "once",
        "labels": list(task.labels),
        "label_field": task.label_field,
        **described,
        "prompt": {"exemplar": task.prompt.exemplar, "query": task.prompt.query},
        "share": share,
        "mechanism": {"type": "softmax_regression"},
    }


def _topics(offer: _Offer, name: str, task: Task) -> Iterator[Proposal]:
    """Topics for slots that draw several times what they show: among fewer, as many are on the question's topic."""
    if task.order != "nearest" or task.drawn is None:
        return
    now = offer.now(name)
    for topics in _known_topics(offer, task):
        number = len(topics.all)
        settings = {"topics": topics.model_dump(mode="json"), "drawn": max(task.shots, task.drawn // number)}
        seen = offer.changed(name, lambda seen: _needed(seen) <= _BARELY_MORE * _needed(now), **settings)
        if seen is None:
            continue
        brings = f" A question brings its `{topics.field}`." if isinstance(topics, TopicsByField) else ""
        why = (
            f"Each of {number} topics has {task.answers:,} answers of its own, {number * task.answers:,} in all, drawn "
            f"from the exemplars on that topic alone.{brings} {_needs(now, seen)}"
        )
        yield Proposal(task=name, why=why, lines=_yaml(settings))
        return


def _known_topics(offer: _Offer, task: Task) -> Iterator[Topics]:
    """Topics of the plan's other tasks, or centres of the public texts that the task has."""
    yield from (other.topics for other in offer.tasks.values() if other.topics is not None)
    if isinstance(task, ClassifyTask):
        texts = tuple(dict.fromkeys(text for text in task.public_texts if isinstance(text, str)))
        number = min(len(texts) // _TEXTS_A_TOPIC, task.expected // task.shots)
        if number > 1:
            yield TopicsByTexts(by="public_texts", number=number, texts=texts)


def _blocks(offer: _Offer, name: str, task: Task, now: TaskPreview) -> Iterator[Proposal]:
    if task.sampling == "blocks" or task.order == "nearest":
        return
    noise = now.noise["noise_multiplier"]
    seen = offer.changed(name, lambda seen: seen.noise["noise_multiplier"] < noise, sampling="blocks")
    if seen is not None:
        why = (
            "Fixed blocks of exemplars need less noise than exemplars that are drawn one by one, and the language "
            f"model keeps their prompts in its cache. Not together with `order: nearest`. {_needs(now, seen)}"
        )
        yield Proposal(task=name, why=why, lines=_yaml({"sampling": "blocks"}))


def _fewer_answers(offer: _Offer, name: str, task: Task, now: TaskPreview) -> Iterator[Proposal]:
    for times in _FEWER_ANSWERS:
        answers = task.answers // times
        seen = offer.changed(name, lambda seen: not seen.warning, answers=answers) if answers else None
        if seen is not None:
            why = f"Fewer answers need less noise. {_needs(now, seen)}"
            yield Proposal(task=name, why=why, lines=_yaml({"answers": answers}))
            return


def _in_reach(seen: TaskPreview, share: float = DEMANDING) -> bool:
    return not seen.remedies and _needed(seen) <= share * seen.ensemble


def _needed(seen: TaskPreview) -> float:
    return math.inf if seen.slots_for_95_percent is None else seen.slots_for_95_percent


def _needs(now: TaskPreview, then: TaskPreview) -> str:
    planned, needed = _whole(now), _whole(then)
    if planned is not None and needed is not None and planned < needed:
        more = f"{needed:,} of {then.ensemble:,} slots must agree, where {planned:,} must as planned"
        return f"The price is noise: {more}."

    def slots(number: int | None) -> str:
        return "all are too few" if number is None else f"{number:,}"

    return f"Needed of {then.ensemble} slots: {slots(needed)}; as planned: {slots(planned)}."


def _whole(seen: TaskPreview) -> int | None:
    return None if seen.slots_for_95_percent is None else math.ceil(seen.slots_for_95_percent)


def _plain(task: Task) -> dict[str, Any]:
    return task.model_dump(mode="json", exclude=set(task.releases.unset))


def _yaml(settings: Mapping[str, Any]) -> str:
    """Each key on a line of its own, below it what fits on one."""

    def written(key: str, value: Any) -> str:
        return plain_yaml.dump({key: value}, in_line=isinstance(value, dict | list), width=60)

    return "".join(written(key, value) for key, value in settings.items()).rstrip("\n")
