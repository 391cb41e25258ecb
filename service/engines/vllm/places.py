"""Places in vLLM: how much of its batch and its cache is taken, so that slots that write together always fit.

A slot that writes holds a place in vLLM's batch (``max_num_seqs``) and blocks of its cache from the first token to the
last, also while it waits for the others. If one slot too many began, it would never get a place, the others would wait
for it until the deadline, and all would be silent: one unit more or less would silence every slot. So an answer's slots
begin only when *all* that its plan may draw have places, and prompts of other kinds never take these.

Everything is counted by public numbers: how many slots a plan may draw, how long a slot may be. An answer keeps its
places for a time that was fixed before its sample was drawn, so how long the next answer waits is public, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """The resources of vLLM that are taken.

    Attributes:
        places: places in its batch.
        blocks: blocks of its cache.
    """

    places: int
    blocks: int


class Places:
    """Places that are given in the order in which they were asked for. To be used on one event loop.

    Args:
        places: places in vLLM's batch.
        blocks: blocks of vLLM's cache. A need of more is admitted alone.
    """

    def __init__(self, places: int, blocks: int) -> None:
        self.blocks = blocks
        self._places = places
        self._taken = Need(0, 0)
        self._waiting: deque[tuple[Need, asyncio.Future[None]]] = deque()

    def resize(self, blocks: int) -> None:
        """Change the number of cache blocks; what is taken already stays taken."""
        self.blocks = blocks
        self._admit()

    async def take(self, need: Need) -> None:
        """Wait for places and take them; :meth:`give` returns them."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((need, place))
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled() or not place.done():
                self._waiting = deque(waits for waits in self._waiting if waits[1] is not place)
                self._admit()
            else:
                self.give(need)
            raise

    def give(self, need: Need) -> None:
        """Return places that were taken."""
        self._taken = Need(self._taken.places - need.places, self._taken.blocks - need.blocks)
        self._admit()

    @asynccontextmanager
    async def of(self, need: Need) -> AsyncIterator[None]:
        """Take places for as long as the block runs."""
        await self.take(need)
        try:
            yield
        finally:
            self.give(need)

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            need, place = self._waiting.popleft()
            if place.done():  # its caller has given up
                continue
            self._taken = Need(self._taken.places + need.places, self._taken.blocks + need.blocks)
            place.set_result(None)

    def _fits(self, need: Need) -> bool:
        taken = self._taken
        return taken == Need(0, 0) or (
            taken.places + need.places <= self._places and taken.blocks + need.blocks <= self.blocks
        )


class Turn:
    """The places of one answer's slots: taken until the answer is written, and for a time fixed beforehand at least.

    Args:
        need: places and blocks that were just taken.
        give: returns it.
        takes_s: seconds for which it stays taken, however soon the answer is written.
        unused_s: seconds after which it is returned if the answer is never begun.
    """

    def __init__(self, need: Need, give: Callable[[], None], takes_s: float, unused_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.need = need
        self.lapsed = False
        """Whether it was returned without being used."""
        self._give = give
        self._ends = loop.time() + takes_s
        self._unused = loop.call_later(max(takes_s, unused_s), self._lapse)

    def begin(self) -> None:
        """The answer is being written."""
        self._unused.cancel()

    def end(self) -> None:
        """The answer is written."""
        asyncio.get_running_loop().call_at(self._ends, self._give)

    def _lapse(self) -> None:
        self.lapsed = True
        self._give()
