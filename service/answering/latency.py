"""The time of an answer: a whole number of *grains* from its charge, fixed before its private sample is drawn.

The number depends on public things only: how long the public probe took. What follows the sample has at least half a
grain, and 0.3 s where grains are short. No task is served whose largest possible slots take longer than half a grain
(:mod:`service.answering.measured_grains`).
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from accounting.ledger.budgets import SignedTask
from service.problem_kinds import ProblemKind, RefusalError

UNPADDED = "Latency is not padded here: how long an answer takes can reveal private exemplars."

SMALLEST_S = 0.4
"""The shortest grain that is chosen where none is set."""

_ROOMY = 2.0  # times what the largest slots took when they were measured: a busy machine is slower
_LEAST_ROOM_S = 0.3  # for private work, however short: requests and other programs hold it up for fractions of a second
_TURN = 1.5

_TWICE_AS_LONG = 4096  # tokens before it with which a token takes no more than twice as long, in models of any size

_BEAT_S = 0.005
_BEHIND_S = 0.005  # a request takes the loop about as long


async def calm(within_s: float) -> None:
    """Wait until the event loop keeps time, at most some seconds: a burst of requests delays whatever comes after it.

    Args:
        within_s: seconds; 0 does not wait.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + within_s
    while (began := loop.time()) < ends:
        await asyncio.sleep(_BEAT_S)
        if loop.time() - began < _BEAT_S + _BEHIND_S:
            return


class GrainTooSmallError(RefusalError, RuntimeError):
    """The latency grain does not hide what a task's largest slots take; nothing was charged."""

    kind = ProblemKind.LATENCY_GRAIN_TOO_SMALL


@dataclass(frozen=True, kw_only=True)
class Work:
    """The measured work of a task's largest slots.

    Attributes:
        work_s: seconds from the sample to the release, the median of a few runs.
        tokens: length of the measured question's prompt without exemplars; 0 where the engine counts no tokens.
        typical_s: seconds with slots of an ordinary length; 0 unless a language model in the deployment was measured.
        block_s: seconds to read the largest block ahead, not part of ``work_s``; 0: ``work_s`` is with cold caches.
        cold: why blocks are not kept, although the task draws blocks, and what to do; empty if they are.
        repeats: see :attr:`service.engines.task.ZeroShot.repeats`.
    """

    work_s: float = 0.0
    tokens: int = 0
    typical_s: float = 0.0
    block_s: float = 0.0
    cold: str = ""
    repeats: float | None = None


@dataclass(frozen=True)
class Measured(Work):
    """The same with the task's grain.

    Attributes:
        task: address of the task.
        grain_s: seconds; set by the operator, or chosen.
        problem: why the task cannot be served with this grain; empty if it can.
        unusable: whether that is because the language model replies with nothing to use.
        beside: tokens of exemplars that were computed in each prompt with the question.
        chosen: whether the grain was chosen, as the smallest that suffices.
        blocks: number of blocks that the engine is to keep (:mod:`service.answering.kept_blocks`); 0: it keeps none.
        rows_s: seconds to read the rows of all blocks.
    """

    task: str
    grain_s: float
    problem: str = ""
    unusable: bool = False
    beside: int = 0
    chosen: bool = False
    blocks: int = 0
    rows_s: float = 0.0

    @property
    def turn_s(self) -> float:
        """Seconds that the private part of an answer has to itself, if its question is no longer than the measured."""
        return _TURN * self.work_s

    def times(self, tokens: int) -> float:
        """How much longer slots may take for a question of this many tokens: a factor of 1 or more.

        Only the prompts that show the question grow with it. They grow in proportion to what is computed, and each
        token is compared with those before it.
        """
        if not self.tokens or tokens <= self.tokens:
            return 1.0
        return (tokens + self.beside) / (self.tokens + self.beside) * (1 + (tokens - self.tokens) / _TWICE_AS_LONG)


class Departure:
    """When one answer leaves. Made when its charge is durable, or before if its question is embedded before.

    Args:
        grain_s: seconds; 0 does not wait.

    Attributes:
        over: whether it has left.
    """

    def __init__(self, grain_s: float) -> None:
        self._grain_s = grain_s
        self._charged = asyncio.get_running_loop().time()
        self._grains = 1
        self.over = False

    def fix(self, times: float = 1.0) -> None:
        """Fix the number of grains, once the public part is over: what comes now has half of one and 0.3 s, at least.

        Args:
            times: factor of the work, for a question that is longer than the measured one.
        """
        if self._grain_s > 0:
            public = (asyncio.get_running_loop().time() - self._charged) / self._grain_s
            self._grains = max(1, math.ceil(public + max(0.5 * times, _LEAST_ROOM_S / self._grain_s)))

    async def wait(self) -> int:
        """Wait until the answer may leave.

        Returns:
            By how many grains it comes late, since its work took longer than it had; 0 if the promise holds.
        """
        self.over = True
        if self._grain_s <= 0:
            return 0
        loop = asyncio.get_running_loop()
        late = max(0, math.ceil((loop.time() - self._charged) / self._grain_s) - self._grains)
        await asyncio.sleep(self._charged + (self._grains + late) * self._grain_s - loop.time())
        return late

    async def wait_for_refusal(self) -> None:
        """Wait until what nothing private was drawn for may leave, unless the answer has left."""
        if not self.over:
            self.fix()
            await self.wait()


@asynccontextmanager
async def on_grain(grain_s: float) -> AsyncIterator[None]:
    """Let free and public work end after a whole number of grains, however it ends: private work may hold it up.

    Args:
        grain_s: seconds; 0 does not wait.
    """
    departure = Departure(grain_s)
    try:
        yield
    finally:
        await departure.wait()


class Grains:
    """The grain of each task: none at all, unless they are measured (:mod:`service.answering.measured_grains`)."""

    report: Sequence[Measured] | None = ()
    """The measured tasks that matter; None before they were measured."""

    async def of(self, task: SignedTask) -> Measured:
        """The measured work with the grain; a grain of 0 where latency is not padded.

        Raises:
            GrainTooSmallError: no grain, or not the one that is set, hides what the task's largest slots take.
            service.engines.errors.EngineUnavailableError: the work could not be measured: the engine does not answer.
            service.engines.errors.UnusableReplyError: the work could not be measured: its replies are unusable.
        """
        return Measured(task.address, 0.0)

    async def all(self) -> Sequence[Measured]:
        """Measure every task that has answers left, and report."""
        return ()

    async def again(self) -> None:
        """Measure tasks again whose time has come."""

    def overran(self, task: SignedTask) -> None:
        """An answer took longer than its grain: the machine is slower than it was, so measure again."""


def smallest_grain_s(work_s: float) -> float:
    """The smallest grain of two significant digits that is chosen: half of it is twice the work.

    Args:
        work_s: seconds of work that it is to hide.
    """
    wanted = max(2 * _ROOMY * work_s, SMALLEST_S)
    digit = 10.0 ** (math.floor(math.log10(wanted) + 1e-9) - 1)
    return round(math.ceil(wanted / digit - 1e-9) * digit, 9)
