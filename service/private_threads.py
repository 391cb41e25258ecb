"""Threads for blocking work on private exemplars: nothing that leaves unpadded may queue behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="private")


async def privately(work: Callable[[], T]) -> T:
    """The result of ``work``, called in one of these threads; :func:`asyncio.to_thread` is for all else."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
