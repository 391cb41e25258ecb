"""Whether database and engines are alive, seen once a second in the background.

Requests for readiness and metrics read the last result and wait for nothing, so their duration discloses nothing about
other queries' work. A slow engine counts as alive for a while, so their content discloses nothing about it either.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import sqlalchemy as sa

from accounting.ledger.dialects import insert, reading
from service.engines.protocol import Engine, Steerer
from service.records.database import BUSY_TIMEOUT_S, is_busy
from service.records.tables import heartbeats

_EVERY_S = 1.0
_WRITE_EVERY_S = 5.0
_MISSED_S = 15.0
"""Time without a sign of life after which a part that has not failed outright counts as dead."""

Part = Literal["database", "engine", "restore engine"]


class Heartbeat:
    """Signs of life of the database and the engines. Belongs to one event loop.

    Args:
        database: the database of the records.
        engine: the engine that answers.
        restore_engine: the engine that answers redacted texts, if it is another one.
    """

    def __init__(self, database: sa.Engine, engine: Engine, restore_engine: Steerer | None) -> None:
        self._looks: dict[Part, Callable[[], Awaitable[None]]] = {
            "database": partial(asyncio.to_thread, _Pulse(database).feel),
            "engine": engine.health,
        }
        if restore_engine is not None:
            self._looks["restore engine"] = restore_engine.health
        self._alive_until: dict[Part, float] = {}

    def alive(self, what: Part) -> bool:
        """Whether a part gave a sign of life lately."""
        return time.monotonic() < self._alive_until.get(what, 0.0)

    def missing(self) -> Part | None:
        """The first part without a recent sign of life; None if all gave one."""
        return next((what for what in self._looks if not self.alive(what)), None)

    async def beat(self) -> None:
        """Check each part once."""
        await asyncio.gather(*(self._see(what) for what in self._looks))

    async def keep_beating(self) -> None:
        """Check each part repeatedly, until cancelled, independently: a language model takes minutes to load."""
        await asyncio.gather(*(self._keep_seeing(what) for what in self._looks))

    async def _keep_seeing(self, what: Part) -> None:
        while True:
            await self._see(what)
            await asyncio.sleep(_EVERY_S)

    async def _see(self, what: Part) -> None:
        try:
            async with asyncio.timeout(_MISSED_S):
                await self._looks[what]()
        except TimeoutError:
            return
        except Exception:  # any error counts as no sign of life, and the next look follows
            self._alive_until.pop(what, None)
        else:
            self._alive_until[what] = time.monotonic() + _MISSED_S


class _Pulse:
    """The check of the database: it always reads, and sometimes writes, since a full disk still allows reading."""

    def __init__(self, database: sa.Engine) -> None:
        self._database = database
        self._writes_at = 0.0

    def feel(self) -> None:
        """Check the database once; raises its errors."""
        with reading(self._database) as connection:
            connection.execute(sa.select(1))
        if time.monotonic() >= self._writes_at:
            try:
                self._write()
            except sa.exc.OperationalError as error:
                if not is_busy(error.orig):
                    raise
            self._writes_at = time.monotonic() + _WRITE_EVERY_S

    def _write(self) -> None:
        row = {"number": 1, "at": time.time()}
        dialect = self._database.dialect.name
        beat = insert(dialect, heartbeats).values(row).on_conflict_do_update(index_elements=["number"], set_=row)
        if dialect != "sqlite":
            with self._database.begin() as connection:
                connection.execute(beat)
            return
        # A long write holds this up without being a bad sign. A transaction that only reads takes no lock first.
        with reading(self._database) as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout=0")
            try:
                connection.execute(beat)
                connection.commit()
            finally:
                connection.rollback()
                connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * BUSY_TIMEOUT_S}")
