"""A rehearsal, attacked: one unit that decides every answer it takes part in.

The slots of others abstain, so the canary's vote alone stands against the noise, and an answer that was wrong about as
often as the noise leaves it so becomes right about as often. What is claimed is held against the counts that leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import aggregation.rehearsal
import service.pipeline.rehearsing
from accounting.plan import TaskNoise, load_plan
from accounting.privacy.profiles import Gaussian
from aggregation.rehearsal import Rehearsal
from exemplar_store import Exemplar, Slot
from service.engines.protocol import TaskSpec, ZeroShot
from service.pipeline.queries import task_spec
from service.pipeline.rehearsing import count
from service.pipeline.stages import Stages
from tests.privacy.audit import Verdict, claim, judge, observe
from tests.privacy.planting import Edit, plant
from tests.service.conftest import EMBEDDER, MajorityEngine

PLAN = """
knowledge_base: attacked
budget: {epsilon: 1, delta: 1.0e-3}
tasks:
  colour:
    kind: classify
    labels: [red, blue]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 2
    ensemble: 1
    max_exemplars: 500
    answers: 20
    mechanism: {type: rnm_gaussian, decide: argmax, prior_weight: 0.5}
"""
VOTES = Gaussian(0.36)  # of an answer: the canary's vote is twice as far as the noise
COUNTS = Gaussian(2.0)
TRIALS, QUESTIONS, UNITS, ASKING = 100, 30, 400, 0.1


class Canary(MajorityEngine):
    """A slot says red if the canary is in it, and nothing else. Zero-shot says blue."""

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        return ZeroShot(np.array([0.0, 1.0]))

    def _vote(self, task: TaskSpec, slot: Slot) -> np.ndarray | None:
        return np.array([1.0, 0.0]) if any("canary" in one.fields["text"] for one in slot) else None


def rehearse(units: Sequence[Slot]) -> Callable[[], bool]:
    """Whether half of the questions were answered rightly, by the count that leaves."""
    task: Any = load_plan(PLAN).tasks["colour"]
    spec = task_spec("attacked.colour", task, "a rehearsal", "text", response_field=None, asker="")
    noise = TaskNoise(sampling_probability=0.9, mechanism=VOTES)
    rehearsal = Rehearsal(COUNTS.noise_multiplier, QUESTIONS, 0.9, float(VOTES.delta(0.0)))
    stages = Stages(Canary(), EMBEDDER, 60.0)

    def once() -> bool:
        counts = asyncio.run(count(units, ASKING, task, noise, spec, stages, rehearsal))
        released = rehearsal.release(counts)
        return released.right > QUESTIONS / 2

    return once


def audit() -> list[Verdict]:
    others = [(Exemplar({"text": f"toy {i}", "label": "red"}),) for i in range(UNITS)]
    canary = (Exemplar({"text": "canary", "label": "red"}),)
    return judge(observe(rehearse(others), rehearse([*others, canary]), TRIALS), claim(COUNTS), (0.0, 0.5, 1.0))


@pytest.fixture(autouse=True)
def fewer_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two answers to a question: the proof holds for any number, and this is quicker."""
    for module in (aggregation.rehearsal, service.pipeline.rehearsing):
        monkeypatch.setattr(module, "REPEATS", 2)


def test_the_claim_survives_a_unit_that_decides_every_answer() -> None:
    assert not any(verdict.caught for verdict in audit())


def test_forgetting_that_one_unit_answers_many_questions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    where = "aggregation.rehearsal:Rehearsal.sensitivity"
    passage = "most_turned(self.most * REPEATS, self.change) / REPEATS"
    plant(Edit(where, passage, "1.0"), monkeypatch)
    assert any(verdict.caught for verdict in audit())
