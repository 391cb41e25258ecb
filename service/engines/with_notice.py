"""An engine whose description says something of the deployment, which every answer, preview and budget then repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from exemplar_store import Slot
from service.engines.protocol import (
    Engine,
    EngineInfo,
    KeepsBlocks,
    Output,
    Sentence,
    TaskSpec,
    WritesTogether,
    ZeroShot,
)


@dataclass
class EngineWithNotice:
    """An engine, behind its own protocol.

    Attributes:
        engine: that.
        notice: put before its own.
    """

    engine: Engine
    notice: str

    async def describe(self) -> EngineInfo:
        """See :meth:`service.engines.protocol.Engine.describe`."""
        told = await self.engine.describe()
        return replace(told, notice=f"{self.notice} {told.notice}")

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.protocol.Engine.zero_shot`."""
        return await self.engine.zero_shot(task, query)

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Sequence[Output | None]:
        """See :meth:`service.engines.protocol.Engine.contributions`."""
        return await self.engine.contributions(task, query, slots, zero_shot)

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """See :meth:`service.engines.protocol.Engine.reconstruct`."""
        return await self.engine.reconstruct(task, query, keywords, ordered, zero_shot)

    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        """See :meth:`service.engines.protocol.WritesTogether.write`."""
        return await cast(WritesTogether, self.engine).write(task, query, slots, zero_shot)

    async def room(self, task: TaskSpec, tokens: int, blocks: int, most: int) -> str:
        """See :meth:`service.engines.protocol.KeepsBlocks.room`."""
        return await cast(KeepsBlocks, self.engine).room(task, tokens, blocks, most)

    async def keep(self, task: TaskSpec, blocks: Sequence[Slot]) -> str:
        """See :meth:`service.engines.protocol.KeepsBlocks.keep`."""
        return await cast(KeepsBlocks, self.engine).keep(task, blocks)

    async def health(self) -> None:
        """See :meth:`service.engines.protocol.Engine.health`."""
        await self.engine.health()

    def close(self) -> None:
        """See :meth:`service.engines.protocol.Engine.close`."""
        self.engine.close()
