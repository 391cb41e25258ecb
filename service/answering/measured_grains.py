"""Latency grains that hold: what a task's largest possible slots take is measured before its first charge.

Made-up exemplars fill every slot to the size that ingest and the plan allow. As many rows are read from temporary
tables of the same database, by the code of the draw, and the slots are decrypted, asked and aggregated as private ones
are. A language model leaves out what does not fit its prompt, so that the largest exemplars would cost it least: here
it cuts them, reads as many tokens as a prompt can have, and writes as many as an answer. Outputs that all agree are
aggregated, too, since some mechanisms take longer for these: those that take it longest, if it names them. So no
private slots take longer on the machine as it is, unless the database waits for a disk. A grain below twice that is
refused, and so is a task whose made-up slots are not all answered.
"""

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, product
from string import ascii_lowercase
from typing import cast

import numpy as np
import structlog

from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import Ledger
from accounting.plans.plan import TaskNoise
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import MAX_EXEMPLAR_BYTES, ExemplarStore, KnowledgeBase, LargestSample, Slot, made_up_slots
from exemplar_store.topics import PAGE
from service.answering.kept_blocks import KeptBlocks
from service.answering.latency import Grains, GrainTooSmallError, Measured, Work, smallest_grain_s
from service.answering.mechanisms.adapter import Author, Outputs, answer_adapter_of
from service.answering.queries import InvalidQueryError, described_spec, public_tokens
from service.answering.stages import Ready, Stages, written_so
from service.answering.turns import turn
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.engines.private_threads import privately
from service.engines.protocol import EngineInfo, KeepsBlocks, SetsRoomAside
from service.engines.task import TaskSpec
from service.records.database import UNAVAILABLE
from service.records.signed import identity, read_signed, read_task
from service.records.topics import most_work

log = structlog.get_logger()

FIRST_AGAIN_S = 60.0
_LAST_AGAIN_S = 86_400.0
REFUSED_FOR_S = 60.0
"""Then a task that cannot be served is measured again: something else may have kept the machine busy."""

_RUNS = 5
_ENOUGH_S = 2.0  # spent on one task's runs
_MOST_SLOTS = 100  # made up for engines that ask each slot by itself: larger ensembles cost these in proportion
_QUERY_WORDS = (150, 30, 5)  # of the made-up query: the longest that the engine takes
_ORDINARY_WORDS = (15, 5)  # made up, each is about three tokens; longer questions get time in proportion
_LARGE_DIMENSION = 1024  # of embeddings, where the model that makes them is not known yet
_ESCAPED = 0.9  # of an exemplar's bytes are its text, the others JSON's
_SMALLER = "use a smaller ensemble, fewer shots, smaller slot_tokens or max_exemplars, or a faster engine"


