"""Room for any number of slots to write together, for engines that tests make up."""

from typing import Any

from service.engines.task import TaskSpec

WRITES: dict[str, Any] = {
    "writes_together": True,
    "writing_slots": 10_000,
    "cache_tokens": 10**9,
    "model_tokens": 10**6,
}
"""Members of such an engine's description."""


class Roomy:
    """Always has room for all slots."""

    async def room(self, task: TaskSpec, tokens: int, blocks: int, most: int) -> str:
        return ""

    async def turn(self, task: TaskSpec, tokens: int, takes_s: float) -> str:
        return ""
