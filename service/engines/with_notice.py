"""An engine with a notice on the deployment in its description, which every answer, preview and budget repeats."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from service.engines.passing_on import Method, PassesOn
from service.engines.protocol import Engine, EngineInfo


@dataclass(eq=False, repr=False)
class WithNotice(PassesOn):
    """An engine with a notice.

    Attributes:
        engine: engine that answers.
        notice: text put before the engine's own notice.
    """

    engine: Engine
    notice: str

    @override
    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        return await method.ask(self.engine, arguments)

    @override
    async def describe(self) -> EngineInfo:
        told = await self.engine.describe()
        return replace(told, notice=f"{self.notice} {told.notice}")

    @override
    def close(self) -> None:
        self.engine.close()
