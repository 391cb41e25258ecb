"""Processes that are killed before or after a call."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from tests.processes import FRESH


def die_at(step: str, calls: Mapping[str, tuple[object, str]]) -> None:
    """Have this process killed, such as ``after charge``, at an object's method, whose result is there by then."""
    moment, _, name = step.partition(" ")
    owner, method = calls[name]
    original = getattr(owner, method)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def die_after(work: Any) -> None:
        await work
        die()

    def called(*args: Any, **options: Any) -> Any:
        result = original(*args, **options) if moment == "after" else None
        if inspect.iscoroutine(result):  # asyncio's takes generators for such
            return die_after(result)
        if inspect.isgenerator(result):
            list(result)
        die()

    setattr(owner, method, called)


def killed(target: Callable[..., None], *args: object) -> None:
    """Run a function that dies in a process of its own."""
    process = FRESH.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
