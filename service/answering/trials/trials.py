"""Trying a task on public exemplars: the real engine and the real mechanism with the plan's noise, and no ledger.

No budget is charged, no release is stored, and the private exemplars are never read. And since everything that goes in
is public, a trial may show what a private answer never does: what the slots agree on without noise, how often the
noise leaves that standing, and how often the answer falls back.

**A trial must not be a window on private queries** that the same engine answers at the same time. Its prompts are those
of a knowledge base of its own, so that an engine's prefix cache shares nothing with private ones (else a guess at an
exemplar would be answered sooner if it were there); and it takes a turn (:mod:`service.answering.turns`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from accounting.plans.plan import CalibratedPlan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import Exemplar, Layout, Nearest, OnTopic, Row, Slot, sampling
from exemplar_store.nearness import shown
from service.answering.answering import BusyError, refusal
from service.answering.mechanisms.adapter import Aggregator, Answer, Author, Public, answer_adapter_of
from service.answering.queries import InvalidQueryError, check_query, task_spec
from service.answering.stages import Ready, Stages
from service.answering.trials.consensus import Consensus, consensus, likeliest
from service.answering.trials.held_out import HeldOut
from service.engines.embedding.embedder import Embed
from service.engines.embedding.memory import EmbeddingMemory
from service.engines.errors import EngineBusyError
from service.engines.protocol import EngineInfo
from service.engines.task import Sentence, TaskSpec
from service.records.topics import check_named, topic_list, topic_of

MAX_EXEMPLARS = 200
MAX_REPEATS = 100
_MOST_AT_ONCE = 2
"""Trials; more are refused, so that they take little from private queries."""
_MOST_WRITTEN = 3
"""Repeats of an answer that the slots write: each takes as long as an answer."""
_EMBED_BATCH = 8
"""Texts embedded at once: a private query waits for no more than these."""


@dataclass(frozen=True)
class Trial:
    """The result of a trial. All of it is public, as the exemplars are.

    Attributes:
        answer: one answer, as the mechanism released it.
        consensus: the slots' answer without noise.
        repeats: number of draws of noise for the same slots, the answer's included.
        agreeing: number of draws that gave the noiseless answer.
        fallbacks: number of draws that fell back on the zero-shot answer; None where the mechanism cannot.
        supplied: exemplars handed in.
        public_size: public size of the knowledge base they stand in for.
        expected: exemplars that an answer draws on the average.
        slots: slots drawn.
        answered: slots that gave an output; the others were empty or abstained.
        engine: engine that answered.
    """

    answer: Answer
    consensus: Consensus
    repeats: int
    agreeing: int
    fallbacks: int | None
    supplied: int
    public_size: int
    expected: int
    slots: int
    answered: int
    engine: EngineInfo

    @property
    def caution(self) -> str:
        """The limits of the supplied exemplars, in one sentence."""
        if self.supplied < self.expected:
            return (
                f"{self.supplied} exemplars stand in for {self.public_size}, and an answer draws {self.expected}: the "
                "same ones are in many slots, which agree more than they would on different ones"
            )
        return f"{self.supplied} exemplars stand in for {self.public_size}; the private ones may agree less, or more"


class Trials:
    """Tries tasks, a few at a time.

    Args:
        stages: stages that answer private queries, too.
        latency_grain_s: trials take a multiple of this (:mod:`service.answering.latency`).
    """

    def __init__(self, stages: Stages, *, latency_grain_s: float = 0.0):
        self._stages = stages
        self._grain_s = latency_grain_s
        self._in_flight = 0

    def held_out(self, rows: Sequence[Row], embedded_field: str, *, asker: str) -> HeldOut:
        """Labelled rows to measure plans on, with the stages of trials; arguments as of :class:`.held_out.HeldOut`."""
        return HeldOut(self._stages, rows, embedded_field, asker=asker)

    async def try_task(
        self,
        calibrated: CalibratedPlan,
        name: str,
        query: str | Mapping[str, str],
        exemplars: Sequence[Mapping[str, object]],
        *,
        embedded_field: str,
        response_field: str | None,
        repeats: int = 20,
        asker: str,
    ) -> Trial:
        """Try one query, under a plan that is signed or not.

        Args:
            calibrated: the plan with its noise.
            name: one of its tasks.
            query: a text, or the fields of the task's query template.
            exemplars: public ones, 1 to 200, each with the fields that the task's prompt shows; others are ignored.
            embedded_field: the field exemplars and queries are compared by.
            response_field: the other field whose embedding the knowledge base stores, None for none.
            repeats: number of draws of noise, 1 to 100. The engine is asked only once per slot.
            asker: the key or person that asks; empty on a machine of the asker's own, where nothing is remembered.

        Raises:
            LookupError: the plan has no such task.
            InvalidQueryError: the query does not fit the task.
            exemplar_store.BadRowError: an exemplar lacks a field, or holds what an upload could not.
            ValueError: too few or too many exemplars or repeats.
            BusyError: this replica, or the engine, is trying as many tasks as it takes on.
            service.engines.errors.EngineUnavailableError: the engine is down.
            service.records.text_ledger.TextBudgetExhaustedError: sanitised, the asker's texts would cost too much.
        """
        task = calibrated.plan.tasks.get(name)
        if task is None:
            raise LookupError(f"the plan has no task {name!r}; it has {', '.join(calibrated.plan.tasks)}")
        if task.once:
            raise InvalidQueryError(
                f"{name} is released once, from the whole knowledge base, which a few exemplars cannot stand in for: "
                "measure it with `dpicl eval`, or export the texts that it wrote and try a plan on them"
            )
        if not 1 <= len(exemplars) <= MAX_EXEMPLARS:
            raise ValueError(f"supply 1 to {MAX_EXEMPLARS} public exemplars, not {len(exemplars)}")
        if not 1 <= repeats <= MAX_REPEATS:
            raise ValueError(f"repeats must be between 1 and {MAX_REPEATS}, not {repeats}")
        fields = check_query(task, query)
        rows = check_exemplars(task, exemplars)
        spec = task_spec(
            f"{calibrated.plan.knowledge_base}.{name}",
            task,
            f"trials of {calibrated.plan.knowledge_base}",
            embedded_field,
            self._grain_s,
            response_field=response_field,
            asker=asker,
        )
        if self._in_flight >= _MOST_AT_ONCE:
            raise BusyError(f"{_MOST_AT_ONCE} tasks are being tried")
        self._in_flight += 1
        try:
            async with self._stages.free_call(self._grain_s):
                return await self._try(calibrated, name, spec, fields, rows, repeats)
        except EngineBusyError as error:
            raise refusal(error)[1] from error
        finally:
            self._in_flight -= 1

    async def _try(
        self,
        calibrated: CalibratedPlan,
        name: str,
        spec: TaskSpec,
        query: Mapping[str, str],
        rows: Sequence[Mapping[str, str]],
        repeats: int,
    ) -> Trial:
        task, noise = calibrated.plan.tasks[name], calibrated.noise[name]
        # The mechanism asks for the same texts at every draw of noise.
        stages = replace(self._stages, embedder=EmbeddingMemory(self._stages.embedder))
        embedded = [spec.input_field, spec.answer_field] if spec.responses_embedded else [spec.input_field]
        try:
            engine = await stages.engine.describe()
            ready = await stages.probe(task, noise, spec, query)
            async with asyncio.timeout(stages.timeout_s):
                vector = await stages.embed(spec, query, ready.zero_shot) if task.compares else None
                embed = stages.embedder.embed if engine.reads_embeddings or vector is not None else None
                exemplars = await with_embeddings(rows, embedded, embed)
        except Exception as error:
            raise refusal(error)[1] from error
        public_size, ranked = calibrated.public_size, vector if task.order == "nearest" else None
        if task.topics is not None:
            centres = calibrated.centres.get(name, ())
            try:
                topic = check_named(task, topic_of(task, centres, query, vector))
            except LookupError as error:
                raise InvalidQueryError(str(error)) from None
            on_it = OnTopic(topic_list(task, centres, 0, name), task.topics.all.index(topic))
            exemplars = list(on_it.shown(exemplars))
            if not exemplars:
                raise InvalidQueryError(f"no exemplar is on the question's topic, {topic}: supply some that are")
            noise, public_size = noise.on(topic), task.topics.size(topic, public_size)
        slots = draw_slots(task, noise.sampling_probability, public_size, exemplars, ranked)
        aggregator = ready.mechanism
        if isinstance(aggregator, Author):
            repeats, answered = min(repeats, _MOST_WRITTEN), sum(map(bool, slots))
            drawn = [await _written(ready, slots) for _ in range(repeats)]
            noiseless = await likeliest(aggregator, ready, slots)
        else:
            outputs = await ready.ask(slots)
            answered = sum(output is not None for output in outputs)
            drawn = [await aggregator.release(outputs)]
            noiseless = await consensus(aggregator, outputs)
            public = Public(query, ready.zero_shot, stages.embedder, no_sentence)
            again = cast(Aggregator, await answer_adapter_of(task, noise).prepare(public))
            drawn += [await again.release(outputs) for _ in range(repeats - 1)]
        return Trial(
            answer=drawn[0],
            consensus=noiseless,
            repeats=repeats,
            agreeing=sum(_released(release) == _released(noiseless.answer) for release in drawn),
            fallbacks=sum(bool(release["fallback"]) for release in drawn) if "fallback" in drawn[0] else None,
            supplied=len(rows),
            public_size=public_size,
            expected=min(task.expected * task.ensemble, public_size),
            slots=len(slots),
            answered=answered,
            engine=engine,
        )


async def _written(ready: Ready, slots: Sequence[Slot]) -> Answer:
    """The text that public slots write; refused where the engine has no places for them in time."""
    try:
        ready = await ready.in_turn(0.0)
    except Exception as error:
        raise refusal(error)[1] from error
    return await ready.answer(slots)


def draw_slots(
    task: ClassifyTask | GenerateTask,
    probability: float,
    public_size: int,
    exemplars: Sequence[Exemplar],
    question: np.ndarray | None = None,
) -> list[Slot]:
    """One query's slots: a few public exemplars standing in for a knowledge base, as they will look in production.

    Drawn at the plan's own probability, a few exemplars would leave all but every slot empty; and there are not enough
    of them to give each slot its share. So the number of exemplars in every slot is drawn by the real sampler, as from
    a knowledge base of the public size; then each slot takes that many of the exemplars supplied, a uniform choice,
    none of them twice (all of them, if it wants more than there are). Sizes, empty slots and the cap are thereby those
    of production, and what one slot holds does not depend on the others.

    What this cannot show: the same exemplars stand in many slots, which therefore agree more than they would on as many
    different ones; and every exemplar counts as a unit of its own.

    Args:
        task: the task, with its sampling, ensemble and cap.
        probability: the plan's, of each unit or block.
        public_size: public size of the knowledge base that the exemplars stand in for.
        exemplars: the public ones.
        question: embedding of the question, float (d,), if slots show the exemplars that are nearest to it.

    Returns:
        ``ensemble`` slots where units are sampled; where blocks are, a slot for each block drawn.
    """
    if task.sampling == "blocks":
        blocks = public_size // task.shots
        drawn = sampling.poisson_sample(blocks, probability)
        drawn = drawn if drawn.size <= task.most_slots else drawn[:0]
        sizes = [sampling.poisson_sample(public_size, 1 / blocks).size for _ in drawn]
    else:
        drawn = sampling.poisson_sample(public_size, probability)
        sizes = np.bincount(sampling.below(task.ensemble, drawn.size), minlength=task.ensemble).tolist()
    slots = [_choose(exemplars, min(size, task.slot_cap)) for size in sizes]
    if question is None:
        return slots
    return [shown(slot, Nearest(question, task.shots)) for slot in slots]


def _choose(exemplars: Sequence[Exemplar], count: int) -> Slot:
    return tuple(exemplars[i] for i in np.argsort(sampling.words(len(exemplars)))[:count])


def check_exemplars(
    task: ClassifyTask | GenerateTask, exemplars: Sequence[Mapping[str, object]]
) -> list[Mapping[str, str]]:
    """The fields of each exemplar that the task's prompt shows, by the rules of an upload; each is its own unit.

    Raises:
        exemplar_store.BadRowError: names the exemplar, counted from 1, and the field.
    """
    layout = Layout(task.exemplar_fields, unit_id="")  # a name that no field of a prompt can have
    return [layout.row(number, {**exemplar, "": str(number)}).fields for number, exemplar in enumerate(exemplars, 1)]


async def with_embeddings(
    rows: Sequence[Mapping[str, str]], fields: Sequence[str], embed: Embed | None
) -> list[Exemplar]:
    """Exemplars, with the embeddings of the fields if the engine reads them."""
    if embed is None:
        return [Exemplar(row, None) for row in rows]
    texts = [row[field] for row in rows for field in fields]
    vectors: list[np.ndarray] = []
    for start in range(0, len(texts), _EMBED_BATCH):
        vectors.extend(await asyncio.to_thread(embed, texts[start : start + _EMBED_BATCH]))
    each = len(fields)
    return [Exemplar(row, *vectors[i * each : (i + 1) * each]) for i, row in enumerate(rows)]


async def no_sentence(words: Sequence[str], _ordered: bool) -> Sentence:
    """Asks the engine for nothing: of repeats, only the words are compared."""
    return Sentence(" ".join(words), "")


def _released(answer: Answer) -> object:
    """The part of an answer that the mechanism itself released."""
    parts = answer.get("keywords", answer.get("sentences"))
    return tuple(parts) if isinstance(parts, list) else answer.get("label", answer.get("text"))
