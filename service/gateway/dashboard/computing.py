"""What takes seconds, beside the event loop: one at a time, shared by all who ask for the same, and kept.

A result depends on its key alone, so any replica may compute it anew. Whoever asks for something else gives up what
they waited for, unless it has begun: a form that is still being typed in leaves no queue behind.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

_GLANCE_S = 0.03


class Computations:
    """Computes in a thread of its own, so that answers never wait for one. May be shared by threads.

    Args:
        name: of the thread.
        kept: results to keep, the least recently asked for are dropped first.
    """

    def __init__(self, name: str, *, kept: int = 200):
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._kept = kept
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._wanted_by: dict[str, Hashable] = {}
        self._lock = Lock()

    def ask(self, who: str, key: Hashable, compute: Callable[[], T]) -> Future[T]:
        """Have something computed.

        Args:
            who: asks; what the same one asked for before is not begun any more.
            key: of the result.
            compute: makes it.

        Returns:
            What will hold the result, or the error it ended with.
        """
        with self._lock:
            before, self._wanted_by[who] = self._wanted_by.get(who), key
            self._give_up(before)
            if key not in self._futures:
                self._futures[key] = self._pool.submit(compute)
            self._futures.move_to_end(key)
            for done in [key for key, future in self._futures.items() if future.done()][: -self._kept]:
                del self._futures[done]
            return self._futures[key]

    def leave(self, who: str) -> None:
        """Want nothing any more."""
        with self._lock:
            self._give_up(self._wanted_by.pop(who, None))

    def _give_up(self, key: Hashable) -> None:
        if key in self._futures and key not in self._wanted_by.values() and self._futures[key].cancel():
            del self._futures[key]

    async def result(
        self, who: str, key: Hashable, compute: Callable[[], T], wait_s: float, *, insist: bool
    ) -> T | None:
        """What :meth:`ask` asks for, or the error it ended with; None if it is not there in time.

        Args:
            who: asks.
            key: of the result.
            compute: makes it.
            wait_s: the longest wait.
            insist: ask again for what another page of the same asker gives up meanwhile. A page that asks again by
                itself need not.
        """
        until = time.monotonic() + wait_s
        future = self.ask(who, key, compute)
        # Looked at rather than awaited: a computation may outlast the event loop, and must not call back into it.
        while not future.done() or future.cancelled():
            if time.monotonic() >= until or (future.cancelled() and not insist):
                return None
            await asyncio.sleep(_GLANCE_S)
            if future.cancelled() and insist:
                future = self.ask(who, key, compute)
        return future.result()
