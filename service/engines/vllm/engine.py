"""vLLM inside the engine's replica: one call carries all slots of a query, and the replica fans out.

Labels are scored by next-token log-probabilities (:mod:`service.engines.vllm.label_scoring`); texts are written with a
seed per prompt. What a slot contributes depends on that slot alone:

- its scores are calibrated by public exemplars', by its own on public queries, and by zero-shot;
- it is shortened by its own length: exemplars that do not fit the task's bound and the model are left out;
- its seed is a hash of its own tokens;
- what shares its batch does not change its numbers (:mod:`service.engines.vllm.isolation`);
- a block that is kept (:mod:`service.engines.vllm.keeping`) has its own beginning in the cache, and its own scores;
- cached beginnings of prompts are salted by knowledge base, with a secret of this replica; prompts without exemplars
  have a salt of their own, or a question that repeats a guessed exemplar would find it cached.

Prompts are never logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import math
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from pydantic import ValidationError
from typing_extensions import override
from vllm import AsyncEngineArgs, ModelRegistry, SamplingParams
from vllm.inputs import tokens_input
from vllm.outputs import CompletionOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from service.engines.configs import VllmConfig
from service.engines.errors import EngineUnavailableError, NotKeptError, UnanswerableQueryError
from service.engines.fan_out import Admission, all_in_time, candidate_texts, samples_wanted
from service.engines.lock_step import MOST_ASKED, PublicVoice, UnansweredError, write
from service.engines.private_threads import privately
from service.engines.prompts import filled, fitting, own_words, render, render_keywords, rendered
from service.engines.protocol import EngineInfo, KeepsBlocks, WritesTogether
from service.engines.task import Output, Prompt, Sentence, TaskSpec, Writing, ZeroShot
from service.engines.vllm.balanced_reference import BalancedReference, balanced, public_slots
from service.engines.vllm.grammars import Grammars, Matcher
from service.engines.vllm.isolation import Isolation
from service.engines.vllm.keeping import Keeper
from service.engines.vllm.label_scoring import LabelTrie, calibrated, reference
from service.engines.vllm.places import Need, Places, Turn
from service.engines.vllm.sessions import SlotSession, one_token
from service.engines.vllm.tokens import Tokenization, Tokens

if TYPE_CHECKING:
    from exemplar_store import Slot

T = TypeVar("T")
_SHUTDOWN_S = 10.0
# Text with more characters than this for each token is not natural, and would take long to be counted.
_MOST_TOKEN_CHARACTERS = 16
# Each may share its batch with requests that want other log-probabilities, which vLLM then computes for all.
_LIKELIEST_ATTEMPTS = 20
# Beside slots that write, the public prompt has a place.
_BESIDE_SLOTS = 1
# Tokens of a question and its template: as many are set aside for a question to slots that write together.
_LONG_QUESTION = 512


@dataclass(frozen=True)
class _Room:
    """Blocks of the cache that are set aside for a task.

    Attributes:
        kept: blocks for exemplars that are read ahead.
        beside: blocks for the rest of an answer's prompts, where exemplars are.
        writing: blocks for slots that write together, and the public prompt.
    """

    kept: int = 0
    beside: int = 0
    writing: int = 0


class _Written(NamedTuple):
    """A text.

    Attributes:
        text: text, perhaps empty.
        cut: whether the greatest length ended it.
    """

    text: str
    cut: bool


class VllmEngine(WritesTogether, KeepsBlocks):
    """The engine ``vllm``.

    Args:
        config: model, and how to run it.
        isolation: result of :func:`service.engines.vllm.isolation.isolate`, called before this module was imported.

    Raises:
        service.engines.errors.EngineUnavailableError: it cannot start here; the message names why and what to change.
    """

    def __init__(self, config: VllmConfig, isolation: Isolation):
        self._config = config
        try:
            if current_platform.is_cpu():
                _look_here(config.model)
            self._llm = AsyncLLM.from_engine_args(
                AsyncEngineArgs(
                    model=config.model,
                    revision=config.revision,
                    quantization=config.quantization,
                    load_format=config.load_format,
                    max_model_len=config.max_model_len,
                    tensor_parallel_size=config.tensor_parallel_size,
                    gpu_memory_utilization=config.gpu_memory_utilization,
                    max_num_seqs=config.max_num_seqs + config.max_writing_slots + _BESIDE_SLOTS,
                    max_logprobs=MOST_ASKED,
                    enable_prefix_caching=config.prefix_caching,
                    disable_log_stats=True,
                    scheduler_cls="service.engines.vllm.scheduler.scheduler",
                    **{"dtype": config.dtype, "enforce_eager": bool(config.enforce_eager), **isolation.arguments},
                ),
                # A query is a batch: many prompts to be done as one, not one to be begun soon.
                usage_context=UsageContext.LLM_CLASS,
            )
            self._tokens = {
                kind: Tokenization(self._llm.get_tokenizer(), chat, config.chat_template_kwargs)
                for kind, chat in {"classify": bool(config.chat), "generate": config.chat}.items()
            }
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            raise EngineUnavailableError(f"vLLM cannot start with the model {config.model}: {_why(error)}") from error
        name = Path(config.model).name if Path(config.model).exists() else config.model
        self._longest = min(int(self._llm.model_config.max_model_len), isolation.longest)
        self._info = EngineInfo(
            name="vllm",
            isolation=isolation.sentence,
            is_llm=True,
            notice=f"Answers come from the language model {name}.",
            keeps_blocks=config.prefix_caching,
            writes_together=True,
            writing_slots=config.max_writing_slots,
            cache_tokens=(self._cache_blocks - 1) * self._block_size,
            model_tokens=self._longest,
        )
        self._favoured: dict[tuple[Any, ...], Sequence[np.ndarray]] = {}
        self._balanced: dict[tuple[Any, ...], BalancedReference] = {}
        self._beside_public: dict[tuple[Any, ...], dict[int, np.ndarray]] = defaultdict(dict)
        self._balancing = asyncio.Lock()
        self._rooms: dict[str, _Room] = {}
        # What prompts take, and what slots that write together take: neither waits for the other.
        self._prompt_places = Places(config.max_num_seqs, self._cache_blocks - 1)
        self._writing_places = Places(config.max_writing_slots + _BESIDE_SLOTS, 0)
        self._turns: dict[str, Turn] = {}
        self._number = itertools.count()
        self._keeper = Keeper(self._block_size, self._shown, self._read, self._means)
        self._admission = Admission(config.max_queued_prompts)
        self._trie = lru_cache(maxsize=256)(self._make_trie)
        self._grammars = cache(lambda: Grammars(self._llm.vllm_config, self._llm.get_tokenizer()))
        salt_key = secrets.token_bytes(32)
        self._salt = lru_cache(maxsize=256)(lambda name: hmac.digest(salt_key, name.encode(), hashlib.sha256).hex())

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.protocol.Engine.zero_shot`.

        Labels cost one prompt, or a few where labels share their first tokens; texts one per candidate that is no
        public answer. The first text is the likeliest one, the others are sampled at temperature 1. A task's first
        question waits for its references.
        """
        if task.kept and not self._keeper.keeps(task):
            raise NotKeptError("the engine has started anew, and reads the exemplars first")
        await self._grammar(task)  # before anything is charged
        prompts = self._tokens_of(task).prompts([render(task.prompt, fields) for fields in (query, *task.calibration)])
        prompt = prompts[0]
        for tokens in prompts:
            self._check_fits(tokens, task, task.slot_tokens)
        if task.writing is not None and (problem := self._writing_problem(task, len(prompt), task.most_slots)):
            raise UnanswerableQueryError(f"{problem}; or ask with a shorter text")
        asked = _without_exemplars(task)
        with self._admission.probe(task):
            if task.kind == "classify":
                probabilities = await self._public(self._unshown(asked, prompts))
                beside = await self._public(self._beside(asked))
                repeats = beside.repeats if beside else None
                return ZeroShot(probabilities=probabilities, tokens=len(prompt), repeats=repeats, context=beside)
            writing = [self._write(asked, prompt, 1.0, n) for n in range(1, 1 + samples_wanted(task))]
            first, *others = await self._public(asyncio.gather(self._write(asked, prompt, 0.0), *writing))
        texts = candidate_texts(task, first.text, [other.text for other in others])
        return ZeroShot(texts=texts, tokens=len(prompt), cut=first.cut)

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Sequence[Output | None]:
        """See :meth:`service.engines.protocol.Engine.contributions`.

        An empty slot abstains without a prompt; so does one that is not answered in time. When the caller gives up,
        vLLM stops working on it.

        Raises:
            service.engines.errors.EngineUnavailableError: vLLM has died.
            TypeError: the output without exemplars is not this engine's.
        """
        if _weighs_balanced(task) and not isinstance(zero_shot.context, BalancedReference):
            raise TypeError(f"{task.name} has slots whose scores are divided by a reference, which is missing")
        asked = await self._asked(task, query, slots)
        work = [self._contribution(task, prompts, zero_shot, scores) for prompts, scores in asked]
        with self._admission.slots(task):
            outputs = await all_in_time(work, self._config.timeout_s)
        if self._llm.errored:
            raise EngineUnavailableError("vLLM has died")
        return outputs

    async def _asked(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot]
    ) -> list[tuple[list[Tokens], Sequence[np.ndarray]]]:
        """Each slot's prompts, and what is known of its label scores; no prompts for a slot that abstains."""
        if self._keeper.keeps(task):
            return await privately(lambda: self._keeper.continued(task, query, slots))
        return [(prompts, ()) for prompts in await privately(lambda: self._prompts(task, query, slots))]

    @override
    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        if task.writing is None:
            raise TypeError(f"{task.name} is not written together")
        tokens, asked, grammar = self._tokens_of(task), _without_exemplars(task), await self._grammar(task)
        ends = tokens.text_ends()[: 1 if grammar else None]  # a grammar may have lines
        (prompt,) = tokens.prompts([render(task.prompt, query)])
        prompts = [own for own, _ in await self._asked(task, query, slots)]
        if task.measuring and not all(prompts):
            raise UnansweredError("no exemplars fill the largest slots")
        turn = await self._turn(task, len(prompt), len(slots))
        same = {"group": next(self._number), "most": min(task.writing.top_k + len(ends), MOST_ASKED)}
        public = self._session(asked, prompt, **same)
        voices = [self._session(task, own[0], **same) for own in prompts if own]
        try:
            with self._admission.slots(task):
                said = await write(
                    task.writing,
                    _Public(self, asked, prompt, public),
                    voices,
                    ends=ends,
                    banned=tokens.special() - {*ends},
                    forbids=partial(_ends_in_banned, task.writing, tokens, blank=grammar is not None),
                    grammar=grammar,
                    timeout_s=self._config.timeout_s,
                    measuring=task.measuring,
                )
        finally:
            # One that took too long may still be giving up, and cannot be closed: that must not end the others' answer.
            await asyncio.gather(*(session.close() for session in (public, *voices)), return_exceptions=True)
            turn.end()
        return tokens.text(said)

    @override
    async def turn(self, task: TaskSpec, tokens: int, takes_s: float) -> str:
        name = secrets.token_hex(8)
        self._turns = {other: turn for other, turn in self._turns.items() if not turn.lapsed}
        self._turns[name] = await self._take(task, tokens, task.most_slots, takes_s)
        return name

    async def _turn(self, task: TaskSpec, tokens: int, slots: int) -> Turn:
        """The turn that was taken for an answer, if it is as large as was announced; else one that is taken now."""
        turn = self._turns.pop(task.turn, None)
        if turn is not None and not turn.lapsed:
            turn.begin()
            need = self._sessions(task, tokens, slots)
            if need.places <= turn.need.places and need.blocks <= turn.need.blocks:
                return turn
            turn.end()
        turn = await self._take(task, tokens, max(slots, task.most_slots), 0.0)
        turn.begin()
        return turn

    async def _take(self, task: TaskSpec, tokens: int, slots: int, takes_s: float) -> Turn:
        if problem := self._writing_problem(task, tokens, slots):
            raise EngineUnavailableError(problem)
        need = self._sessions(task, tokens, slots)
        await self._writing_places.take(need)
        # More than is set aside for signed tasks, as a trial may need, is taken from prompts' room.
        more = Need(0, need.blocks - self._writing_places.blocks)
        if more.blocks <= 0:
            return Turn(need, lambda: self._writing_places.give(need), takes_s, self._config.timeout_s)
        try:
            await self._prompt_places.take(more)
        except BaseException:
            self._writing_places.give(need)
            raise

        def give() -> None:
            self._prompt_places.give(more)
            self._writing_places.give(need)

        return Turn(need, give, takes_s, self._config.timeout_s)

    def _tokens_of(self, task: TaskSpec) -> Tokenization:
        return self._tokens["classify" if task.writing else task.kind]  # both go on from the exemplars

    async def _grammar(self, task: TaskSpec) -> Matcher | None:
        """The grammar of a task's next answer; compiling it takes long, the first time."""
        if task.writing is None:
            return None
        writing, (end, *_) = task.writing, self._tokens_of(task).text_ends()
        return await asyncio.to_thread(lambda: self._grammars().open(writing, end))

    def _session(self, task: TaskSpec, prompt: Tokens, **same: int) -> SlotSession:
        return SlotSession(self._llm, prompt, self._salt(task.knowledge_base), str(next(self._number)), **same)

    async def likeliest(self, task: TaskSpec, prompt: Tokens, count: int) -> Mapping[int, float]:
        """Log-probabilities of the tokens that are likeliest to follow a prompt without exemplars.

        Raises:
            service.engines.errors.EngineUnavailableError: others' wanted tokens were computed instead, each time.
        """
        for _ in range(_LIKELIEST_ATTEMPTS):
            output = await self._ask(task, prompt, _likeliest(count))
            if len(output.logprobs[0]) >= count:
                return {token: said.logprob for token, said in output.logprobs[0].items()}
        raise EngineUnavailableError("vLLM is too busy to report the likeliest tokens")

    async def of_tokens(self, task: TaskSpec, prompt: Tokens, tokens: Sequence[int]) -> Mapping[int, float]:
        """Log-probabilities of these tokens after a prompt without exemplars."""
        output = await self._ask(task, prompt, _next_token(tuple(tokens)))
        return {token: output.logprobs[0][token].logprob for token in tokens}

    @override
    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        (prompt,) = self._tokens_of(task).prompts([render_keywords(task.prompt, query, keywords, ordered)])
        self._check_fits(prompt, task)
        written = await self._public(self._write(_without_exemplars(task), prompt, 0.0))
        if not written.text:
            raise EngineUnavailableError("the model makes no sentence of these words")
        return Sentence(written.text, "written by the language model from the released words; it saw no exemplar")

    async def room(self, task: TaskSpec, tokens: int, blocks: int, most: int) -> str:
        """See :meth:`service.engines.protocol.KeepsBlocks.room`.

        While a task is measured, as many made-up blocks as a sample may have are kept beside its own.
        """
        if task.writing is not None and not blocks:
            return self._room_to_write(task, tokens, most)
        if not self._cache_is_uniform:
            return "blocks are not kept for this model: its layers cache in different ways"
        size, there = self._block_size, self._cache_blocks
        own = len(self._tokens_of(task).prompts([render(task.prompt, defaultdict(str))])[0])
        pieces = (blocks + most) * ((own + task.slot_tokens) // size)
        beside = most * ((tokens + self._answer_tokens(task)) // size + 2)
        room = replace(self._rooms.get(task.name, _Room()), kept=pieces, beside=beside)
        if (needed := self._needed(task.name, room)) <= there:
            self._set_aside(task.name, room)
            return ""
        return (
            f"keeping {blocks} blocks takes {needed * size} tokens of cache, and there is room for {there * size}: "
            f"raise {self._raised(needed)}, or lower the task's slot_tokens"
        )

    def _room_to_write(self, task: TaskSpec, tokens: int, most: int) -> str:
        """For a long question if possible: one for which nothing is set aside waits for other prompts, too."""
        for length in (max(tokens, _LONG_QUESTION), tokens):
            if not (problem := self._writing_problem(task, length, most)):
                room = replace(self._rooms.get(task.name, _Room()), writing=self._sessions(task, length, most).blocks)
                self._set_aside(task.name, room)
                break
        return problem

    def _writing_problem(self, task: TaskSpec, tokens: int, most: int) -> str:
        """Why this many slots cannot write together beside what is set aside for others; empty if they can."""
        need, size = self._sessions(task, tokens, most), self._block_size
        if most > self._config.max_writing_slots:
            return (
                f"up to {most} slots write together, and the engine has places for {self._config.max_writing_slots}: "
                f"lower the task's ensemble, or raise the engine's max_writing_slots to {most}"
            )
        needed = self._needed(task.name, replace(self._rooms.get(task.name, _Room()), writing=need.blocks))
        if needed <= self._cache_blocks:
            return ""
        return (
            f"{most} slots that write together take up to {need.blocks * size} tokens of cache, {needed * size} with "
            f"what others need, and there is room for {self._cache_blocks * size}: lower the task's ensemble or "
            f"slot_tokens, or raise {self._raised(needed)}"
        )

    def _sessions(self, task: TaskSpec, tokens: int, slots: int) -> Need:
        """The places and blocks that slots and the public prompt need while they write, at most.

        Args:
            task: task with its ``writing``.
            tokens: length of the question's prompt without exemplars.
            slots: number of slots at most.
        """
        written = task.writing.longest if task.writing else 0
        alone = min(tokens + written, self._longest)
        each = min(alone + task.slot_tokens, self._longest) if task.slot_tokens else self._longest
        size = self._block_size
        return Need(slots + _BESIDE_SLOTS, slots * (each // size + 1) + _BESIDE_SLOTS * (alone // size + 1))

    def _needed(self, name: str, room: _Room) -> int:
        """Blocks of the cache that all tasks need, if one gets this room. vLLM has one block for itself."""
        rooms = [room, *(other for task, other in self._rooms.items() if task != name)]
        writing = max(other.writing for other in rooms)
        one_prompt = self._longest // self._block_size + 1 if writing else 0
        beside = max(one_prompt, *(other.beside for other in rooms))
        return sum(other.kept for other in rooms) + beside + writing + 1

    def _set_aside(self, name: str, room: _Room) -> None:
        """Divide the cache: half of what keeps no blocks is for writing, if it is wanted, or as much as one needs."""
        self._rooms[name] = room
        rooms = self._rooms.values()
        free = self._cache_blocks - sum(other.kept for other in rooms) - 1
        writing = max(other.writing for other in rooms)
        if writing:
            prompts = max(self._longest // self._block_size + 1, *(other.beside for other in rooms))
            writing = max(writing, min(free // 2, free - prompts))
        self._writing_places.resize(writing)
        self._prompt_places.resize(free - writing)

    def _raised(self, blocks: int) -> str:
        gib = math.ceil(self._config.kv_cache_gib * blocks / max(self._cache_blocks, 1))
        return f"kv_cache_gib to {gib} (CPU) or gpu_memory_utilization (GPU)"

    @property
    def _block_size(self) -> int:
        return int(self._llm.vllm_config.cache_config.block_size)

    @property
    def _cache_is_uniform(self) -> bool:
        config, size = self._llm.vllm_config.cache_config, self._block_size
        return abs((config.kv_cache_size_tokens or 0) - size * (config.num_gpu_blocks or 0)) <= size

    @property
    def _cache_blocks(self) -> int:
        """Number of blocks of prompts that the cache has room for, whichever way the model's layers cache."""
        config = self._llm.vllm_config.cache_config
        there = int(config.num_gpu_blocks or 0)
        return there if self._cache_is_uniform else min(there, (config.kv_cache_size_tokens or 0) // self._block_size)

    @override
    async def keep(self, task: TaskSpec, blocks: Sequence[Slot]) -> str:
        return await self._keeper.keep(task, blocks)

    @override
    async def describe(self) -> EngineInfo:
        return self._info

    @override
    async def health(self) -> None:
        if self._llm.errored:
            raise EngineUnavailableError("vLLM has died")

    def close(self) -> None:
        """See :meth:`service.engines.protocol.Engine.close`; ends vLLM's processes."""
        resources = self._llm.engine_core.resources
        sockets, task = [resources.input_socket, resources.output_socket], resources.output_queue_task
        self._llm.shutdown(timeout=_SHUTDOWN_S)
        # vLLM leaves them to its event loop. If that never runs again, their context, once collected, waits forever.
        if task is None or not task.get_loop().is_running():
            for socket in sockets:
                socket.close(linger=0)

    async def _contribution(
        self, task: TaskSpec, prompts: Sequence[Tokens], zero_shot: ZeroShot, known: Sequence[np.ndarray]
    ) -> Output | None:
        if not prompts:
            return None
        try:
            if task.kind == "classify":
                first = await self._score(task, prompts[0])  # its exemplars are cached now, for the others
                own = [*known, *await self._means(task, prompts[1:])]
                return calibrated(first, _favoured(task, own, zero_shot.context), zero_shot.probabilities)
            written = await self._write(task, prompts[0], self._config.temperature)
            return written.text or ("-" if task.measuring else None)  # measured, blank or not
        except Exception:  # this slot's alone
            return None

    async def _unshown(self, task: TaskSpec, prompts: Sequence[Tokens]) -> np.ndarray:
        """The same without exemplars: scores on public queries are the task's, and asked for once."""
        key = task.prompt, task.labels, task.answer_field, tuple(tuple(fields.items()) for fields in task.calibration)
        if key not in self._favoured:
            self._favoured[key] = await self._means(task, prompts[1:])
        return calibrated(await self._score(task, prompts[0]), *self._favoured[key])

    async def _beside(self, task: TaskSpec) -> BalancedReference | None:
        """The task's reference beside public exemplars, asked for once; None where slots need none.

        The prompts end with the question that asks them, for their time is its own. Scores that it has by then are
        kept for the next one.
        """
        if not _weighs_balanced(task):
            return None
        key = task.prompt, task.labels, task.shots, tuple(tuple(fields.items()) for fields in task.calibration)
        async with self._balancing:
            if key not in self._balanced:
                self._balanced[key] = await self._balance(task, self._beside_public[key])
                del self._beside_public[key]
        return self._balanced[key]

    async def _balance(self, task: TaskSpec, scores: dict[int, np.ndarray]) -> BalancedReference:
        """The reference; scores, float64 (L,), are added by the number of their public slot."""
        slots = public_slots(task)
        plain = replace(task, measuring=False, slot_tokens=0, own_reference=0.0)
        prompts = await asyncio.to_thread(lambda: [self._prompts(plain, one.query, [one.slot])[0] for one in slots])
        if not all(prompts):
            raise UnanswerableQueryError(
                f"a public text beside another is longer than the {self._longest} tokens of the model: an admin must "
                "write shorter ones"
            )

        async def score(number: int, prompt: Tokens) -> None:
            scores[number] = await self._score(plain, prompt)

        await asyncio.gather(*(score(n, prompt) for n, (prompt,) in enumerate(prompts) if n not in scores))
        return balanced(slots, [scores[number] for number in range(len(slots))])

    async def _means(self, task: TaskSpec, prompts: Sequence[Tokens]) -> Sequence[np.ndarray]:
        """The :func:`.label_scoring.reference` of label scores, float64 (L,); none where nothing is asked."""
        scores = await asyncio.gather(*(self._score(task, prompt) for prompt in prompts))
        return [reference(scores)] if scores else []

    async def _score(self, task: TaskSpec, prompt: Tokens, extra: tuple[tuple[str, int], ...] = ()) -> np.ndarray:
        """Label probabilities, float64 (L,); ``extra`` is passed to the worker with each request."""
        trie = self._trie(task.labels, task.prompt, task.answer_field)
        asked = [
            (number, [*prompt, *question.prefix], question.tokens[at : at + MOST_ASKED])
            for number, question in enumerate(trie.questions)
            for at in range(0, len(question.tokens), MOST_ASKED)
        ]
        calls = [self._ask(task, tokens, _next_token(wanted, extra)) for _, tokens, wanted in asked]
        outputs = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
        replies: list[dict[int, float]] = [{} for _ in trie.questions]
        for (number, _, wanted), output in zip(asked, outputs, strict=True):
            logprobs = output.logprobs[0]
            replies[number].update((token, logprobs[token].logprob) for token in wanted)
        return trie.probabilities(replies)

    async def _write(
        self,
        task: TaskSpec,
        prompt: Tokens,
        temperature: float,
        number: int = 0,
        extra: tuple[tuple[str, int], ...] = (),
    ) -> _Written:
        """A text; ``extra`` is passed to the worker with each request."""
        seed = hashlib.sha256(np.array([number, *prompt], dtype=np.int64).tobytes()).digest()[:4]
        tokens, read, left = self._tokens_of(task), list(prompt), self._config.max_answer_tokens
        for _ in range(2):  # empty lines end an answer; if it begins with them, the model goes on behind them, once
            parameters = SamplingParams(
                temperature=temperature,
                seed=int.from_bytes(seed) if temperature > 0 else None,
                max_tokens=left,
                min_tokens=1,  # an empty answer is of no use
                stop=None if task.measuring else tokens.stops(task),
                ignore_eos=task.measuring,
                output_kind=RequestOutputKind.FINAL_ONLY,
                extra_args=dict(extra) or None,
                skip_clone=True,  # they are this request's own, and a deep copy takes longer than anything else here
            )
            output = await self._ask(task, read, parameters)
            text, left = own_words(task.prompt, output.text), left - len(output.token_ids)
            if left <= 0 or text:
                break
            read += [token for token in output.token_ids if token not in tokens.special()]
        return _Written(text, cut=output.finish_reason == "length")

    async def _ask(self, task: TaskSpec, prompt: Tokens, parameters: SamplingParams) -> CompletionOutput:
        salted = tokens_input(prompt, cache_salt=self._salt(task.knowledge_base))
        need = Need(1, (len(prompt) + (parameters.max_tokens or 0)) // self._block_size + 1)
        async with self._prompt_places.of(need):
            results = self._llm.generate(salted, parameters, str(next(self._number)))
            (result,) = [result async for result in results]  # one: only the final one is asked for
        return result.outputs[0]

    async def _read(self, task: TaskSpec, prompt: Tokens, told: Mapping[str, Any]) -> None:
        """Have a prompt read and nothing else; ``told`` is passed to the scheduler."""
        await self._ask(task, prompt, _parameters(extra_args=dict(told)))

    async def _public(self, work: Awaitable[T]) -> T:
        """Work without exemplars, whose failure may be reported."""
        try:
            return await work
        except UnanswerableQueryError:
            raise
        except Exception as error:
            raise EngineUnavailableError("vLLM does not answer") from error

    def _prompts(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot]) -> list[list[Tokens]]:
        """Each slot's prompts, with as many of its exemplars as fit: its query's, and those that it is calibrated by.

        No prompts for a slot of which nothing fits.
        """
        return [prompts for _, prompts in self._shown(task, [query, *task.own_queries], slots)]

    def _shown(
        self, task: TaskSpec, queries: Sequence[Mapping[str, str]], slots: Sequence[Slot], *, cut: bool = True
    ) -> list[tuple[Slot, list[Tokens]]]:
        """As many of each slot's exemplars as fit, and its prompts with them; all of them or none where not ``cut``."""
        without = self._tokens_of(task).prompts([render(task.prompt, query) for query in queries])
        room = self._longest - self._answer_tokens(task)
        rooms = [min(room, len(prompt) + task.slot_tokens) if task.slot_tokens else room for prompt in without]
        if task.measuring:
            sizes = [(len(prompt), room) for prompt, room in zip(without, rooms, strict=True)]
            return list(zip(slots, self._filled(task, queries, slots, sizes), strict=True))
        shown: list[tuple[Slot, list[Tokens]]] = [((), []) for _ in slots]
        fit = self._fitting(task, slots) if task.slot_tokens and cut else slots
        kept = {i: slot for i, slot in enumerate(fit) if slot}
        while kept:
            texts = [render(task.prompt, query, slot) for slot in kept.values() for query in queries]
            for i, prompts in zip(list(kept), self._each(task, texts, len(queries)), strict=True):
                if all(len(prompt) <= room for prompt, room in zip(prompts, rooms, strict=True)):
                    shown[i] = kept.pop(i), prompts
            kept = {i: slot[1:] for i, slot in kept.items() if len(slot) > 1 and cut}
        return shown

    def _fitting(self, task: TaskSpec, slots: Sequence[Slot]) -> list[Slot]:
        """Each slot's exemplars that fit its room, by their tokens; what is far too long is not counted."""
        most = _MOST_TOKEN_CHARACTERS * task.slot_tokens
        few = [fitting(slot, [*map(len, rendered(task.prompt, slot))], most) for slot in slots]
        lengths = iter(self._tokens_of(task).lengths([text for slot in few for text in rendered(task.prompt, slot)]))
        return [fitting(slot, [next(lengths) for _ in slot], task.slot_tokens) for slot in few]

    def _each(self, task: TaskSpec, texts: Sequence[str], count: int) -> list[list[Tokens]]:
        """Prompts of these texts, ``count`` for each slot."""
        prompts = self._tokens_of(task).prompts(texts)
        return [prompts[at : at + count] for at in range(0, len(prompts), count)]

    def _filled(
        self, task: TaskSpec, queries: Sequence[Mapping[str, str]], slots: Sequence[Slot], sizes: list[tuple[int, int]]
    ) -> list[list[Tokens]]:
        """Prompts of exactly as many tokens as there is room for; none for a slot whose text is too short.

        ``sizes`` are of each query its tokens without exemplars, which the last ones are, and with all that fit.
        """
        characters = _MOST_TOKEN_CHARACTERS * task.slot_tokens
        texts = [filled(task.prompt, query, slot, characters) for slot in slots for query in queries]
        return [
            [[*prompt[: room - end], *prompt[-end:]] for prompt, (end, room) in zip(prompts, sizes, strict=True)]
            if all(len(prompt) >= room for prompt, (_, room) in zip(prompts, sizes, strict=True))
            else []
            for prompts in self._each(task, texts, len(queries))
        ]

    def _check_fits(self, prompt: Tokens, task: TaskSpec, slot_tokens: int = 0) -> None:
        room = self._longest - self._answer_tokens(task) - slot_tokens
        if len(prompt) <= room:
            return
        public = sum(self._tokens_of(task).lengths(list(task.prompt.public)))
        if room - public < self._longest // 4:
            beside = f"{slot_tokens} for exemplars" + (f", {public} for public exemplars" if public else "")
            lower = "the task's slot_tokens" + (" or leave out public_exemplars" if public else "")
            raise UnanswerableQueryError(
                f"the model takes {self._longest} tokens, and beside {beside} and the answer only "
                f"{max(room - public, 0)} are left for a question: an admin must lower {lower}, or the operator "
                "max_answer_tokens"
            )
        raise UnanswerableQueryError(
            f"the query makes a prompt of {len(prompt)} tokens, and beside exemplars and an answer the model takes "
            f"{max(room, 0)}: ask with a shorter text"
        )

    def _answer_tokens(self, task: TaskSpec) -> int:
        """Tokens to leave for the answer."""
        if task.kind == "generate":
            return max(self._config.max_answer_tokens, task.writing.longest if task.writing else 0)
        trie = self._trie(task.labels, task.prompt, task.answer_field)
        return 1 + max((len(question.prefix) for question in trie.questions), default=0)

    def _make_trie(self, labels: tuple[str, ...], prompt: Prompt, answer_field: str) -> LabelTrie:
        try:
            tokens = self._tokens["classify"]
            return LabelTrie(tokens.labels(labels, prompt, answer_field), tokens.ends())
        except ValueError as error:
            raise UnanswerableQueryError(
                f"this task's labels cannot be asked of the language model ({error}): an admin must rename them"
            ) from error


class _Public(PublicVoice):
    """The model without exemplars. It is asked again if vLLM computed tokens that others wanted, not the likeliest."""

    def __init__(self, engine: VllmEngine, task: TaskSpec, prompt: Tokens, session: SlotSession) -> None:
        self._engine, self._task, self._session = engine, task, session
        self._whole = list(prompt)

    @override
    async def likeliest(self, read: Sequence[int], count: int, beside: Sequence[int] = ()) -> Mapping[int, float]:
        self._whole += read
        reply = await self._session.likeliest(read, count)
        if len(reply) < count:
            reply = await self._engine.likeliest(self._task, self._whole, count)
        return {**reply, **await self._engine.of_tokens(self._task, self._whole, beside)} if beside else reply


def _ends_in_banned(writing: Writing, tokens: Tokenization, said: Tokens, blank: bool) -> bool:
    """Whether the tokens so far end in a banned text, or begin blank where they must not.

    A character has at most four tokens.
    """
    if len(said) == 1 and not blank and not tokens.text(said):
        return True
    reach = 1 + 4 * max(map(len, writing.banned), default=0)
    return bool(writing.banned) and writing.forbids(tokens.text(said[-reach:]))


def _look_here(model: str) -> None:
    """Have vLLM look at a model's class in this process: it would start another, which imports everything once more.

    Args:
        model: a folder; of others vLLM itself finds the class.

    Raises:
        ValueError: the description is not a JSON object.
    """
    file = Path(model, "config.json")
    described = json.loads(file.read_bytes()) if file.is_file() else {}
    if not isinstance(described, dict):
        raise ValueError("its config.json is not an object")
    for architecture in described.get("architectures") or ():
        if architecture in ModelRegistry.models:
            found = ModelRegistry.models[architecture].load_model_cls()
            del ModelRegistry.models[architecture]  # or vLLM warns that it is replaced
            ModelRegistry.register_model(architecture, found)


def _why(error: Exception) -> str:
    """The sentence with the reason; advice for vLLM's own users follows."""
    said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return said.removeprefix("Value error, ").partition("\n")[0].rstrip(".")


def _without_exemplars(task: TaskSpec) -> TaskSpec:
    """The task for prompts that show no exemplar: no knowledge base can have this name, so they share no cache."""
    return replace(task, knowledge_base=f"questions to {task.knowledge_base}")


def _weighs_balanced(task: TaskSpec) -> bool:
    """Whether slots are asked, and their scores divided by those beside public exemplars."""
    return task.kind == "classify" and bool(task.calibration) and task.own_reference < 1 and not task.quotes


def _favoured(task: TaskSpec, own: Sequence[np.ndarray], beside: BalancedReference | None) -> np.ndarray | None:
    """What a slot's label scores are divided by, float64 (L,); None: nothing."""
    if beside is None or not _weighs_balanced(task):
        return own[0] if own else None
    return reference([beside.scores, *own], [1 - task.own_reference, *[task.own_reference] * len(own)])


@lru_cache(maxsize=8)
def _likeliest(count: int) -> SamplingParams:
    return _parameters(logprobs=count, skip_clone=True)


@lru_cache(maxsize=256)
def _next_token(wanted: tuple[int, ...], extra: tuple[tuple[str, int], ...] = ()) -> SamplingParams:
    """Shared by all prompts that ask for these tokens: vLLM copies it, and making one takes long."""
    return _parameters(logprob_token_ids=list(wanted), extra_args=dict(extra) or None, skip_clone=True)


def _parameters(**wanted: Any) -> SamplingParams:
    return one_token(output_kind=RequestOutputKind.FINAL_ONLY, **wanted)
