"""Computations that take seconds, beside the event loop: one at a time, shared by visitors, their results kept.

A result depends on its key alone, so any replica may compute it anew. A visitor who asks for another result gives up
the one before, unless its computation has begun: a form that is still being typed in leaves no queue behind.
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
    """Computes in a thread of its own, so that answers never wait for a computation. May be shared by threads.

    Args:
        name: name of the thread.
        kept: number of results to keep; the least recently requested are dropped first.
    """

    def __init__(self, name: str, *, kept: int = 200):
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._kept = kept
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._wanted_by: dict[str, Hashable] = {}
        self._lock = Lock()

    def ask(self, who: str, key: Hashable, compute: Callable[[], T]) -> Future[T]:
        """Request a result.

        Args:
            who: identifier of the visitor, whose request before is given up if its computation has not begun.
            key: key of the result.
            compute: function that computes it.

        Returns:
            A future of the result, or of the error that the computation ended with.
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
        """Give up a visitor's last request."""
        with self._lock:
            self._give_up(self._wanted_by.pop(who, None))

    def _give_up(self, key: Hashable) -> None:
        if key in self._futures and key not in self._wanted_by.values() and self._futures[key].cancel():
            del self._futures[key]

    async def result(
        self, who: str, key: Hashable, compute: Callable[[], T], wait_s: float, *, insist: bool
    ) -> T | None:
        """Request a result as :meth:`ask` does, and wait for it, or raise the error that the computation ended with.

        Args:
            who: identifier of the visitor.
            key: key of the result.
            compute: function that computes it.
            wait_s: longest wait, in seconds.
            insist: whether to request it again if another page of the same visitor gives it up meanwhile. A page that
                asks again by itself need not insist.

        Returns:
            The result; None: it is not there in time.
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
        try:
            return future.result()
        except Exception:  # shown once, and then it may be tried again
            with self._lock:
                if self._futures.get(key) is future:
                    del self._futures[key]
            raise
