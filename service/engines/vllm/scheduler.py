"""The scheduler that vLLM runs for us: its own, which keeps beginnings of prompts and computes in step.

It runs in vLLM's own process, and adds to each request nothing but a look at its arguments.
"""

import time
from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

PIN = "pin"
"""A number under which the blocks are kept."""
PIN_TOKENS = "pin_tokens"
"""How many of a prompt's first tokens; what fills a block only in part is not kept."""
LET_GO = "let_go"
"""Numbers that are let go of."""
TOGETHER = "together"
"""A number that these requests share, and how many there are."""
_PATIENCE_S = 0.02
"""For one that does not arrive."""


class Pinning(Scheduler):  # type: ignore[misc]
    """Beginnings of prompts stay in the cache until they are let go.

    vLLM frees a request's cache blocks when it is done, and gives them to others from then on, those first that were
    not read for longest. Here a request may ask that the blocks which its first tokens fill stay in use, under a
    number, until another request lets go of that number. No other request can evict what is in use.
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


class InStep(Scheduler):  # type: ignore[misc]
    """Computes what belongs together in one step: nothing, while requests arrive of which there are more.

    Prompts arrive one after the other. Alone, the first would be computed before the others are here, and one takes a
    fifth as long as forty: at every token of an answer that slots write together. No prompt's output depends on who is
    in its batch, so this changes nothing but the time.
    """

    max_num_scheduled_tokens: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arriving: dict[int, tuple[int, float]] = {}  # how many are here, and since when

    def add_request(self, request: Request) -> None:
        """Of a session: its next piece."""
        if together := arguments_of(request).get(TOGETHER):
            number, of = together
            here, since = self._arriving.pop(number, (0, time.monotonic()))
            if here + 1 < of:
                self._arriving[number] = here + 1, since
        super().add_request(request)

    def _update_request_as_session(self, session: Request, update: Any) -> None:
        # vLLM 0.26 (GPUs) would keep the next full block under the hash of the token that the session did not take.
        del session.block_hashes[session.num_computed_tokens // self.hash_block_size :]
        super()._update_request_as_session(session, update)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Nothing, for now, makes vLLM look for what has arrived a millisecond later."""
        now, most = time.monotonic(), self.max_num_scheduled_tokens
        self._arriving = {n: group for n, group in self._arriving.items() if now - group[1] < _PATIENCE_S}
        if self._arriving:
            self.max_num_scheduled_tokens = 0
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = most


class _Ours(Pinning, InStep):
    pass


class _OursAsync(Pinning, InStep, AsyncScheduler):  # type: ignore[misc]
    pass


def scheduler(vllm_config: Any, **arguments: Any) -> Scheduler:
    """vLLM names it by its place, and gives it what its own would get."""
    kind = _OursAsync if vllm_config.scheduler_config.async_scheduling else _Ours
    return kind(vllm_config=vllm_config, **arguments)


def arguments_of(request: Request) -> dict[str, Any]:
    """What is asked of a scheduler, beside what vLLM knows."""
    parameters = request.sampling_params
    return (parameters.extra_args if parameters is not None else None) or {}
