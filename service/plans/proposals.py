"""What would be better for the same budget, as lines that can be pasted into the plan.

A proposal is made only where the numbers of the preview, or a measurement in docs/evaluation.md, say that it is better,
and only if the task can be calibrated with it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from accounting.mechanisms import (
    EmbeddingMeanMechanism,
    PrototypesMechanism,
    RnmGaussianMechanism,
    TokenEnsembleMechanism,
)
from accounting.plan import CalibratedPlan, PlanError
from accounting.tasks import ClassifyTask, GenerateTask, Task
from service.pipeline.mechanisms.outlook import DEMANDING
from service.plans.calibrating import least_noise
from service.plans.preview import TaskPreview, describe

_TIMES_DRAWN = (8, 4, 2)
"""How many times what it shows a slot may draw: the more, the nearer to the question, and the dearer."""
_FEWER_ANSWERS = (2, 5, 10, 20, 50, 100)
_SHARE_OF_PROTOTYPES = 0.25


class Proposal(BaseModel):
    """One change of one task.

    Attributes:
        task: its name.
        why: what becomes better, in a sentence.
        lines: YAML below the task, in place of what it says of these keys.
        tasks: YAML of a further task, below ``tasks``; empty for none.
    """

    task: str
    why: str
    lines: str
    tasks: str = ""


@dataclass(frozen=True)
class _Offer:
    """What proposals rest on.

    Attributes:
        calibrated: the plan.
        embeds: whether it stores embeddings.
        language_model: whether a language model answers; None: not known.
    """

    calibrated: CalibratedPlan
    embeds: bool
    language_model: bool | None

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Of the plan, by name."""
        return self.calibrated.plan.tasks

    def now(self, name: str) -> TaskPreview:
        """The task as planned."""
        return describe(self.tasks[name], self.calibrated.noise[name], self.calibrated.public_size)

    def changed(self, name: str, **changes: Any) -> TaskPreview | None:
        """The task with some settings in the same plan; None if that cannot be."""
        task = self.tasks[name]
        try:
            other = type(task).model_validate(task.model_dump() | changes)
        except ValidationError:
            return None
        return self.with_tasks({name: other}).get(name)

    def with_tasks(self, others: Mapping[str, Task]) -> Mapping[str, TaskPreview]:
        """Some tasks in place of the plan's, or beside them, at the same budget; none if that cannot be."""
        plan, size = self.calibrated.plan, self.calibrated.public_size
        try:
            noise = least_noise(plan.model_copy(update={"tasks": {**plan.tasks, **others}}), size)
        except PlanError:
            return {}
        return {name: describe(task, noise[name], size) for name, task in others.items()}

    def to_nearest(self, name: str, **further: Any) -> tuple[dict[str, Any], TaskPreview] | None:
        """Settings by which slots show what is nearest, and what the task gives then.

        Drawing more than is shown costs noise, so the last resort shows fewer of as many, which costs nothing.
        """
        task = self.tasks[name]
        wider = [] if task.max_exemplars else [{"drawn": times * task.shots} for times in _TIMES_DRAWN]
        narrower = [{"shots": max(1, task.shots // 4), "drawn": task.shots}] if task.shots > 1 else []
        for changes in (*wider, *narrower):
            settings = {"order": "nearest", **changes, **further}
            seen = self.changed(name, **settings)
            if seen is not None and _in_reach(seen):
                return settings, seen
        return None


def proposals(calibrated: CalibratedPlan, *, embeds: bool = True, language_model: bool | None = None) -> list[Proposal]:
    """What would be better for the same budget. Takes a second or more for each change that is looked at.

    Args:
        calibrated: the plan.
        embeds: whether its knowledge base stores embeddings.
        language_model: whether a language model answers; None: not known.
    """
    offer = _Offer(calibrated, embeds, language_model)
    return [one for name, task in offer.tasks.items() if not task.once for one in _of(offer, name, task)]


def _of(offer: _Offer, name: str, task: Task) -> Iterator[Proposal]:
    now = offer.now(name)
    if offer.embeds and task.sampling == "units" and task.order == "random":
        yield from _nearest(offer, name, task, now)
    if isinstance(task, ClassifyTask):
        yield from _prototypes(offer, name, task)
    if offer.language_model and isinstance(task.mechanism, RnmGaussianMechanism | EmbeddingMeanMechanism):
        yield from _blocks(offer, name, task, now)
    if now.warning:
        yield from _fewer_answers(offer, name, task, now)


def _nearest(offer: _Offer, name: str, task: Task, now: TaskPreview) -> Iterator[Proposal]:
    found = offer.to_nearest(name)
    if found is not None:
        settings, seen = found
        shown, drawn = settings.get("shots", task.shots), settings["drawn"]
        why = (
            f"Each slot draws about {drawn} exemplars and shows the {shown} nearest to the question, which are more "
            f"often about it. {_needs(now, seen)}"
        )
        yield Proposal(task=name, why=why, lines=_yaml(settings))
    if not isinstance(task, GenerateTask) or isinstance(task.mechanism, TokenEnsembleMechanism):
        return
    found = offer.to_nearest(name, slots="quote")
    if found is not None and found[1].llm_calls < now.llm_calls:
        why = (
            f"Each slot says the response of its nearest exemplar, so an answer takes {found[1].llm_calls} calls of "
            f"the model in place of {now.llm_calls}. Right for what many people wrote, wrong where a model must "
            "transform what it reads."
        )
        yield Proposal(task=name, why=why, lines=_yaml(found[0]))


def _prototypes(offer: _Offer, name: str, task: ClassifyTask) -> Iterator[Proposal]:
    if not offer.embeds or task.prior_from is not None or not isinstance(task.mechanism, RnmGaussianMechanism):
        return
    if not task.mechanism.gives_score or task.mechanism.fitted or any(one.once for one in offer.tasks.values()):
        return
    own = f"{name}-prototypes"[:64]
    share = _SHARE_OF_PROTOTYPES * task.share
    once = task.alone().once_by(PrototypesMechanism(type="prototypes")).model_copy(update={"share": share})
    seen = offer.with_tasks({own: once, name: task.model_copy(update={"prior_from": own})})
    if not seen or seen[own].warning or not _in_reach(seen[name]):
        return
    written: dict[str, Any] = {"kind": "classify", "release": "once", "labels": list(task.labels)}
    written["label_field"] = task.label_field
    if task.label_descriptions:
        written["label_descriptions"] = dict(task.label_descriptions)
    written["prompt"] = {"exemplar": task.prompt.exemplar, "query": task.prompt.query}
    written |= {"share": share, "mechanism": {"type": "prototypes"}}
    yield Proposal(
        task=name,
        why="One release of each label's sum of embeddings, made when the plan is signed, takes the place of "
        "zero-shot's opinion, which knows nothing of the exemplars.",
        lines=_yaml({"prior_from": own}),
        tasks=_yaml({own: written}),
    )


def _blocks(offer: _Offer, name: str, task: Task, now: TaskPreview) -> Iterator[Proposal]:
    if task.sampling == "blocks" or task.order == "nearest":
        return
    seen = offer.changed(name, sampling="blocks")
    if seen is not None and seen.noise["noise_multiplier"] < now.noise["noise_multiplier"]:
        why = (
            "Fixed blocks of exemplars need less noise than exemplars that are drawn one by one, and the language "
            f"model keeps their prompts in its cache. Not together with `order: nearest`. {_needs(now, seen)}"
        )
        yield Proposal(task=name, why=why, lines=_yaml({"sampling": "blocks"}))


def _fewer_answers(offer: _Offer, name: str, task: Task, now: TaskPreview) -> Iterator[Proposal]:
    for times in _FEWER_ANSWERS:
        answers = task.answers // times
        seen = offer.changed(name, answers=answers) if answers else None
        if seen is not None and not seen.warning:
            why = f"Fewer answers need less noise. {_needs(now, seen)}"
            yield Proposal(task=name, why=why, lines=_yaml({"answers": answers}))
            return


def _in_reach(seen: TaskPreview) -> bool:
    needed = seen.slots_for_95_percent
    return seen.warning is None and needed is not None and needed <= DEMANDING * seen.ensemble


def _needs(now: TaskPreview, then: TaskPreview) -> str:
    def slots(seen: TaskPreview) -> str:
        return "all are too few" if seen.slots_for_95_percent is None else f"{math.ceil(seen.slots_for_95_percent):,}"

    return f"Needed of {then.ensemble} slots: {slots(then)}; as planned: {slots(now)}."


def _yaml(settings: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=72).rstrip("\n")
