"""Who may come in: no more requests than there are places, none when the service stops. Who is inside is answered."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

from service.api.problems import Problem
from service.problem_kinds import ProblemKind

_ALIVE = "/healthz"
_OUTSIDE = frozenset({_ALIVE, "/readyz", "/metrics"})
"""The service's state is reported even when it rejects requests."""


class Doors:
    """Whether requests may come in, and how many are there. Belongs to one event loop.

    They are turned away here, at little cost, and not before: Ray Serve's router queues what exceeds
    `max_ongoing_requests`, and after a burst lets that go one by one.

    Args:
        places: how many requests may be inside at once.
    """

    def __init__(self, places: float = math.inf) -> None:
        self.inside = 0
        self._places = places
        self._closed = False
        self._left = asyncio.Event()

    def check(self, path: str) -> None:
        """Return if a request to this path may come in.

        Raises:
            service.api.problems.Problem: 503, after which the same request reaches another replica or cluster; 429, all
                places are taken.
        """
        if self._closed and path != _ALIVE:  # that the process lives it says to the end
            raise Problem(ProblemKind.STOPPING, "this service is about to stop; ask again", retry_after_s=5)
        if self.inside >= self._places and path not in _OUTSIDE:
            raise Problem(ProblemKind.BUSY, "the service is busy; retry in a second", retry_after_s=1)

    @contextmanager
    def enter(self, path: str) -> Iterator[None]:
        """Take a place until the block ends.

        Raises:
            service.api.problems.Problem: see :meth:`check`.
        """
        self.check(path)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._left.set()

    async def close(self) -> None:
        """Refuse new requests, and return when all that are there are answered."""
        self._closed = True
        while self.inside:
            self._left.clear()
            await self._left.wait()
