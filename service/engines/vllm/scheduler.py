"""The scheduler that vLLM runs for us: its own, which keeps beginnings of prompts and computes in step.

It runs in vLLM's own process, and adds to each request nothing but a look at its arguments.
"""

import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from service.engines.vllm.keeping import Pinning, arguments_of

TOGETHER = "together"
"""A number that these requests share, and how many there are."""
_PATIENCE_S = 0.02
"""For one that does not arrive."""


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
