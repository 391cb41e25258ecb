"""The share of right labels that a plan would give, measured before it is signed on rows that may be looked at.

A fifth of the units is held out and asked; the exemplars of the others stand in for the knowledge base. Stages,
sampling, mechanism and noise are those of answers; there is no ledger and no store, so the rows are in memory only.

**The number of exemplars is the plan's as far as the rows allow.** Of more rows than the public size the rest is left
out. With fewer rows a slot still draws as many exemplars as planned, of fewer. A one-time release is made of fewer
exemplars, with as much less noise: beside them it is as large as the plan's beside those planned. More exemplars would
also teach more, so its figure is not above the plan's but by chance.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from accounting.plans.labels import spellings
from accounting.plans.plan import CalibratedPlan, TaskNoise
from accounting.plans.tasks import ClassifyTask, Task
from accounting.privacy.profiles import Gaussian
from exemplar_store import Exemplar, Nearest, Row, Slot, sampling
from exemplar_store.nearness import shown
from service.answering.answering import refusal
from service.answering.draw import deal
from service.answering.mechanisms.adapter import (
    Aggregator,
    OnceAdapter,
    Public,
    Reader,
    answer_adapter_of,
    once_adapter_of,
    scores_of,
)
from service.answering.queries import check_query, task_spec
from service.answering.stages import Ready, Stages
from service.answering.turns import NoTurns
from service.engines.embedding.memory import EmbeddingMemory
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError
from service.engines.private_threads import privately
from service.engines.protocol import EngineInfo
from service.engines.task import Sentence, TaskSpec

SHARE = 5
"""One unit in this many is held out."""
FEWEST_UNITS = 20
MOST_KEPT, MOST_QUESTIONS = 10_000, 300
"""Rows that stand in for the knowledge base, and rows that are asked; embedding the former takes a minute or two."""
MOST_ASKED_OF_A_MODEL = 30
"""Questions that a language model is asked: each takes as long as an answer."""
_DRAWS = 10
"""Draws of noise for each question's slots."""
_LEAST_NOISE = 0.1
"""Noise multiplier that is not gone below, since no mechanism draws noise that is next to none."""
_RELEASES = 3
"""One-time releases, each with noise of its own."""
_AT_ONCE, _AT_ONCE_ALONE = 8, 256
"""Texts embedded in one turn, which a private query may wait for; and where no query is waiting."""

Progress = Callable[[str, int, int], None]
"""Called with a stage, the amount done of it and the total."""


@dataclass(frozen=True)
class Accuracy:
    """A share of right answers, in percent.

    Attributes:
        share: the share.
        error: standard error, in points: over units, and where one release answers all, over releases.
        rows: number of questions.
    """

    share: float
    error: float
    rows: int

    @classmethod
    def of(cls, right: np.ndarray, units: Sequence[str]) -> Accuracy:
        """The accuracy of questions whose units are independent.

        Args:
            right: whether each answer is right, float or bool (releases, questions), or how often over its noise. All
                answers of a row are from one release; only one will be signed, so what differs between releases is
                part of the error.
            units: the unit of each question.
        """
        each, count = right.mean(axis=0), len(units)
        off: defaultdict[str, float] = defaultdict(float)
        for unit, value in zip(units, each - each.mean(), strict=True):
            off[unit] += float(value)
        correction = len(off) / (len(off) - 1) if len(off) > 1 else 1.0
        variance = correction * sum(value**2 for value in off.values()) / count**2
        if len(right) > 1:
            variance += float(right.mean(axis=1).var(ddof=1))
        return cls(100 * float(each.mean()), 100 * math.sqrt(variance), count)


@dataclass(frozen=True)
class HeldOutAccuracy:
    """A task's accuracy on rows that were held out.

    Attributes:
        accuracy: share of right answers of the task, with the plan's noise.
        zero_shot: the same of the engine without exemplars, which is free.
        used: exemplars that stood in for the knowledge base.
        planned: exemplars that the plan answers from: the public size, without those that a release leaves out.
        caution: effect of a number of exemplars that is not as planned, a sentence; empty: it is as planned.
    """

    accuracy: Accuracy
    zero_shot: Accuracy
    used: int
    planned: int
    caution: str


class UnmeasurableError(ValueError):
    """The task's accuracy cannot be measured here; the message gives the reason, and what can."""


