"""The stages that see no ledger and no store: the public probe, the question to every slot, and a sentence of words.

A private answer (:mod:`service.answering.answering`) and a trial on public exemplars
(:mod:`service.answering.trials.trials`) are made by the very same ones; they differ in where the slots come from, and
in what may be reported afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

import numpy as np

from accounting.plans.plan import TaskNoise
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import Slot
from service.answering.mechanisms.adapter import Aggregator, Answer, Author, Outputs, Public, answer_adapter_of
from service.answering.quoting import quotes
from service.answering.turns import NoTurns, Turn, Turns, free_call, turn
from service.engines.embedding.embedder import TextEmbedder
from service.engines.errors import EngineBusyError, EngineUnavailableError
from service.engines.private_threads import privately
from service.engines.prompts import with_keywords
from service.engines.protocol import Engine, WritesTogether
from service.engines.task import Output, Sentence, TaskSpec, Writing, ZeroShot

_RECONSTRUCT_ATTEMPTS = 3
_KEYWORD_TOKENS = 16  # of a released word in a prompt, with room to spare
T = TypeVar("T")


@dataclass(frozen=True)
class Stages:
    """The stages that answer and aggregate.

    Attributes:
        engine: answers per slot.
        embedder: sentence embeddings, for mechanisms that compare answers.
        timeout_s: slots not answered by then abstain.
        turns: turns to ask the engine or the embedder.
    """

    engine: Engine
    embedder: TextEmbedder
    timeout_s: float
    turns: Turns = field(default_factory=NoTurns)

    def turn(self, about_s: float = 0.0) -> AbstractAsyncContextManager[Turn]:
        """A turn to ask the engine or the embedder: every call to them is made in one (:mod:`.turns`).

        Args:
            about_s: seconds that it is likely to last.

        Raises:
            service.engines.errors.EngineBusyError: too many others have theirs first.
        """
        return turn(self.turns, about_s=about_s, patience_s=self.timeout_s)

    def free_call(self, grain_s: float) -> AbstractAsyncContextManager[None]:
        """A call that is not a private answer; arguments and errors as of :func:`.turns.free_call`."""
        return free_call(self.turns, grain_s, self.timeout_s)

    async def probe(
        self,
        task: ClassifyTask | GenerateTask,
        noise: TaskNoise,
        spec: TaskSpec,
        query: Mapping[str, str],
        *,
        prior: np.ndarray | None = None,
    ) -> Ready:
        """Ask the engine without exemplars, and make the mechanism ready with its answer. Failures may be reported.

        Args:
            task: the signed task.
            noise: calibrated noise of the task.
            spec: the task as the engine sees it.
            query: fields of the query.
            prior: label probabilities (labels,) that the mechanism weighs instead of zero-shot's, if not None.

        Raises:
            service.engines.errors.EngineUnavailableError: the engine is down, or busy.
            service.engines.errors.UnanswerableQueryError: the engine can never answer this query.
            service.answering.queries.InvalidQueryError: too little to choose from.
            TimeoutError: it took too long.
            ValueError: the engine's output is unusable.
        """
        adapter = answer_adapter_of(task, noise)
        async with asyncio.timeout(self.timeout_s):
            zero_shot = await self.engine.zero_shot(written_so(spec, adapter.writing), query)
            if spec.quotes:
                zero_shot = replace(zero_shot, embedded=False)
            reconstruct = partial(self._reconstruct, spec, query, zero_shot)
            public = Public(query, zero_shot, self.embedder, reconstruct, prior)
            return Ready(self, spec, query, zero_shot, await adapter.prepare(public))

    async def embed(self, spec: TaskSpec, query: Mapping[str, str], zero_shot: ZeroShot | None = None) -> np.ndarray:
        """The question's embedding, float32 (d,). Public.

        Args:
            spec: the task as the engine sees it.
            query: fields of the query.
            zero_shot: answer to it, for which the engine may have embedded it.

        Raises:
            service.engines.errors.EngineUnavailableError: the embedder does not answer.
            TimeoutError: it took too long.
        """
        if zero_shot is not None and zero_shot.question is not None:
            return zero_shot.question
        async with asyncio.timeout(self.timeout_s):
            (vector,) = await asyncio.to_thread(self.embedder.embed, [query[spec.input_field]])
        return cast(np.ndarray, vector)

    async def zero_shot(self, spec: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """The engine's answer without exemplars. Failures may be reported.

        Raises:
            service.engines.errors.EngineUnavailableError: the engine is down, or busy.
            service.engines.errors.UnanswerableQueryError: the engine can never answer this query.
            TimeoutError: it took too long.
        """
        async with asyncio.timeout(self.timeout_s):
            return await self.engine.zero_shot(spec, query)

    async def show(self, spec: TaskSpec, query: Mapping[str, str], exemplars: Slot) -> np.ndarray | str:
        """The engine's label probabilities (labels,) with public exemplars in the prompt; or its text, perhaps empty.

        Failures may be reported.

        Raises:
            service.engines.errors.EngineUnavailableError: the engine is down or busy, or gives no answer.
            service.engines.errors.UnanswerableQueryError: the engine can never answer this query.
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

    async def or_none(self, work: Awaitable[T]) -> T | None:
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
        self, spec: TaskSpec, query: Mapping[str, str], zero_shot: ZeroShot, words: Sequence[str], ordered: bool
    ) -> Sentence:
        """A sentence made of released words; several tries, since the words alone are the poorer answer."""
        for attempt in range(_RECONSTRUCT_ATTEMPTS):
            try:
                call = self.engine.reconstruct(spec, query, words, ordered, zero_shot)
                return await asyncio.wait_for(call, self.timeout_s)
            except Exception:
                await asyncio.sleep(2.0**attempt / 10)
        return Sentence(" ".join(words), "the released words as they are")


