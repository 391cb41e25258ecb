"""The latency grain of 100 slots of 4 exemplars without a language model, where exemplars have at most 4 KiB.

It follows from a measurement with made-up slots that are as large as any can be. Here that counts processor time, which
other programs hardly affect. Once a slot shows all that it draws, once it shows the 4 nearest to the question of 20. A
commit that knows no largest exemplar but one of 16 KiB measures with that. At 081669d2 a grain was twice the work; now
it is four times that, for machines that become busy. So the work is what compares.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from accounting.plans.plan import CalibratedPlan, EpsilonRange, TaskNoise, load_plan
from accounting.privacy.profiles import Gaussian
from exemplar_store import Row, made_up
from service.answering import measured_grains
from service.answering.plans.signing import sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.operations.services import open_services
from service.records.records import open_records
from service.settings import Settings

TARGETS = {"work": 4.0, "work, nearest": 2.0}
PLAN = "knowledge_base: calls\nbudget: {epsilon: 3, delta: 1.0e-5}\naccountant: pld\ntasks:\n"
TASK = """
  NAME:
    kind: classify
    labels: [late, lost, broken, other]
    prompt: {instruction: "Sort.", exemplar: "{text}: {label}", query: "{text}:"}
    shots: 4
    ensemble: SLOTS
    answers: 10
    mechanism: {type: rnm_gaussian, vote: soft}
"""
TASKS = {"topic": "    max_exemplars: 4\n", "near": "    order: nearest\n    drawn: 10\n    max_exemplars: 20\n"}
BYTES = 4096


class RandomVectors:
    """An embedder whose embeddings mean nothing."""

    def embed(self, texts: Sequence[str | None]) -> np.ndarray:
        """Unit vectors, float32 (texts, 384)."""
        vectors = np.random.default_rng(1).normal(size=(len(texts), 384)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    embed_many = embed_bounded = embed


async def main() -> None:
    """Measure a task of each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer slots")
    slots = "10" if parser.parse_args().quick else "100"
    tasks = (TASK.replace("NAME", name).replace("SLOTS", slots) + more for name, more in TASKS.items())
    plan = load_plan(PLAN + "".join(tasks))
    for module in (measured_grains, made_up):
        module.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'grain.sqlite')}"
        records = open_records(Settings(database_url=url, development=True, witness_url="none"))
        of = {"epsilon": 8, "delta": 1e-3, "public_size": 8000, "fields": ["text", "label"], "embedded_field": "text"}
        if "max_exemplar_bytes" in inspect.signature(records.create_knowledge_base).parameters:
            of["max_exemplar_bytes"] = BYTES
        records.create_knowledge_base("calls", **of)
        embedder = RandomVectors()
        records.store.ingest("calls", [Row(1, "u", {"text": "text", "label": "late"})], embedder.embed)
        # The noise is fixed by hand: this plan protects nothing.
        noise = TaskNoise(sampling_probability=0.01, mechanism=Gaussian(10.0))
        parts = {"noise": dict.fromkeys(plan.tasks, noise), "epsilon": {"pld": EpsilonRange(lower=0.0, upper=3.0)}}
        sign(records, CalibratedPlan(plan=plan, public_size=8000, unsupported={}, **parts), "benchmark")
        services = open_services(records, NearestExemplarEngine(embedder), embedder)
        measured = {one.task: one for one in await services.grains.all()}
        records.database.dispose()
    figures = {}
    for task, name in (("topic", "grain"), ("near", "grain, nearest")):
        (found,) = (one for address, one in measured.items() if f".{task}@" in address)
        figures |= {name: found.grain_s, name.replace("grain", "work"): found.work_s}
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main())
