"""Whether one unit is there must not show in how much work follows the sample: processor time, not the clock.

The unit is the canary of ``benchmarks/latency_attack.py``, as large as ingest takes, and in every sample. The attacker
counts answers whose work exceeds what the latency grain hides, half of it; and where replies are embedded, which is
nearly all of the work, one and a half times the usual. That count must give away the canary where replies are embedded
at answer time, as they once were.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.latency_attack import MECHANISMS, Grain, World, embeddings_at_answer_time, world
from service.answering.latency import Departure
from service.answering.mechanisms.embedding_mean import NearestCandidate
from service.engines.embedding.embedder import Embedder
from tests.privacy.audit import epsilon_lower_bound

pytestmark = pytest.mark.lengthy

ANSWERS = 40
"""Of 40 and 0 exceeding ones the bound on ε is 0.5, of 1 and 0 none; it is wrong once in 10⁸."""


class Stopwatch(Departure):
    """Notes what an answer's private part takes, and waits for nothing."""

    taken: list[float] = []  # noqa: RUF012

    def fix(self, times: float = 1.0, waits_s: float = 0.0) -> None:
        self.started = time.process_time()

    async def wait(self) -> int:
        self.taken.append(time.process_time() - self.started)
        return 0


async def work(side: World, task: str) -> list[float]:
    """Seconds of processor time after the sample, per answer."""
    Stopwatch.taken.clear()
    for number in range(3 + ANSWERS):  # the first ones warm up
        await side.ask(task, f"Where is my parcel number {number}, which I sent back?")
    return Stopwatch.taken[3:]


async def proven(folder: Path, embedder: Embedder, tasks: Iterable[str]) -> dict[str, float]:
    """The lower bound on ε that the answers' work proves, for each task."""
    sides = []
    for canary in (False, True):
        async with world(f"{folder}/{canary}.sqlite", embedder, canary) as side:
            hidden = {one.task.partition("@")[0]: one.grain_s / 2 for one in side.services.grains.report}
            side.services.answering.grains = Grain(1.0)
            sides.append({task: (await work(side, task), hidden[f"kb.{task}"]) for task in tasks})
    return {task: bound(task, *(side[task] for side in sides)) for task in tasks}


def bound(task: str, without: tuple[list[float], float], with_canary: tuple[list[float], float]) -> float:
    taken, hidden = zip(without, with_canary, strict=True)
    threshold = 1.5 * float(np.median(taken[0])) if task == "mean" else max(hidden)
    exceeding = [sum(one > threshold for one in times) for times in taken]
    return epsilon_lower_bound(*exceeding, ANSWERS, delta=1e-5)


@pytest.fixture(scope="module")
def answers_work(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> dict[str, float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.answering.answering.Departure", Stopwatch)
        return asyncio.run(proven(tmp_path_factory.mktemp("work"), embedder, MECHANISMS))


@pytest.mark.parametrize("task", MECHANISMS)
def test_the_largest_unit_does_not_show_in_the_work_of_answers(answers_work: dict[str, float], task: str) -> None:
    assert answers_work[task] == 0


def test_replies_embedded_at_answer_time_would_show(
    tmp_path: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.answering.answering.Departure", Stopwatch)
    monkeypatch.setattr(NearestCandidate, "embeddings", embeddings_at_answer_time)
    assert asyncio.run(proven(tmp_path, embedder, ["mean"]))["mean"] > 0
