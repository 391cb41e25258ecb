"""How much work an engine accepts. What is counted is public: a rejection must reveal nothing about a sample.

A query's prompts count as its plan announces them, whatever the sample came to; and for as long as its answer takes to
leave, a whole latency grain, however soon they were done.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from service.engines.protocol import EngineBusyError, TaskSpec


class Admission:
    """Counts prompts in flight. To be used on one event loop.

    Args:
        limit: from so many on, new queries are refused.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self.in_flight = 0

    @contextmanager
    def probe(self, task: TaskSpec) -> Iterator[None]:
        """Carry a query's prompts without exemplars; if all goes well its slots from now on, until its answer leaves.

        Raises:
            service.engines.protocol.EngineBusyError: there is too much in flight already.
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