class NotMeasuredError(GrainTooSmallError):
    """The largest slots were not all asked, so their time is unknown."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}, so their time is unknown: they took too long (DPICL_QUERY_TIMEOUT_S, and the engine's "
            f"timeout_s), no exemplars fill slot_tokens, or a remote model replied with no label; {_SMALLER}"
        )


class NoRoomError(NotMeasuredError):
    """The engine has no room for all slots that write together; the message names what to change."""

    def __init__(self, problem: str) -> None:
        GrainTooSmallError.__init__(self, problem)


@dataclass(frozen=True)
class _Measurement:
    """A task's measurement.

    Attributes:
        task: the task.
        measured: work and grain of the task.
        at: time of the event loop's clock.
        again_s: seconds after which it is made again.
    """

    task: SignedTask
    measured: Measured
    at: float
    again_s: float


class MeasuredGrains(Grains):
    """The grains of all tasks (:class:`service.answering.latency.Grains`).

    Args:
        stages: stages that answer private queries, too.
        store: exemplar store, which reads the exemplars.
        ledger: ledger with the tasks.
        blocks: blocks that the engine reads ahead.
        grain_s: grain of every task, in seconds; None chooses the smallest for each.
    """

    def __init__(
        self, stages: Stages, store: ExemplarStore, ledger: Ledger, blocks: KeptBlocks, *, grain_s: float | None
    ) -> None:
        self._stages = stages
        self._store = store
        self._ledger = ledger
        self._blocks = blocks
        self._grain_s = grain_s
        self._made: dict[tuple[int, str, str], _Measurement] = {}
        self.report = None
        self._turn = asyncio.Lock()  # two measurements at once would slow each other

    async def of(self, task: SignedTask) -> Measured:
        """See :class:`service.answering.latency.Grains`. The first to ask waits for the measurement.

        Raises:
            GrainTooSmallError: this task cannot be served with the grain.
            service.engines.errors.UnusableReplyError: the engine replies with nothing to use.
            service.engines.errors.EngineUnavailableError: the engine does not answer.
        """
        measured = await self.measured(task)
        if measured.problem:
            raise (UnusableReplyError if measured.unusable else GrainTooSmallError)(measured.problem)
        return measured

    async def measured(self, task: SignedTask) -> Measured:
        """The task's measurement, made now if there is none yet."""
        if (known := self._known(task)) is None:
            async with self._turn:
                if (known := self._known(task)) is None:
                    known = await self._measured_now(task, FIRST_AGAIN_S)
        return known

    async def again(self) -> None:
        """Measure the tasks again whose time has come, so that a grain does not stay that a busy machine made long.

        Nothing private decides when: it is a minute after a task was measured first, then after twice as long each
        time, a day at most, as soon as no turn is taken. A measurement has a turn to itself, so its result depends on
        made-up slots and the machine. A remote engine is paid for each, and not measured again.

        Raises:
            service.engines.errors.EngineUnavailableError: the engine does not answer.
        """
        if (await self._stages.engine.describe()).remote:
            return
        for made in list(self._made.values()):
            due = asyncio.get_running_loop().time() > made.at + made.again_s
            if not due or await self._stages.turns.wait_s() > 0:
                continue
            async with self._turn:
                await self._measured_now(made.task, min(2 * made.again_s, _LAST_AGAIN_S))

    async def _measured_now(self, task: SignedTask, again_s: float) -> Measured:
        async with turn(self._stages.turns):
            measured = await self._measure(task)
        self._made[identity(task)] = _Measurement(task, measured, asyncio.get_running_loop().time(), again_s)
        if self.report is not None:  # a plan may be signed after all tasks were measured
            self.report = [*{**{one.task: one for one in self.report}, measured.task: measured}.values()]
        return measured

    def _known(self, task: SignedTask) -> Measured | None:
        made = self._made.get(identity(task))
        if made is None or (made.measured.problem and asyncio.get_running_loop().time() > made.at + REFUSED_FOR_S):
            return None
        return made.measured

    def overran(self, task: SignedTask) -> None:
        """See :class:`service.answering.latency.Grains`. What is measured next is made up, and so public."""
        self._made.pop(identity(task), None)

    async def all(self) -> list[Measured]:
        """The measurements of all tasks that have answers left and draw slots for them, whose blocks are read ahead.

        Raises:
            service.engines.errors.EngineUnavailableError: the engine does not answer.
        """

        def open_tasks() -> list[SignedTask]:
            statuses = [task for budget in self._ledger.budgets.statuses() for task in budget.tasks]
            left = [self._ledger.budgets.task(task.address) for task in statuses if task.left]
            asked = [task for task in left if task.name in read_signed(task.document).plan.each]
            return list({identity(task): task for task in reversed(asked)}.values())[::-1]

        tasks = await asyncio.to_thread(open_tasks)
        report = [await self.measured(task) for task in tasks]
        for task, measured in zip(tasks, report, strict=True):
            await self._blocks.read(task, measured)
        self.report = report
        return report

    async def _measure(self, signed: SignedTask) -> Measured:
        task, noise = read_task(signed)
        knowledge_base = await asyncio.to_thread(self._store.get, signed.knowledge_base)
        unshared = f"measurements of {signed.knowledge_base}"
        spec = described_spec(signed.whole, task, knowledge_base, asker="", cached_for=unshared)
        read_s = await largest_read_s(self._store, signed, knowledge_base)
        blocks = read_signed(signed.document).public_size // task.shots if task.sampling == "blocks" else 0
        try:
            work = await largest_work(self._stages, task, noise, spec, knowledge_base, blocks)
        except (NotMeasuredError, UnusableReplyError) as error:
            log.error("latency_not_measured", task=signed.whole, problem=str(error))
            unusable = isinstance(error, UnusableReplyError)
            return Measured(signed.whole, 0.0, f"{signed.whole}: {error}", unusable)
        except (EngineUnavailableError, *UNAVAILABLE):
            raise
        except Exception as error:  # one task that this engine cannot measure must not keep others from being answered
            log.error("latency_not_measured", task=signed.whole, problem=type(error).__name__)
            why = f"the engine could not be measured with its largest slots ({type(error).__name__})"
            return Measured(signed.whole, 0.0, f"{signed.whole}: {why}; use another engine, or retire its plan")
        work = replace(work, work_s=work.work_s + read_s, typical_s=work.typical_s and work.typical_s + read_s)
        grain_s = smallest_grain_s(work.work_s) if self._grain_s is None else self._grain_s
        blocks = blocks if work.block_s else 0
        measured = Measured(
            signed.whole,
            grain_s,
            _problem(signed.whole, work.work_s, grain_s),
            beside=0 if blocks else spec.slot_tokens,
            chosen=self._grain_s is None,
            blocks=blocks,
            rows_s=read_s * blocks / task.most_slots,
            **asdict(work),
        )
        work_ms, grain_ms = round(1000 * work.work_s, 1), round(1000 * grain_s)
        log.info("latency_measured", task=signed.whole, work_ms=work_ms, grain_ms=grain_ms)
        if measured.cold:
            log.warning("blocks_not_kept", task=signed.whole, problem=measured.cold)
        if measured.problem:
            log.error("latency_grain_too_small", task=signed.whole, problem=measured.problem)
        return measured


