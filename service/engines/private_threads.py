"""Threads for blocking work on private exemplars: nothing that leaves unpadded may queue behind it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="private")
_WAITING = threading.local()
_BESIDE = ThreadPoolExecutor(max_workers=8, thread_name_prefix="private-beside")
_POOL = ContextVar("_POOL", default=_THREADS)


async def privately(work: Callable[[], T]) -> T:
    """The result of ``work``, called in one of these threads; :func:`asyncio.to_thread` is for all else."""
    loop = asyncio.get_running_loop()

    def called() -> T:
        _WAITING.loop = loop
        return work()

    return await loop.run_in_executor(_POOL.get(), called)


def on_the_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run by the event loop that waits for this thread, which is one of these."""

    async def beside() -> T:
        _POOL.set(_BESIDE)  # it may want such threads in turn, and all of them may wait here
        return await work

    return asyncio.run_coroutine_threadsafe(beside(), _WAITING.loop).result()
