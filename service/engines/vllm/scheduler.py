"""The scheduler that vLLM runs for us: its own, which keeps beginnings of prompts and computes in step."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from service.engines.vllm.in_step import InStep
from service.engines.vllm.pinning import Pinning


class _Ours(Pinning, InStep):
    pass


class _OursAsync(Pinning, InStep, AsyncScheduler):  # type: ignore[misc]
    pass


def scheduler(vllm_config: Any, **arguments: Any) -> Scheduler:
    """vLLM names it by its place, and gives it what its own would get."""
    kind = _OursAsync if vllm_config.scheduler_config.async_scheduling else _Ours
    return kind(vllm_config=vllm_config, **arguments)