def _problem(address: str, work_s: float, grain_s: float) -> str:
    if grain_s >= 2 * work_s:
        return ""
    return (
        f"the largest slots of {address} take {1000 * work_s:.0f} ms, and a latency grain of "
        f"{1000 * grain_s:.0f} ms does not hide that: set DPICL_LATENCY_GRAIN_MS to at least "
        f"{1000 * smallest_grain_s(work_s):.0f} or leave it out, or {_SMALLER}"
    )


async def largest_work(
    stages: Stages,
    task: ClassifyTask | GenerateTask,
    noise: TaskNoise,
    spec: TaskSpec,
    knowledge_base: KnowledgeBase,
    blocks: int = 0,
) -> Work:
    """The work of a sample's largest slots, their rows being read; nothing if no question can be answered at all.

    Args:
        stages: stages that answer.
        task: task to measure.
        noise: calibrated noise of the task.
        spec: the task as the engine sees it, under the name of a knowledge base that does not exist.
        knowledge_base: fields and embeddings of the exemplars.
        blocks: number of blocks, if the task draws blocks. They are kept where the engine has room for them.

    Raises:
        NotMeasuredError: not all of these slots were answered.
        NoRoomError: the engine has no room for all slots that write together.
        service.engines.errors.EngineUnavailableError: the engine does not answer.
    """
    engine = await stages.engine.describe()
    adapter = answer_adapter_of(task, noise)
    if adapter.writing is not None:
        await _check_room(stages, written_so(spec, adapter.writing), 0)
    queries, local = made_up_queries(task, _QUERY_WORDS), engine.is_llm and not engine.remote
    if local:  # it counts tokens
        queries = [*ordinary_queries(task), *made_up_queries(task, _ORDINARY_WORDS)]
    ready = await first_query(stages, task, noise, replace(spec, measuring=True), queries)
    if ready is None:
        return Work()
    if knowledge_base.embedding_dimension is None and ready.zero_shot.question is not None:
        knowledge_base = replace(knowledge_base, embedding_dimension=len(ready.zero_shot.question))
    tokens = ready.zero_shot.tokens
    if adapter.writing is not None:
        await _check_room(stages, written_so(spec, adapter.writing), tokens)
    most, count = task.most_slots, measured_slots(task, local=local)
    open_slots = largest_slots(task, knowledge_base, count, engine)
    keeper, cold = cast(KeepsBlocks, stages.engine), ""
    if blocks and engine.keeps_blocks:
        cold = await keeper.room(spec, tokens, blocks, most)
    warm = bool(blocks) and engine.keeps_blocks and not cold
    # Words that all slots name beside others that none does. `keyword_ptr` releases them only if there are so few.
    releases_words = getattr(task.mechanism, "after", None) or task.mechanism
    agreed = adapter.slowest or made_up_text(made_up_words(), getattr(releases_words, "k_max", 1))
    number = itertools.count()

    async def once(asked: TaskSpec) -> float:
        query = _rotated(ready.query, next(number)) if asked.kept else ready.query
        run, took = await replace(ready, spec=asked, query=query).in_turn(0.0), 0.0
        started = time.monotonic()
        slots = await privately(open_slots)
        if run.first is not None:
            outputs = await run.ask(slots)
            ended = time.monotonic()
            check_answered(outputs, engine)
            await run.first.release(outputs)
            released = time.monotonic()
            await run.first.release([agreed] * most)  # all of them: this need not grow in proportion
            agreeing = time.monotonic() - released
            took = (ended - started) * most / count + max((released - ended) * most / count, agreeing)
            started = time.monotonic()
        if isinstance(run.mechanism, Author):
            words = agreed.split() if run.first is not None else ()
            await _written(run.write(run.mechanism, slots, words), stages)
            took += (time.monotonic() - started) * most / count
        return took

    async def median(spec: TaskSpec, about_s: float = 0.0) -> tuple[float, float]:
        """Seconds of a run, and to read a slot ahead."""
        if not warm:
            return await median_s(lambda: once(uncached(spec)), engine, about_s), 0.0
        asked, slots = uncached(spec), await privately(open_slots)
        try:
            started = time.monotonic()
            kept = await keeper.keep(asked, slots)
            took = time.monotonic() - started
            return await median_s(lambda: once(replace(asked, kept=kept)), engine, about_s), took / count
        finally:
            await keeper.keep(asked, [])

    typical_s = 0.0
    if local:  # first, being the shorter
        question = max(1, tokens - public_tokens(task))
        typical_s, _ = await median(replace(spec, slot_tokens=typical_tokens(task, question)))
    work_s, block_s = await median(spec, typical_s)
    return Work(
        work_s=work_s, tokens=tokens, typical_s=typical_s, block_s=block_s, cold=cold, repeats=ready.zero_shot.repeats
    )