@dataclass(frozen=True)
class Ready:
    """A question that its slots may be asked.

    Attributes:
        stages: stages that answer.
        spec: the task as the engine sees it.
        query: fields of the query.
        zero_shot: the engine's public answer.
        mechanism: mechanism that was made ready with it.
    """

    stages: Stages
    spec: TaskSpec
    query: Mapping[str, str]
    zero_shot: ZeroShot
    mechanism: Aggregator | Author

    @property
    def first(self) -> Aggregator | None:
        """The mechanism that releases something of the slots' outputs; None where they only write together."""
        return self.mechanism.before if isinstance(self.mechanism, Author) else self.mechanism

    async def in_turn(self, takes_s: float, *, patient: bool = False) -> Ready:
        """The same with the places that all slots need to write together. Unless they do, nothing is waited for.

        Args:
            takes_s: seconds for which the places stay taken: what the largest slots take, since what these take is
                private; 0 gives them back when the answer is written.
            patient: whether to wait for other answers however long they take.

        Raises:
            service.engines.errors.EngineBusyError: other answers are being written for too long.
            service.engines.errors.EngineUnavailableError: the engine has too little room for the slots.
        """
        if not isinstance(self.mechanism, Author):
            return self
        spec, engine = written_so(self.spec, self.mechanism.writing), cast(WritesTogether, self.stages.engine)
        tokens = self.zero_shot.tokens + _KEYWORD_TOKENS * self.mechanism.words
        try:
            patience_s = None if patient else self.stages.timeout_s
            turn = await asyncio.wait_for(engine.turn(spec, tokens, takes_s), patience_s)
        except TimeoutError:
            raise EngineBusyError("other answers are being written") from None
        return replace(self, spec=replace(self.spec, turn=turn))

    async def answer(self, slots: Sequence[Slot]) -> Answer:
        """The slots' released answer."""
        released: Answer = {}
        if self.first is not None:
            released = await self.first.release(await self.ask(slots))
        if not isinstance(self.mechanism, Author):
            return released
        keywords = cast(Sequence[str], released.get("keywords", ()))
        text = await self.stages.or_none(self.write(self.mechanism, slots, keywords))
        return self.mechanism.answer(text or "", keywords)

    async def ask(self, slots: Sequence[Slot]) -> Outputs:
        """One output per slot. If the engine fails as a whole each slot is asked alone: none may silence the others."""
        if self.spec.quotes:
            return await privately(lambda: quotes(self.spec, slots))
        outputs = await self._ask_engine(slots)
        if outputs is not None:
            return outputs
        alone = await asyncio.gather(*(self._ask_engine([slot]) for slot in slots))
        return [answered[0] if answered is not None else None for answered in alone]

    async def write(self, author: Author, slots: Sequence[Slot], keywords: Sequence[str]) -> str:
        """The text that the slots write together, with these words in their prompts if any. Raises as the engine."""
        spec, query = written_so(self.spec, author.writing), self.query
        if keywords:
            prompt, query = with_keywords(spec.prompt, query, keywords, ordered=False)
            spec = replace(spec, prompt=prompt)
        return await cast(WritesTogether, self.stages.engine).write(spec, query, slots, self.zero_shot)

    async def _ask_engine(self, slots: Sequence[Slot]) -> Outputs | None:
        """The engine's outputs, or None if it fails, takes too long, or answers for another number of slots."""
        asked = self.stages.engine.contributions(self.spec, self.query, slots, self.zero_shot)
        outputs = await self.stages.or_none(asked)
        return outputs if outputs is not None and len(outputs) == len(slots) else None


def written_so(spec: TaskSpec, writing: Writing | None) -> TaskSpec:
    """A task as the engine sees it whose slots write together; it needs one zero-shot answer, to fall back on."""
    return spec if writing is None else replace(spec, writing=writing, candidates=1)
