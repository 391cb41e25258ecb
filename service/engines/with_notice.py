"""An engine whose description says something of the deployment, which every answer, preview and budget then repeats."""

from dataclasses import replace
from typing import Any, cast

from service.engines.protocol import Engine, EngineInfo


def with_notice(engine: Engine, notice: str) -> Engine:
    """The engine with a notice put before its own."""
    return cast(Engine, _WithNotice(engine, notice))


class _WithNotice:
    """All but its description is the engine's."""

    def __init__(self, engine: Engine, notice: str) -> None:
        self.engine, self._notice = engine, notice

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def describe(self) -> EngineInfo:
        told = await self.engine.describe()
        return replace(told, notice=f"{self._notice} {told.notice}")