@dataclass(frozen=True)
class Split:
    """Rows by unit: those that stand in for the knowledge base, and those that are asked."""

    kept: Sequence[Sequence[Row]]
    held: Sequence[Row]

    @classmethod
    def of(cls, rows: Sequence[Row], most_asked: int = MOST_QUESTIONS) -> Split:
        """Hold out a fifth of the units, by a hash of each one's id, so that the same are held out every time.

        Raises:
            UnmeasurableError: there are too few units.
        """
        units: dict[str, list[Row]] = {}
        for row in rows:
            units.setdefault(row.unit_id, []).append(row)
        if len(units) < FEWEST_UNITS:
            raise UnmeasurableError(
                f"the rows are of fewer than {FEWEST_UNITS} units ({len(units)}), too few to hold out a share of them: "
                "supply more rows, or name the column of the unit's id"
            )
        ordered = sorted(units, key=lambda unit: hashlib.sha256(unit.encode()).digest())
        held = ordered[: math.ceil(len(ordered) / SHARE)]
        asked = [row for unit in held for row in units[unit]][:most_asked]
        return cls(list(_no_more([units[unit] for unit in ordered[len(held) :]], MOST_KEPT)), asked)


class HeldOut:
    """Measures tasks on one set of rows, whose embeddings are computed once.

    Args:
        stages: stages that answer private queries, too, or an engine of one's own.
        rows: labelled rows with the fields of the tasks' prompts.
        embedded_field: field that exemplars and questions are compared by.
        asker: key or person that asks; empty on a machine of the asker's own, where nothing is remembered.
        progress: called while rows are embedded and questions asked.
    """

    def __init__(
        self,
        stages: Stages,
        rows: Sequence[Row],
        embedded_field: str,
        *,
        asker: str = "",
        progress: Progress = lambda _stage, _done, _total: None,
    ) -> None:
        self._stages = replace(stages, embedder=EmbeddingMemory(stages.embedder))
        self._rows = rows
        self._split = Split((), ())
        self._field = embedded_field
        self._asker = asker
        self._progress = progress
        self._units: list[Slot] = []

    async def engine(self) -> EngineInfo:
        """The engine that is asked."""
        return await self._stages.engine.describe()

    async def measure(self, calibrated: CalibratedPlan, name: str) -> HeldOutAccuracy:
        """The accuracy of one task of a plan, which need not be signed.

        Raises:
            UnmeasurableError: the task is not measured here, or the rows are of too few units.
            service.answering.queries.InvalidQueryError: a held-out row cannot be asked.
            service.answering.answering.BusyError: the engine has more work than it takes on.
            service.engines.errors.EngineUnavailableError: the engine or the embedder does not answer.
        """
        task = calibrated.plan.tasks[name]
        if not isinstance(task, ClassifyTask):
            raise UnmeasurableError("answers in words are neither right nor wrong; `dpicl eval` compares them")
        if task.topics is not None:
            raise UnmeasurableError("with topics it is not measured here; `dpicl eval` does")
        try:
            await self._prepare()
            return await self._measure(calibrated, name, task)
        except (EngineBusyError, EngineUnavailableError, UnanswerableQueryError, TimeoutError) as error:
            raise refusal(error)[1] from error

    async def _prepare(self) -> None:
        """Embed the rows, each once."""
        if self._units:
            return
        most = MOST_ASKED_OF_A_MODEL if (await self.engine()).is_llm else MOST_QUESTIONS
        self._split = Split.of(self._rows, most)
        await self._embed([row.fields[self._field] for row in self._split.held])
        rows = [row for unit in self._split.kept for row in unit]
        vectors = iter(await self._embed([row.fields[self._field] for row in rows], upload=True))
        self._units = [tuple(Exemplar(row.fields, next(vectors)) for row in unit) for unit in self._split.kept]

    async def _embed(self, texts: Sequence[str], *, upload: bool = False) -> np.ndarray:
        embedder, stages = self._stages.embedder, self._stages
        embed = embedder.embed_many if upload else embedder.embed
        at_once = _AT_ONCE_ALONE if isinstance(stages.turns, NoTurns) else _AT_ONCE
        parts = []
        for start in range(0, len(texts), at_once):
            async with stages.turn():
                parts.append(await asyncio.to_thread(embed, texts[start : start + at_once]))
            if upload:
                self._progress("rows", min(start + at_once, len(texts)), len(texts))
        return np.concatenate(parts)

    async def _measure(self, calibrated: CalibratedPlan, name: str, task: ClassifyTask) -> HeldOutAccuracy:
        held, labels = self._split.held, spellings(task.labels)
        # A release that measures itself is made without the units that it counts.
        planned = round(calibrated.public_size * (1 - (getattr(task.mechanism, "measured_on", None) or 0.0)))
        units = list(_no_more(self._units, planned))
        truth = [labels.number(row.fields[task.label_field]) for row in held]
        asking = _Asking(self._stages, calibrated, units, self._field, self._asker, min(1.0, _count(units) / planned))
        zero_shot, right = [], []
        if task.once:
            readers = await asking.releases(name)
        else:
            readers = await asking.releases(task.prior_from) if task.prior_from else []
        for number, (row, answer) in enumerate(zip(held, truth, strict=True), 1):
            query = check_query(task, {field: row.fields[field] for field in task.query_fields})
            async with self._stages.turn():
                if task.once:
                    public, given = await asking.read(name, query, readers)
                else:
                    public, given = await asking.vote(name, query, readers)
            zero_shot.append(public == answer)
            right.append(given == answer if answer is not None else np.zeros(given.shape))
            self._progress(name, number, len(held))
        by_unit = [row.unit_id for row in held]
        # Only answers from one release have it in common; each other answer has noise of its own.
        together = np.array(right, dtype=np.float64).T
        return HeldOutAccuracy(
            Accuracy.of(together if task.once else together.mean(axis=0, keepdims=True), by_unit),
            Accuracy.of(np.array([zero_shot], dtype=np.float64), by_unit),
            used := _count(units),
            planned,
            _caution(task, used, planned),
        )


