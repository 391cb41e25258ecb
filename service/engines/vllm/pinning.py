"""vLLM's scheduler, with beginnings of prompts that stay in its cache until they are let go.

vLLM frees a request's cache blocks when it is done, and gives them to others from then on, those first that were not
read for longest. Here a request may ask that the blocks which its first tokens fill stay in use, under a number, until
another request lets go of that number. No other request can evict what is in use.

Runs in vLLM's own process, and adds to each request nothing but a look at its arguments.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

PIN = "pin"
"""A number under which the blocks are kept."""
PIN_TOKENS = "pin_tokens"
"""How many of a prompt's first tokens; what fills a block only in part is not kept."""
LET_GO = "let_go"
"""Numbers that are let go of."""


class Pinning(Scheduler):  # type: ignore[misc]
    """Keeps what requests ask for."""

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
    """What is asked of a scheduler, beside what vLLM knows."""
    parameters = request.sampling_params
    return (parameters.extra_args if parameters is not None else None) or {}
