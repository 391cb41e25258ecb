"""Many prompts at once, and what becomes of their answers: the same for every language model."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from service.engines.protocol import TaskSpec

T = TypeVar("T")


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
    """How many candidates to sample beside the likeliest answer and the public ones."""
    return max(task.candidates - 1 - len(task.public_answers), 0)
