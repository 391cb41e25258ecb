"""What takes seconds, beside the event loop: one at a time, shared by all who ask for the same, and kept.

A result depends on its key alone, so any replica may compute it anew. Whoever asks for something else gives up what
they waited for, unless it has begun: a form that is still being typed in leaves no queue behind.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

_GLANCE_S = 0.03


class Computations:
    """Computes in threads of its own, so that answers never wait for one. May be shared by threads.

    Args:
        name: of the threads.
        workers: computations at once.
        kept: results to keep, the least recently asked for are dropped first.
    """

    def __init__(self, name: str, *, workers: int = 1, kept: int = 200):
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._kept = kept
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._wanted_by: dict[str, set[Hashable]] = {}
        self._lock = Lock()

    def ask(self, who: str, wanted: Mapping[Hashable, Callable[[], Any]]) -> list[Future[Any]]:
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


async def ready(futures: Collection[Future[Any]], wait_s: float) -> bool:
    """Whether all have ended; waits so long for it."""
    # Looked at rather than awaited: a computation may outlast the event loop, and must not call back into it.
    for _ in range(round(wait_s / _GLANCE_S)):
        if all(future.done() for future in futures):
            return True
        await asyncio.sleep(_GLANCE_S)
    return all(future.done() for future in futures)
