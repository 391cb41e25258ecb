"""Whether a unit is present must not show in the work that follows the sample, measured in processor time.

The unit is the canary of ``benchmarks/latency_attack.py``, as large as ingest takes, and in every sample. The attacker
counts the answers whose work exceeds half of the latency grain, which the grain hides; or, where embedding replies is
nearly all of the work, two and a half times the usual. That count must give the canary away where a planted bug embeds
replies at answer time.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from benchmarks.latency_attack import MECHANISMS, Grain, World, embeddings_at_answer_time, world
from service.answering.latency import Departure
from service.answering.mechanisms.embedding_mean import NearestCandidate
from service.engines.embedding.embedder import Embedder
from tests.privacy.audit import epsilon_lower_bound

pytestmark = pytest.mark.lengthy

FIRST, ANSWERS = 8, 64
"""The number of answers after which the attacker gives up, unless a third of them differ, and that of all answers.

If 64 answers exceed the threshold with one neighbour, the bound on ε is 1.1 if none does with the other, and 0.33 if 12
do: on a busy machine some take twice the usual time. The bound is wrong once in 10⁸.
"""
LATE_EMBEDDING = "replies embedded at answer time"


class Stopwatch(Departure):
    """A departure that notes the processor time of an answer's private part, and does not wait."""

    taken: list[float] = []
    asked = count(1)

    def fix(self, times: float = 1.0) -> None:
        self.started = time.process_time()

    async def wait(self) -> int:
        self.taken.append(time.process_time() - self.started)
        return 0


async def work(side: World, task: str, answers: int) -> list[float]:
    """Seconds of processor time after the sample, per answer."""
    Stopwatch.taken.clear()
    for _ in range(answers):
        await side.ask(task, f"Where is my parcel number {next(Stopwatch.asked)}, which I sent back?")
    return [*Stopwatch.taken]


async def proven(folder: Path, embedder: Embedder, patch: pytest.MonkeyPatch) -> dict[str, float]:
    """The lower bound on ε that the answers' work proves, for each task and for the bug."""
    async with (
        world(f"{folder}/without.sqlite", embedder, False) as without,
        world(f"{folder}/with.sqlite", embedder, True) as with_canary,
    ):
        sides = (without, with_canary)
        grains = [(one.task.partition("@")[0], one.grain_s) for side in sides for one in side.services.grains.report]
        for side in sides:
            side.services.answering.grains = Grain(1.0)
        found = {}
        for task in MECHANISMS:
            found[task] = await bound(sides, task, max(grain for name, grain in grains if name == f"kb.{task}") / 2)
        with patch.context() as bug:
            bug.setattr(NearestCandidate, "embeddings", embeddings_at_answer_time)
            found[LATE_EMBEDDING] = await bound(sides, "mean", 0.0)
        return found


async def bound(sides: tuple[World, World], task: str, hidden: float) -> float:
    for side in sides:
        await work(side, task, 3)  # the first ones warm up
    taken: tuple[list[float], list[float]] = ([], [])
    for answers in (FIRST, ANSWERS):
        for side, times in zip(sides, taken, strict=True):
            times += await work(side, task, answers - len(times))
        threshold = 2.5 * float(np.median(taken[0])) if task == "mean" else hidden
        without, with_canary = (sum(one > threshold for one in times) for times in taken)
        if abs(with_canary - without) < answers / 3:
            return 0.0
    return epsilon_lower_bound(without, with_canary, ANSWERS, delta=1e-5)


@pytest.fixture(scope="module")
def answers_work(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> dict[str, float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.answering.answering.Departure", Stopwatch)
        return asyncio.run(proven(tmp_path_factory.mktemp("work"), embedder, patch))


@pytest.mark.parametrize("task", MECHANISMS)
def test_the_largest_unit_does_not_show_in_the_work_of_answers(answers_work: dict[str, float], task: str) -> None:
    assert answers_work[task] == 0


def test_replies_embedded_at_answer_time_would_show(answers_work: dict[str, float]) -> None:
    assert answers_work[LATE_EMBEDDING] > 0
