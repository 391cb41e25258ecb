"""A base of engines that pass their calls on, and write out only the methods that they answer otherwise."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from service.engines.protocol import Engine, KeepsBlocks, SetsRoomAside, WritesTogether

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Method:
    """A method of the protocols.

    Attributes:
        name: name of the method.
        slots: name of its parameter that holds private exemplars; None if it sees none.
    """

    name: str
    slots: str | None

    async def ask(self, engine: Engine, arguments: Mapping[str, Any]) -> Any:
        """Call it.

        Args:
            engine: engine that has it.
            arguments: all arguments by name, in order.
        """
        return await getattr(engine, self.name)(*arguments.values())


def _method(name: str, function: Callable[..., Any]) -> Method:
    parameters = inspect.signature(function).parameters.values()
    slots: list[str | None] = [one.name for one in parameters if "Slot" in str(one.annotation)]
    (only,) = slots or [None]
    return Method(name, only)


METHODS: Mapping[str, Method] = {
    name: _method(name, function)
    for protocol in (Engine, SetsRoomAside, WritesTogether, KeepsBlocks)
    for name, function in inspect.getmembers(protocol, inspect.iscoroutinefunction)
}
"""Methods of the protocols by name, except ``close``."""


def _passed_on(
    asked: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PassesOn, P], Coroutine[Any, Any, T]]:
    method, signature = METHODS[asked.__name__], inspect.signature(asked)

    async def passed_on(self: PassesOn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        arguments = signature.bind(self, *args, **kwargs).arguments
        del arguments["self"]
        answer: T = await self.pass_on(method, arguments)
        return answer

    update_wrapper(passed_on, asked)
    return passed_on


class PassesOn(ABC):
    """An engine with all methods of the protocols, by a single one."""

    zero_shot = _passed_on(Engine.zero_shot)
    contributions = _passed_on(Engine.contributions)
    reconstruct = _passed_on(Engine.reconstruct)
    describe = _passed_on(Engine.describe)
    health = _passed_on(Engine.health)
    room = _passed_on(SetsRoomAside.room)
    turn = _passed_on(WritesTogether.turn)
    write = _passed_on(WritesTogether.write)
    keep = _passed_on(KeepsBlocks.keep)

    @abstractmethod
    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        """Answer a call of a method.

        Args:
            method: method that was called.
            arguments: all arguments by name, in order.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds; it must not be asked anything afterwards."""
