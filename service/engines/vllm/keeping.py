"""Blocks of exemplars that vLLM has read ahead and keeps: their beginnings are pinned in its cache.

:class:`Pinning` is part of the scheduler in vLLM's own process; :class:`Keeper` asks it to.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from service.engines.private_threads import privately
from service.engines.prompts import rendered

if TYPE_CHECKING:
    import numpy as np

    from exemplar_store import Slot
    from service.engines.task import TaskSpec
    from service.engines.vllm.tokens import Tokens

PIN = "pin"
"""A number under which the blocks are kept."""
PIN_TOKENS = "pin_tokens"
"""Number of a prompt's first tokens to keep; a block that they fill only in part is not kept."""
LET_GO = "let_go"
"""Numbers that are let go of."""
# Two questions that begin differently: what both prompts begin with is their exemplars' and the template's.
_ANY = ("0", "a")
# Tokens at the end of that beginning that a third question may still replace.
_BESIDE_QUESTION = 2


class Pinning(Scheduler):  # type: ignore[misc]
    """Beginnings of prompts stay in the cache until they are let go.

    vLLM frees a request's cache blocks when it is done, and gives them to others from then on, those first that were
    not read for longest. As questions fill a cache of any size, it evicts exemplars that were not drawn for long, and
    an answer's time would show earlier draws. So here a request may ask that the blocks which its first tokens fill
    stay in use, under a number, until another request lets go of that number. Nothing evicts what is in use.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pinned: dict[int, list[KVCacheBlock]] = {}

    def add_request(self, request: Request) -> None:
        """May let go of others' beginnings first."""
        for number in arguments_of(request).get(LET_GO, ()):
            # The last first, as vLLM frees a request's: a beginning is worth more.
            self.kv_cache_manager.block_pool.free_blocks(reversed(self._pinned.pop(number, [])))
        super().add_request(request)

    def _free_request_blocks(self, request: Request) -> None:
        wanted = arguments_of(request)
        # A preempted request has not ended, and an aborted one may have computed nothing.
        ended = request.is_finished() and request.status != RequestStatus.FINISHED_ABORTED
        if ended and PIN in wanted:
            (blocks,) = self.kv_cache_manager.get_blocks(request.request_id).blocks
            kept = list(blocks[: wanted[PIN_TOKENS] // self.block_size])
            self.kv_cache_manager.block_pool.touch(kept)
            self._pinned[wanted[PIN]] = kept
        super()._free_request_blocks(request)


def arguments_of(request: Request) -> dict[str, Any]:
    """The arguments of a request that vLLM does not know itself."""
    parameters = request.sampling_params
    return (parameters.extra_args if parameters is not None else None) or {}


@dataclass(frozen=True)
class _Kept:
    """A block that was read ahead.

    Attributes:
        number: number under which its beginning is pinned.
        shown: exemplars of the block that fit.
        beginning: the tokens that are pinned.
        scores: the :func:`.label_scoring.reference` of its label scores on public queries, float64 (L,); none if none.
    """

    number: int
    shown: Slot
    beginning: Tokens
    scores: Sequence[np.ndarray]


class Keeper:
    """Keeps the blocks of tasks in vLLM's cache.

    Args:
        size: tokens that vLLM's cache keeps together.
        shown: function that returns as many of each slot's exemplars as fit, and its prompts of some queries with them;
            all of the exemplars or none where not ``cut``.
        read: function that has vLLM read a task's prompt, with arguments for its scheduler.
        scored: function that returns the :func:`.label_scoring.reference` of a task's prompts; none of none.
    """

    def __init__(
        self,
        size: int,
        shown: Callable[..., list[tuple[Slot, list[Tokens]]]],
        read: Callable[[TaskSpec, Tokens, Mapping[str, Any]], Awaitable[Any]],
        scored: Callable[[TaskSpec, Sequence[Tokens]], Awaitable[Sequence[np.ndarray]]],
    ) -> None:
        self._size = size
        self._shown = shown
        self._read = read
        self._scored = scored
        self._kept: dict[tuple[str, str], dict[bytes, _Kept]] = {}
        self._reading = asyncio.Lock()
        self._number = itertools.count()
        self._this = secrets.token_hex(8)

    async def keep(self, task: TaskSpec, blocks: Sequence[Slot]) -> str:
        """Read a task's blocks ahead, as :meth:`service.engines.protocol.KeepsBlocks.keep` does."""
        key = task.name, task.knowledge_base
        wanted = {_digest(task, block): block for block in blocks if block}
        async with self._reading:
            have = self._kept.setdefault(key, {})
            if gone := [have.pop(digest).number for digest in have.keys() - wanted.keys()]:
                await self._read(task, [0], {LET_GO: gone})
            new = {digest: block for digest, block in wanted.items() if digest not in have}
            queries = (_saying(_ANY[0]), *task.own_queries, _saying(_ANY[1]))
            shown = await privately(lambda: self._shown(task, queries, list(new.values())))
            numbers = [next(self._number) for _ in shown]
            try:
                reading = [self._keep_one(task, number, *own) for number, own in zip(numbers, shown, strict=True)]
                read = await asyncio.gather(*reading)
                have.update((digest, kept) for digest, kept in zip(new, read, strict=True) if kept is not None)
            finally:
                if lost := sorted({*numbers} - {kept.number for kept in have.values()}):
                    await self._read(task, [0], {LET_GO: lost})
            if not blocks:
                del self._kept[key]
        return self._this

    def keeps(self, task: TaskSpec) -> bool:
        """Whether the task's slots are blocks that are kept."""
        return task.kept == self._this and (task.name, task.knowledge_base) in self._kept

    def continued(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot]
    ) -> list[tuple[list[Tokens], Sequence[np.ndarray]]]:
        """The query's prompt of each slot that is kept, and its scores on public queries; no prompt of others."""
        kept = self._kept[task.name, task.knowledge_base]
        blocks = [kept.get(_digest(task, slot)) for slot in slots]
        shown = self._shown(task, [query], [block.shown if block else () for block in blocks], cut=False)
        return [
            (prompts, block.scores)
            if block and prompts and prompts[0][: len(block.beginning)] == block.beginning
            else ([], ())
            for (_, prompts), block in zip(shown, blocks, strict=True)
        ]

    async def _keep_one(self, task: TaskSpec, number: int, shown: Slot, prompts: Sequence[Tokens]) -> _Kept | None:
        """Read a block's beginning and pin it, and score it; None if that fails or nothing of it fits."""
        if not prompts:
            return None
        length = next((i for i, tokens in enumerate(zip(*prompts, strict=False)) if len({*tokens}) > 1), 0)
        length = (length - _BESIDE_QUESTION) // self._size * self._size
        public = prompts[1:-1]
        if task.measuring:
            # No block has less of its prompt pinned than fills whole pieces; and of what follows nothing is found.
            length = (task.slot_tokens - _BESIDE_QUESTION - self._size) // self._size * self._size
            public = [[*prompt[: max(length, 0)], *prompt[max(length, 0) + 1 :]] for prompt in public]
        beginning = prompts[0][: max(length, 0)]
        try:
            await self._read(task, public[0] if public else prompts[0], {PIN: number, PIN_TOKENS: len(beginning)})
            scores = await self._scored(task, public)
        except Exception:  # this block's alone
            return None
        return _Kept(number, shown, beginning, scores)


def _saying(text: str) -> Mapping[str, str]:
    """A query all of whose fields are this text."""
    return defaultdict(lambda: text)


def _digest(task: TaskSpec, slot: Slot) -> bytes:
    """SHA-256 of the part of a prompt that shows a block, before anything is left out."""
    return hashlib.sha256("\0".join(rendered(task.prompt, slot)).encode()).digest()
