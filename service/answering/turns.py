"""Turns: the engine works on one question at a time, and public things alone decide when each begins.

Each call of the engine is made in a turn, and the service asks nothing else of it meanwhile:

- *A private answer's* turn has its public probe, and then its private part, whose end is private. So the turn ends when
  the largest slots would be done, as measured (:mod:`service.answering.measured_grains`).
- *Every other call's* turn ends when the call does: a question to be embedded or rewritten, a text to be sanitised or
  restored, a trial, an answer of a one-time release, a measurement. Nothing private is computed beside it, so its time
  reveals nothing.

So private parts are not slowed by each other, and no call shows how long a private part takes, however many there are.
"""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from typing_extensions import override

from service.answering.latency import on_grain
from service.engines.errors import EngineBusyError

_LONGEST_S = 3600.0


class Turns:
    """Turns, in the order in which they were asked for. Those of a service that runs as several processes are remote.

    Times are those of the event loop's clock, which all loops of a process share.
    """

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()
        self._number = secrets.randbits(48)  # no turn of an earlier process is taken for one of this
        self._ends = 0.0  # of the latest turn
        self._ends_about = 0.0
        self._waiting_s = 0.0

    async def begin(self, about_s: float, most_s: float) -> int:
        """Wait for a turn: its number.

        Args:
            about_s: seconds that it is likely to last.
            most_s: seconds after which it ends even if it was not ended: the process that took it may be gone.
        """
        self._waiting_s += about_s
        try:
            async with self._queue:
                while (left := self._ends - self._now()) > 0:
                    self._changed = asyncio.Event()
                    await _either(self._changed, left)
        finally:
            self._waiting_s -= about_s
        self._number += 1
        self._ends = self._now() + most_s
        self._ends_about = self._now() + about_s
        return self._number

    async def end(self, number: int, after_s: float = 0.0) -> None:
        """End a turn.

        Args:
            number: the turn.
            after_s: seconds from now; until then no other begins.
        """
        if number == self._number:
            self._ends = self._ends_about = self._now() + after_s
            self._changed.set()

    async def wait_s(self) -> float:
        """About how many seconds one would wait for a turn now."""
        return max(0.0, min(self._ends, self._ends_about) - self._now()) + self._waiting_s

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class NoTurns(Turns):
    """Everything at once: for a service whose latency is not padded, and public work on a machine of one's own."""

    @override
    async def begin(self, about_s: float, most_s: float) -> int:
        return 0


class Turn:
    """A turn that was taken.

    Args:
        turns: the turns that it is one of.
        number: number of the turn.
    """

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number
        self._ended = False

    async def end(self, after_s: float = 0.0) -> None:
        """End it after some seconds, whatever happens until then. Only the first call counts."""
        if not self._ended:
            self._ended = True
            await self._turns.end(self._number, after_s)


@asynccontextmanager
async def turn(
    turns: Turns, *, about_s: float = 0.0, patience_s: float = math.inf, most_s: float = _LONGEST_S
) -> AsyncIterator[Turn]:
    """A turn, which ends with the block, unless it was given another end.

    Args:
        turns: the turns that it is one of.
        about_s: seconds that it is likely to last.
        patience_s: seconds to wait for it.
        most_s: seconds after which it ends in any case.

    Raises:
        EngineBusyError: too many others have theirs first.
    """
    try:
        async with asyncio.timeout(None if patience_s == math.inf else patience_s):
            taken = Turn(turns, await turns.begin(about_s, most_s))
    except TimeoutError:
        raise EngineBusyError("other questions are being answered") from None
    try:
        yield taken
    finally:
        await taken.end()


@asynccontextmanager
async def free_call(turns: Turns, grain_s: float, patience_s: float) -> AsyncIterator[None]:
    """A call of the engine or the embedder that is not a private answer: in a turn, and over after whole grains.

    Args:
        turns: the turns that it takes one of.
        grain_s: latency grain; 0 does not wait.
        patience_s: seconds to wait for the turn.

    Raises:
        EngineBusyError: too many others have theirs first.
    """
    async with on_grain(grain_s), turn(turns, patience_s=patience_s):
        yield


async def _either(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