@dataclass(frozen=True)
class _Asking:
    """A plan's tasks, asked of exemplars in memory, which are this part of those planned."""

    stages: Stages
    calibrated: CalibratedPlan
    units: Sequence[Slot]
    field: str
    asker: str
    part: float

    def _task(self, name: str) -> tuple[ClassifyTask, TaskNoise, TaskSpec]:
        plan, noise = self.calibrated.plan, self.calibrated.noise[name]
        task = plan.tasks[name]
        if not isinstance(task, ClassifyTask):
            raise TypeError(f"{name} does not answer with labels")
        # No cache of prompts is shared with private queries.
        rows = f"held-out rows of {plan.knowledge_base}"
        spec = task_spec(f"{plan.knowledge_base}.{name}", task, rows, self.field, response_field=None, asker=self.asker)
        return task, noise, spec

    async def releases(self, name: str) -> list[Reader]:
        """Several one-time releases of a task, each with noise of its own."""
        task, noise, spec = self._task(name)
        adapter = once_adapter_of(task, _scaled(noise, self.part))
        texts = adapter.public_texts(self.field)
        dimension = next(exemplar.embedding for unit in self.units for exemplar in unit).shape[0]  # type: ignore[union-attr]
        public = await self._embedded(texts) if texts else np.empty((0, dimension), np.float32)
        return [await self._release(adapter, spec, public) for _ in range(_RELEASES)]

    async def _embedded(self, texts: Sequence[str]) -> np.ndarray:
        async with self.stages.turn():
            return await asyncio.to_thread(self.stages.embedder.embed, texts)

    async def _release(self, adapter: OnceAdapter, spec: TaskSpec, public: np.ndarray) -> Reader:  # type: ignore[type-arg]
        size = max(1, round(self.part * self.calibrated.public_size))
        made = await privately(lambda: adapter.make(self.units, public, _writes_nothing, size))
        async with self.stages.turn():
            return await asyncio.to_thread(adapter.open, made, spec, self.stages.embedder, self.stages.show)

    async def read(
        self, name: str, query: Mapping[str, str], readers: Sequence[Reader]
    ) -> tuple[int | None, np.ndarray]:
        """The labels' numbers of zero-shot and of each release's answer."""
        task, _, spec = self._task(name)
        answers = [await reader.answer(query, self.asker) for reader in readers]
        zero_shot = await self.stages.zero_shot(spec, query)
        return _likeliest(zero_shot.probabilities), np.array([task.labels.index(str(one["label"])) for one in answers])

    async def vote(
        self, name: str, query: Mapping[str, str], priors: Sequence[Reader]
    ) -> tuple[int | None, np.ndarray]:
        """The labels' numbers of zero-shot, and of answers whose slots are the same and whose noise is not."""
        task, noise, spec = self._task(name)
        weighed: list[np.ndarray | None] = [None]
        if priors:
            scores = [scores_of(await reader.answer(query, self.asker)) for reader in priors]
            weighed = [np.array([each[label] for label in task.labels]) for each in scores]
        ready = await self.stages.probe(task, noise, spec, query, prior=weighed[0])
        vector = await self.stages.embed(spec, query, ready.zero_shot) if task.order == "nearest" else None
        outputs = await ready.ask(draw_from(self.units, task, noise, self.calibrated.public_size, vector))
        given = []
        for prior in weighed:
            mechanism = await _prepared(ready, task, noise, prior)
            for _ in range(math.ceil(_DRAWS / len(weighed))):
                answer = await mechanism.release(outputs)
                given.append(task.labels.index(str(answer["label"])))
        return _likeliest(ready.zero_shot.probabilities), np.array(given)


