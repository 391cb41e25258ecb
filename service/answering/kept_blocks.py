"""Blocks of exemplars that the engine has read before any answer draws them.

A block's prompt begins alike whatever is asked. An engine that keeps blocks (:class:`KeepsBlocks`) has read all of a
task's before the first answer, and reads them again after exemplars were stored or deleted, as the audit trail shows.
Then the time of an answer depends on its question only, not on what it draws or what was drawn before. What can be
timed:

- *Reading ahead* takes a time that depends on private lengths. So questions go on after a whole number of grains, from
  what reading as many made-up blocks took, as large as any can be. If units were only forgotten since, as many blocks
  are counted as units were forgotten: each unit is in one.
- It begins when each answer that was charged before has left, and takes a turn (:mod:`.turns`). So it slows no private
  part, and none slows it. When it begins and what it holds up is public.
- *A block that changed* after it was read, and before it is drawn, abstains: reading it now would show. It is at most
  one for each unit that was forgotten or replaced meanwhile. Whether a block was read depends on its own exemplars
  alone, so one unit still changes one contribution. Units that arrive meanwhile are not drawn.
- *Room* for all blocks is set aside by public numbers, and nothing evicts what is kept. Without room no answer relies
  on it: the grain is that of cold caches, and the measurement shows why.
"""

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

from accounting.ledger.budgets import SignedTask
from accounting.ledger.events import UnitForgotten, UploadEnded
from accounting.ledger.trail import AuditTrail
from exemplar_store import ExemplarStore
from service.answering.draw import draw_signed
from service.answering.latency import SMALLEST_S, Measured, on_grain
from service.answering.queries import described_spec
from service.answering.stages import Stages
from service.answering.turns import turn
from service.engines.errors import EngineBusyError, EngineUnavailableError
from service.engines.private_threads import privately
from service.engines.protocol import KeepsBlocks
from service.records.signed import identity, read_task

_CHANGES = (UploadEnded.kind, UnitForgotten.kind)
_ROOMY = 1.5  # times what the largest blocks take


@dataclass(frozen=True)
class Held:
    """The state of a task's blocks that an answer relies on.

    Attributes:
        kept: see :attr:`service.engines.task.TaskSpec.kept`.
        arrived: number of units when the blocks were read; none of the blocks has a unit that came later.
    """

    kept: str = ""
    arrived: int | None = None


@dataclass
class _State:
    read_to: int | None = None  # the audit trail's event up to which the blocks are as they are kept
    held: Held = field(default_factory=Held)
    answering: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Task[None] | None = None


class KeptBlocks:
    """The blocks of tasks, which it has the engine read ahead.

    Args:
        stages: stages that answer; their engine keeps a task's blocks if the task's measurement counts some.
        store: exemplar store with the blocks.
        audit: audit trail, which shows when exemplars changed.
    """

    def __init__(self, stages: Stages, store: ExemplarStore, audit: AuditTrail) -> None:
        self._stages = stages
        self._store = store
        self._audit = audit
        self._states: dict[tuple[int, str, str], _State] = {}

    @asynccontextmanager
    async def held(self, task: SignedTask, measured: Measured) -> AsyncIterator[Held]:
        """The task's blocks as they are now, which stay until the answer has left.

        Raises:
            service.engines.errors.EngineBusyError: they are being read, which takes longer than an answer may.
            service.engines.errors.EngineUnavailableError: they could not be read.
        """
        if not measured.blocks:
            yield Held()
            return
        state = await self._current(task, measured, self._stages.timeout_s)
        state.answering += 1
        try:
            yield state.held
        finally:
            state.answering -= 1
            state.left.set()

    async def read(self, task: SignedTask, measured: Measured) -> None:
        """Read the task's blocks ahead if it keeps any, however long that takes; errors as of :meth:`held`."""
        if measured.blocks:
            await self._current(task, measured, None)

    def lost(self, task: SignedTask) -> None:
        """The engine has started anew, without what it kept."""
        self._states.pop(identity(task), None)

    async def _current(self, task: SignedTask, measured: Measured, wait_s: float | None) -> _State:
        state = self._states.setdefault(identity(task), _State())
        while await asyncio.to_thread(self._changed, task, measured, state) or state.reading is not None:
            if state.reading is None:
                reading = self._read(task, measured, state)
                state.reading = asyncio.create_task(reading, context=contextvars.Context())
                state.reading.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            try:
                await asyncio.wait_for(asyncio.shield(state.reading), wait_s)
            except TimeoutError:
                raise EngineBusyError("the exemplars have changed, and are read first") from None
        return state

    def _changed(self, task: SignedTask, measured: Measured, state: _State) -> int:
        """Number of blocks that may differ from when they were read."""
        if state.read_to is None:
            return measured.blocks
        name = task.knowledge_base
        events = self._audit.events(after=state.read_to, kinds=_CHANGES, knowledge_base=name, limit=measured.blocks)
        if any(event.kind != UnitForgotten.kind for event in events):
            return measured.blocks
        return len(events)

    async def _read(self, task: SignedTask, measured: Measured, state: _State) -> None:
        try:
            while state.answering:
                state.left.clear()
                await state.left.wait()
            changed = await asyncio.to_thread(self._changed, task, measured, state)
            grain_s = max(SMALLEST_S, _ROOMY * (measured.rows_s + changed * measured.block_s))
            held = None
            async with turn(self._stages.turns, about_s=grain_s), on_grain(grain_s):
                with suppress(Exception):
                    async with asyncio.timeout(4 * grain_s + self._stages.timeout_s):
                        read_to, held = await self._keep(task)
            if held is None:  # why may depend on what was read
                raise EngineUnavailableError("the exemplars could not be read ahead")
            state.read_to, state.held = read_to, held
        finally:
            state.reading = None

    async def _keep(self, signed: SignedTask) -> tuple[int, Held]:
        newest = await asyncio.to_thread(self._audit.end)  # before anything is read
        task, _ = read_task(signed)
        described = await asyncio.to_thread(self._store.get, signed.knowledge_base)
        arrived = described.arrived
        slots = await privately(
            lambda: draw_signed(self._store, signed, arrived=arrived, embeddings=False, all_blocks=True)
        )
        keeper = cast(KeepsBlocks, self._stages.engine)
        kept = await keeper.keep(described_spec(signed.address, task, described, asker=""), slots)
        return newest.sequence, Held(kept, arrived)
