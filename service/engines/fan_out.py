"""Many prompts at once, how many an engine takes on, and what becomes of their answers: for every language model."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from service.engines.errors import EngineBusyError
from service.engines.task import TaskSpec

T = TypeVar("T")


class Admission:
    """Counts prompts in flight. To be used on one event loop.

    What is counted is public: a rejection must reveal nothing about a sample. A query's prompts count as its plan
    announces them, whatever the sample came to; and for as long as its answer takes to leave, a whole latency grain,
    however soon they were done.

    Args:
        limit: number of prompts in flight that lets no new query in.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self.in_flight = 0

    @contextmanager
    def probe(self, task: TaskSpec) -> Iterator[None]:
        """Carry a query's prompts without exemplars; if all goes well its slots from now on, until its answer leaves.

        Raises:
            service.engines.errors.EngineBusyError: there is too much in flight already.
        """
        if self.in_flight >= self._limit:
            raise EngineBusyError("the engine has as many prompts in flight as it accepts")
        loop = asyncio.get_running_loop()
        leaves = loop.time() + task.latency_grain_s
        prompts = max(task.candidates, 1)
        self._add(prompts)
        try:
            yield
        finally:
            self._add(-prompts)
        if loop.time() < leaves:
            self._add(task.ensemble)
            loop.call_at(leaves, self._add, -task.ensemble)

    @contextmanager
    def slots(self, task: TaskSpec) -> Iterator[None]:
        """Carry a query's slots; never refused, since they are paid for. For a grain the probe has counted them."""
        overrun = 0

        def overruns() -> None:
            nonlocal overrun
            overrun = task.ensemble
            self._add(overrun)

        timer = asyncio.get_running_loop().call_later(task.latency_grain_s, overruns)
        try:
            yield
        finally:
            timer.cancel()
            self._add(-overrun)

    def _add(self, prompts: int) -> None:
        self.in_flight += prompts


async def all_in_time(work: Sequence[Coroutine[Any, Any, T]], timeout_s: float) -> list[T | None]:
    """Results in order; None for what is not done by then, and that is cancelled. So is all of it if the caller is.

    Args:
        work: must not raise.
        timeout_s: seconds.
    """
    calls = [asyncio.create_task(awaitable) for awaitable in work]
    try:
        if calls:
            await asyncio.wait(calls, timeout=timeout_s)
    finally:
        for call in calls:
            call.cancel()
    return [call.result() if call.done() and not call.cancelled() else None for call in calls]


def candidate_texts(task: TaskSpec, likeliest: str, sampled: Sequence[str]) -> tuple[str, ...]:
    """A text task's candidates, the fallback first, then what is public anyway; no text twice, no empty one."""
    texts = [text for text in (likeliest, *task.public_answers, *sampled) if text]
    return tuple(dict.fromkeys(texts))[: task.candidates]


def samples_wanted(task: TaskSpec) -> int:
    """Number of candidates to sample beside the likeliest answer and the public ones."""
    return max(task.candidates - 1 - len(task.public_answers), 0)
