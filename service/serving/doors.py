"""The doors of a node that may depart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from service.gateway.api.gate import Doors
from service.serving.departure import WorkInHand


class NodesDoors(Doors):
    """Doors that close when their node is about to go, and hold its departure up while requests are inside.

    Args:
        places: see :class:`service.gateway.api.gate.Doors`.
        in_hand: this process's work.
    """

    def __init__(self, places: float, in_hand: WorkInHand) -> None:
        super().__init__(places)
        self._in_hand = in_hand

    @property
    @override
    def closed(self) -> bool:
        return super().closed or self._in_hand.leaving

    @contextmanager
    @override
    def enter(self, path: str) -> Iterator[None]:
        with super().enter(path), self._in_hand.piece():
            yield