def typical_tokens(task: ClassifyTask | GenerateTask, question: int) -> int:
    """Tokens of a slot's exemplars: the task's shots, each as long as a public text; without these, half of its room.

    Args:
        task: the task that slots are drawn for.
        question: tokens of the prompt of its longest public text.
    """
    if isinstance(task, ClassifyTask) and task.public_texts:
        return min(task.slot_room, task.shots * question)
    return -(-task.slot_room // 2)


async def _check_room(stages: Stages, spec: TaskSpec, tokens: int) -> None:
    """Whether all slots can write together; their room is set aside.

    Raises:
        NoRoomError: they cannot.
    """
    if problem := await cast(SetsRoomAside, stages.engine).room(spec, tokens, 0, spec.most_slots):
        raise NoRoomError(problem)


async def _written(work: Awaitable[str], stages: Stages) -> None:
    """Wait until made-up slots have written an answer of the greatest length.

    Raises:
        NotMeasuredError: they could not.
    """
    try:
        await asyncio.wait_for(work, stages.timeout_s)
    except Exception as error:
        raise NotMeasuredError("not all of the largest slots could write") from error


def _rotated(query: Mapping[str, str], by: int) -> Mapping[str, str]:
    """A query of the same length with other first words, so that its prompt is not found cached."""
    words = {name: text.split() for name, text in query.items()}
    return {name: " ".join(parts[by % len(parts) :] + parts[: by % len(parts)]) for name, parts in words.items()}


def uncached(spec: TaskSpec) -> TaskSpec:
    """The task to be measured, with prompts that no engine has cached since an earlier run."""
    return replace(spec, measuring=True, knowledge_base=f"{spec.knowledge_base}, measured {os.urandom(8).hex()}")


def check_answered(outputs: Outputs, engine: EngineInfo) -> None:
    """Whether all made-up slots were asked: what abstains may have cost nothing.

    Raises:
        NotMeasuredError: they were not.
    """
    if not engine.is_llm or engine.reads_embeddings:
        return  # its answers take no longer than abstentions
    if missing := sum(output is None for output in outputs):
        raise NotMeasuredError(f"{missing} of {len(outputs)} of the largest slots were not answered")


async def largest_read_s(store: ExemplarStore, signed: SignedTask, knowledge_base: KnowledgeBase) -> float:
    """Seconds to find and read the rows of the largest sample.

    Args:
        store: exemplar store with the exemplars.
        signed: number and size of slots, and topics.
        knowledge_base: fields and embeddings of the exemplars, and its public size.
    """
    task, topics = read_task(signed)[0], most_work(signed)
    dimension = _dimension(knowledge_base)
    if topics is not None and isinstance(topics.by, np.ndarray):
        dimension = topics.by.shape[1]
    (fields,) = largest_contents(task, knowledge_base, 1, knowledge_base.max_exemplar_bytes)
    sample = LargestSample(
        slots=task.most_slots,
        kept=task.slot_cap,
        shown=task.slot_shown,
        fields=fields,
        bytes=knowledge_base.max_exemplar_bytes,
        dimension=dimension,
        response=knowledge_base.response_field is not None,
        topics=topics,
        pages=1 + knowledge_base.public_size // PAGE,  # a unit has at least one exemplar
    )
    return await privately(lambda: store.reading_s(sample))


def measured_slots(task: ClassifyTask | GenerateTask, *, local: bool = False) -> int:
    """Number of made-up slots: as many as a sample may have where a language model here computes them together.

    Its batch and its cache have room for that number, and no smaller number of slots shows the time of one more.
    """
    return task.most_slots if local else min(task.most_slots, _MOST_SLOTS)


def largest_slots(
    task: ClassifyTask | GenerateTask, knowledge_base: KnowledgeBase, count: int, engine: EngineInfo
) -> Callable[[], list[Slot]]:
    """A function that returns made-up slots that are as large as any can be.

    Args:
        task: limits of the slots.
        knowledge_base: fields and embeddings of the exemplars.
        count: number of slots.
        engine: engine that may read embeddings.
    """
    # A language model cuts them to as many tokens as its prompts have room for: they must be no shorter than that.
    size = MAX_EXEMPLAR_BYTES if engine.is_llm else knowledge_base.max_exemplar_bytes
    return made_up_slots(
        largest_contents(task, knowledge_base, count, size),
        _dimension(knowledge_base) if engine.reads_embeddings else 0,
        response=knowledge_base.response_field is not None,
        exemplars=task.slot_shown,
    )


def _dimension(knowledge_base: KnowledgeBase) -> int:
    """Dimension of the stored embeddings; or of those that will be, where nothing was uploaded yet."""
    return _LARGE_DIMENSION if knowledge_base.embedding_dimension is None else knowledge_base.embedding_dimension


async def median_s(once: Callable[[], Awaitable[float]], engine: EngineInfo, about_s: float = 0.0) -> float:
    """The median of a few runs; the time of a single run where each is paid for.

    Args:
        once: makes a run, and returns the seconds that it took.
        engine: engine that the runs ask.
        about_s: time of a similar run, if known. A first run counts if it takes up to twice that, else it warms up.
    """
    took = [await once()]
    if not engine.remote:
        took = [first for first in took if first <= 2 * about_s]  # a longer one has loaded what the others find
        while len(took) < _RUNS and sum(took) < _ENOUGH_S:
            took.append(await once())
    return statistics.median(took)


def made_up_queries(task: ClassifyTask | GenerateTask, lengths: Iterable[int]) -> list[Mapping[str, str]]:
    """A query for each number of words that its fields are to have."""
    return [dict.fromkeys(task.query_fields, made_up_text(made_up_words(), words)) for words in lengths]


def ordinary_queries(task: ClassifyTask | GenerateTask) -> list[Mapping[str, str]]:
    """One query as long as the longest of the task's public texts, if it has some, with a prompt unlike theirs."""
    texts = task.calibration_queries if isinstance(task, ClassifyTask) and task.public_texts else ()
    longest = max(texts, key=lambda fields: sum(map(len, fields.values())), default=None)
    return [{name: " ".join(["aaaa", *reversed(text.split())]) for name, text in longest.items()}] if longest else []


async def first_query(
    stages: Stages,
    task: ClassifyTask | GenerateTask,
    noise: TaskNoise,
    spec: TaskSpec,
    queries: Iterable[Mapping[str, str]],
) -> Ready | None:
    """The first of some queries that the engine takes, probed; None if it takes none.

    Args:
        stages: stages that answer.
        task: task to ask.
        noise: calibrated noise of the task.
        spec: the task as the engine sees it.
        queries: made-up queries, the longest first.

    Raises:
        service.engines.errors.EngineUnavailableError: the engine does not answer.
    """
    for query in queries:
        try:
            return await stages.probe(task, noise, spec, query)
        except (InvalidQueryError, UnanswerableQueryError):
            continue
        except EngineUnavailableError:
            raise
        except Exception as error:
            raise EngineUnavailableError("the engine does not answer") from error
    return None


def made_up_words() -> Iterator[str]:
    """Different words of four letters, and of five when there are no more of these."""
    return map("".join, chain(product(ascii_lowercase, repeat=4), product(ascii_lowercase, repeat=5)))


def made_up_text(words: Iterator[str], count: int) -> str:
    """Lines of eight words each: 5 characters a word."""
    taken = list(islice(words, count))
    return "\n".join(" ".join(taken[first : first + 8]) for first in range(0, count, 8))


def largest_contents(
    task: ClassifyTask | GenerateTask, knowledge_base: KnowledgeBase, slots: int, size: int
) -> list[Mapping[str, str]]:
    """An exemplar of ``size`` bytes for each slot, shared out evenly; labels are the task's.

    No two slots share a word: as many different keywords are counted as there can be.
    """
    labels = {task.answer_field: task.labels[0]} if isinstance(task, ClassifyTask) else {}
    texts = sum(name not in labels for name in knowledge_base.fields)
    words, count = made_up_words(), max(1, int(_ESCAPED * size) // 5 // max(texts, 1))
    return [
        {name: labels.get(name) or made_up_text(words, count) for name in knowledge_base.fields} for _ in range(slots)
    ]
