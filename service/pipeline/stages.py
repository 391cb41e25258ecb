"""The stages that see no ledger and no store: the public probe, the question to every slot, and a sentence of words.

A private answer (:mod:`service.pipeline.answering`) and a trial on public exemplars (:mod:`service.trials.trials`) are
made by the very same ones; they differ in where the slots come from, and in what may be told afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np

from accounting.plan import TaskNoise
from accounting.tasks import ClassifyTask, GenerateTask
from exemplar_store import Slot
from service.embedding.embedder import TextEmbedder
from service.engines.lock_step import Writing
from service.engines.prompts import with_keywords
from service.engines.protocol import (
    Engine,
    EngineUnavailableError,
    Output,
    Sentence,
    TaskSpec,
    WritesTogether,
    ZeroShot,
)
from service.pipeline.mechanisms.adapter import Aggregator, Answer, Author, Outputs, Public, answer_adapter_of

_RECONSTRUCT_ATTEMPTS = 3
T = TypeVar("T")


@dataclass(frozen=True)
class Stages:
    """What answers and aggregates.

    Attributes:
        engine: answers per slot.
        embedder: sentence embeddings, for mechanisms that compare answers.
        timeout_s: slots not answered by then abstain.
    """

    engine: Engine
    embedder: TextEmbedder
    timeout_s: float

    async def probe(
        self,
        task: ClassifyTask | GenerateTask,
        noise: TaskNoise,
        spec: TaskSpec,
        query: Mapping[str, str],
        *,
        prior: np.ndarray | None = None,
    ) -> tuple[ZeroShot, Aggregator | Author]:
        """The engine's public answer, and the mechanism made ready with it. Sees no exemplar: its failure may be told.

        Args:
            task: as signed.
            noise: its.
            spec: the task as the engine sees it.
            query: its fields.
            prior: label probabilities (labels,) that the mechanism weighs instead of zero-shot's, if not None.

        Raises:
            service.engines.protocol.EngineUnavailableError: the engine is down, or busy.
            service.engines.protocol.UnanswerableQueryError: the engine can never answer this query.
            service.pipeline.queries.InvalidQueryError: too little to choose from.
            TimeoutError: it took too long.
            ValueError: the engine's output is unusable.
        """
        adapter = answer_adapter_of(task, noise)
        async with asyncio.timeout(self.timeout_s):
            zero_shot = await self.engine.zero_shot(written_so(spec, adapter.writing), query)
            public = Public(
                query,
                zero_shot,
                self.embedder,
                lambda words, ordered: self._reconstruct(spec, query, words, ordered, zero_shot),
                prior,
            )
            return zero_shot, await adapter.prepare(public)

    async def answer(
        self,
        aggregator: Aggregator | Author,
        spec: TaskSpec,
        query: Mapping[str, str],
        slots: Sequence[Slot],
        zero_shot: ZeroShot,
    ) -> Answer:
        """The slots' released answer."""
        first = aggregator.before if isinstance(aggregator, Author) else aggregator
        released: Answer = {}
        if first is not None:
            released = await first.release(await self.ask(spec, query, slots, zero_shot))
        if not isinstance(aggregator, Author):
            return released
        keywords = cast(Sequence[str], released.get("keywords", ()))
        spec, query = guided(written_so(spec, aggregator.writing), query, keywords)
        return aggregator.answer(await self._written(spec, query, slots, zero_shot), keywords)

    async def _written(
        self, spec: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> str:
        """What the slots write together; nothing if the engine fails or takes too long."""
        writes = cast(WritesTogether, self.engine)
        return await self._or_none(writes.write(spec, query, slots, zero_shot)) or ""

    async def ask(
        self, spec: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Outputs:
        """One output per slot. If the engine fails as a whole each slot is asked alone: none may silence the others."""
        outputs = await self._ask_engine(spec, query, slots, zero_shot)
        if outputs is not None:
            return outputs
        alone = await asyncio.gather(*(self._ask_engine(spec, query, [slot], zero_shot) for slot in slots))
        return [answered[0] if answered is not None else None for answered in alone]

    async def show(self, spec: TaskSpec, query: Mapping[str, str], exemplars: Slot) -> np.ndarray | str:
        """The engine's label probabilities (labels,) with public exemplars in the prompt; or its text, perhaps empty.

        What fails may be told.

        Raises:
            service.engines.protocol.EngineUnavailableError: the engine is down, or busy, or does not say.
            service.engines.protocol.UnanswerableQueryError: the engine can never answer this query.
            TimeoutError: it took too long.
        """
        async with asyncio.timeout(self.timeout_s):
            zero_shot = await self.engine.zero_shot(spec, query)
            output: Output | None = next(iter(zero_shot.texts), "")
            if spec.kind == "classify":
                (output,) = await self.engine.contributions(spec, query, [exemplars], zero_shot)
        if not isinstance(output, np.ndarray | str):
            raise EngineUnavailableError("the engine gives no answer with what was released in its prompt")
        return output

    async def _ask_engine(
        self, spec: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Outputs | None:
        """The engine's outputs, or None if it fails, takes too long, or answers for another number of slots."""
        outputs = await self._or_none(self.engine.contributions(spec, query, slots, zero_shot))
        return outputs if outputs is not None and len(outputs) == len(slots) else None

    async def _or_none(self, work: Awaitable[T]) -> T | None:
        """The result of an engine's call; None if it fails or takes too long."""
        try:
            return await asyncio.wait_for(work, self.timeout_s)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():  # not the engine's call is being cancelled, but this query
                raise
            return None
        except Exception:
            return None

    async def _reconstruct(
        self, spec: TaskSpec, query: Mapping[str, str], words: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """A sentence made of released words; several tries, since the words alone are the poorer answer."""
        for attempt in range(_RECONSTRUCT_ATTEMPTS):
            try:
                call = self.engine.reconstruct(spec, query, words, ordered, zero_shot)
                return await asyncio.wait_for(call, self.timeout_s)
            except Exception:
                await asyncio.sleep(2.0**attempt / 10)
        return Sentence(" ".join(words), "the released words as they are")


def guided(spec: TaskSpec, query: Mapping[str, str], keywords: Sequence[str]) -> tuple[TaskSpec, Mapping[str, str]]:
    """A task and a query whose prompts name released words, if there are some."""
    if not keywords:
        return spec, query
    prompt, fields = with_keywords(spec.prompt, query, keywords, ordered=False)
    return replace(spec, prompt=prompt), fields


def written_so(spec: TaskSpec, writing: Writing | None) -> TaskSpec:
    """A task as the engine sees it whose slots write together; it needs one zero-shot answer, to fall back on."""
    return spec if writing is None else replace(spec, writing=writing, candidates=1)
