"""What takes seconds, beside the event loop: one at a time, shared by all who ask for the same, and kept.

A result depends on its key alone, so any replica may compute it anew. Whoever asks for something else gives up what
they waited for, unless it has begun: a form that is still being typed in leaves no queue behind.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

_GLANCE_S = 0.03


class Computations:
    """Computes in threads of its own, so that answers never wait for one. May be shared by threads.

    Args:
        name: of the threads.
        kept: results to keep, the least recently asked for are dropped first.
    """

    def __init__(self, name: str, *, kept: int = 200):
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._kept = kept
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._wanted_by: dict[str, set[Hashable]] = {}
        self._lock = Lock()

    def ask(self, who: str, wanted: Mapping[Any, Callable[[], Any]]) -> list[Future[Any]]:
        """Have some things computed, in this order.

        Args:
            who: asks; what the same one asked for before and does not want any more is not begun.
            wanted: by key, how to compute it.

        Returns:
            What will hold each result, or the error it ended with.
        """
        with self._lock:
            before = self._wanted_by.pop(who, set())
            if wanted:
                self._wanted_by[who] = set(wanted)
            still = set().union(*self._wanted_by.values())
            for key in before - still:
                if (given_up := self._futures.get(key)) is not None and given_up.cancel():
                    del self._futures[key]
            futures = []
            for key, compute in wanted.items():
                if key not in self._futures:
                    self._futures[key] = self._pool.submit(compute)
                self._futures.move_to_end(key)
                futures.append(self._futures[key])
            for key in [key for key, future in self._futures.items() if future.done()][: -self._kept]:
                del self._futures[key]
            return futures

    async def results(
        self, who: str, wanted: Mapping[Any, Callable[[], Any]], wait_s: float, *, insist: bool
    ) -> list[Future[Any]] | None:
        """The same, awaited.

        Args:
            who: asks.
            wanted: by key, how to compute it.
            wait_s: the longest wait.
            insist: ask again for what another page of the same asker gives up meanwhile. A page that asks again by
                itself need not.

        Returns:
            What holds each result, or None if it is not there in time.
        """
        until = time.monotonic() + wait_s
        futures = self.ask(who, wanted)
        # Looked at rather than awaited: a computation may outlast the event loop, and must not call back into it.
        while not all(future.done() for future in futures) or any(future.cancelled() for future in futures):
            if time.monotonic() >= until:
                return None
            await asyncio.sleep(_GLANCE_S)
            if any(future.cancelled() for future in futures):
                if not insist:
                    return None
                futures = self.ask(who, wanted)
        return futures
