"""Stopping without losing anything: new requests are refused, and those that are there are finished."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.problems import Problem

_RETRY_AFTER_S = 5


class Doors:
    """Whether requests may come in, and how many are there. Belongs to one event loop."""

    def __init__(self) -> None:
        self.inside = 0
        self._closed = False
        self._left = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether new requests are refused."""
        return self._closed

    def leave(self) -> None:
        """A request is answered."""
        self.inside -= 1
        self._left.set()

    async def close(self) -> None:
        """Refuse new requests, and return when all that are there are answered."""
        self._closed = True
        while self.inside:
            self._left.clear()
            await self._left.wait()


class Watched:
    """An ASGI middleware: lets requests in through the doors. That the process lives it says to the end."""

    def __init__(self, app: ASGIApp, *, doors: Doors) -> None:
        self._app = app
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request.

        Raises:
            service.api.problems.Problem: 503, after which the same request reaches another replica or cluster.
        """
        if scope["type"] != "http" or scope["path"] == "/healthz":
            await self._app(scope, receive, send)
            return
        if self._doors.closed:
            raise Problem(503, "stopping", "this service is about to stop; ask again", retry_after_s=_RETRY_AFTER_S)
        self._doors.inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._doors.leave()