def _scaled(noise: TaskNoise, part: float) -> TaskNoise:
    """This part of the noise, or the least that every mechanism draws."""
    if not isinstance(noise.mechanism, Gaussian):
        raise TypeError("releases of labels have Gaussian noise")
    planned = noise.mechanism.noise_multiplier
    mechanism = replace(noise.mechanism, noise_multiplier=max(part * planned, min(planned, _LEAST_NOISE)))
    return noise.model_copy(update={"mechanism": mechanism})


async def _prepared(ready: Ready, task: ClassifyTask, noise: TaskNoise, prior: np.ndarray | None) -> Aggregator:
    public = Public(ready.query, ready.zero_shot, ready.stages.embedder, _no_sentence, prior)
    mechanism: Aggregator = await answer_adapter_of(task, noise).prepare(public)  # type: ignore[assignment]
    return mechanism


def draw_from(
    units: Sequence[Slot], task: Task, noise: TaskNoise, public_size: int, question: np.ndarray | None
) -> list[Slot]:
    """One query's slots of units in memory, which draw as many exemplars as those of the planned number would.

    Args:
        units: the exemplars of each unit.
        task: the task, with its sampling, ensemble and cap.
        noise: the plan's noise of the task, with the chance of each unit, or block, of the planned number.
        public_size: the planned number of exemplars.
        question: embedding of the question, float (d,), where slots show the exemplars that are nearest to it.
    """
    exemplars = sum(map(len, units))
    if task.sampling == "blocks":
        blocks = max(1, exemplars // task.shots)
        chance = min(1.0, noise.sampling_probability * (public_size // task.shots) / blocks)
        chosen = sampling.poisson_sample(blocks, chance)
        if chosen.size > task.most_slots:
            return []
        members: list[list[Exemplar]] = [[] for _ in range(blocks)]
        for unit, block in zip(units, sampling.below(blocks, len(units)).tolist(), strict=True):
            members[block].extend(unit)
        return [tuple(members[block][: task.slot_cap]) for block in chosen.tolist()]
    chance = min(1.0, noise.sampling_probability * public_size / exemplars)
    drawn = deal([units[number] for number in sampling.poisson_sample(len(units), chance).tolist()], task)
    return drawn if question is None else [shown(slot, Nearest(question, task.shots)) for slot in drawn]


Unit = TypeVar("Unit", bound=Sequence[object])


def _no_more(units: Sequence[Unit], most: int) -> Iterator[Unit]:
    """The units, from the first, that together have no more exemplars; one at least."""
    count = 0
    for number, unit in enumerate(units):
        count += len(unit)
        if number and count > most:
            return
        yield unit


def _count(units: Sequence[Unit]) -> int:
    return sum(map(len, units))


def _caution(task: ClassifyTask, used: int, planned: int) -> str:
    if (task.once or task.prior_from) and used < planned:
        return (
            f"Made of {used:,} exemplars and not of {planned:,}, with as much less noise. More exemplars teach more, "
            "so at least as many answers of the plan should be right."
        )
    expected = min(planned, task.expected * task.ensemble) if not task.once else 0
    if used < expected:
        return (
            f"An answer draws {expected:,} exemplars and the rows have {used:,}, so slots hold fewer than planned, and "
            "more answers of the plan should be right."
        )
    return ""


def _likeliest(probabilities: np.ndarray | None) -> int | None:
    return None if probabilities is None else int(np.argmax(probabilities))


async def _no_sentence(words: Sequence[str], _ordered: bool) -> Sentence:
    return Sentence(" ".join(words), "")


def _writes_nothing(*_asked: object) -> str:
    raise TypeError("a release of labels has no slots that write")
