"""Whether database and engine are alive, seen once a second in the background.

Requests for readiness and metrics read what was seen last and wait for nothing. So their time tells nothing of other
queries' work; and a slow engine stays alive for a while, so what they say does not tell of it either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import sqlalchemy as sa

from accounting.ledger.compatibility import OLDEST, SchemaError, check
from accounting.ledger.dialects import reading
from service.engines.protocol import Engine

_EVERY_S = 1.0
_MISSED_S = 15.0
"""After so long without a sign of life, what has not failed outright counts as dead."""


class Heartbeat:
    """Signs of life. Belongs to one event loop.

    Args:
        database: the records'.
        engine: what answers.
        clock: seconds, monotonic.
    """

    def __init__(self, database: sa.Engine, engine: Engine, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._engine = engine
        self._clock = clock
        self._alive_until: dict[str, float] = {}
        self.schema_error: SchemaError | None = None
        """Why this code may not write to the database any more."""

    def alive(self, what: Literal["database", "engine"]) -> bool:
        """Whether it gave a sign of life lately."""
        return self._clock() < self._alive_until.get(what, 0.0)

    async def beat(self) -> None:
        """Look at both once."""
        await asyncio.gather(self._see("database", self._ping), self._see("engine", self._engine.health))

    async def keep_beating(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(_EVERY_S)

    async def _see(self, what: str, look: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(_MISSED_S):
                await look()
        except TimeoutError:
            return
        except Exception:  # whatever it is, it is no sign of life, and the next look comes all the same
            self._alive_until.pop(what, None)
        else:
            self._alive_until[what] = self._clock() + _MISSED_S

    async def _ping(self) -> None:
        def ping() -> str | None:
            with reading(self._database) as connection:
                return connection.execute(OLDEST).scalar()

        oldest = await asyncio.to_thread(ping)
        try:
            check(oldest)
        except SchemaError as error:
            self.schema_error = error
        else:
            self.schema_error = None
