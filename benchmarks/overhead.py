"""The cost of an answer with 100 slots without the engine: sampling, aggregation and the ledger on SQLite.

The engine here answers at once, so what is left is the service's own work. The baseline is the least that a durable
ledger needs: two committed transactions of one row each on the same disk (the charge, and its settlement).

Then the same application serves over HTTP, in a process of its own. There the figure is the processor time of the whole
process, including threads and background work. Its baseline is a GET of /healthz, which asks nothing.

    python benchmarks/overhead.py [--answers 300] [--units 8000] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import numpy as np
import psutil
import uvicorn

from accounting.plans.plan import CalibratedPlan, EpsilonRange, TaskNoise, load_plan
from accounting.privacy.profiles import Gaussian
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import Layout, Slot
from service.answering.plans.signing import sign
from service.engines.protocol import EngineInfo
from service.engines.task import TaskSpec, ZeroShot
from service.operations.services import Services, open_services
from service.records.records import open_records
from service.serving.web import create_app
from service.settings import Settings

PLAN = Path(__file__).parents[1] / "research" / "studies" / "agnews.yaml"


class InstantEngine:
    """Answers every slot at once with the same probabilities."""

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        return ZeroShot(np.full(len(task.labels), 1 / len(task.labels)))

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | None]:
        return [np.array([0.4, 0.3, 0.2, 0.1]) if slot else None for slot in slots]

    async def describe(self) -> EngineInfo:
        return EngineInfo("instant", "none needed", False, "for this benchmark", reads_embeddings=True)

    async def health(self) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--units", type=int, default=8000)
    parser.add_argument("--quick", action="store_true", help="20 answers, 1,000 units")
    options = parser.parse_args()
    if options.quick:
        options.answers, options.units = 20, 1_000
    with tempfile.TemporaryDirectory() as folder:
        baseline = two_commits(Path(folder), options.answers)
        stages, whole = pipeline(opened(Path(folder) / "stages", options.units), options.answers)
        requests, of_answers = over_http(Path(folder) / "http", options.answers, options.units)
    print(f"{options.answers} answers, 100 slots of 4 exemplars with embeddings, {options.units} units; milliseconds")
    print(f"{'':34}{'median':>8}{'p95':>8}{'ratio':>8}")
    row("baseline: two durable commits", baseline, baseline)
    for name, times in stages.items():
        row(f"  {name}", times, baseline)
    row("an answer, all but the engine", whole, baseline)
    print(f"Over HTTP, processor milliseconds of the whole process: {of_answers:.2f} an answer, ", end="")
    print(f"{requests:.2f} a GET /healthz (ratio {of_answers / requests:.1f})")


def row(name: str, times: list[float], baseline: list[float]) -> None:
    median = statistics.median(times)
    print(f"{name:34}{median:8.2f}{np.percentile(times, 95):8.2f}{median / statistics.median(baseline):8.2f}")


def two_commits(folder: Path, repeats: int) -> list[float]:
    connection = sqlite3.connect(folder / "baseline.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, state TEXT)")
    times = []
    for number in range(repeats):
        started = time.perf_counter()
        connection.execute("INSERT INTO charges VALUES (?, 'charged')", (number,))
        connection.execute("UPDATE charges SET state = 'released' WHERE id = ?", (number,))
        times.append(1000 * (time.perf_counter() - started))
    connection.close()
    return times


def opened(folder: Path, units: int) -> Services:
    """Services over a knowledge base with a signed task, in a database of its own."""
    folder.mkdir()
    records = open_records(
        Settings(database_url=f"sqlite:///{folder}/bench.sqlite", development=True, latency_unpadded=True)
    )
    records.create_knowledge_base(
        "agnews", epsilon=8, delta=1e-3, public_size=units, fields=["text", "label"], embedded_field="text"
    )
    generator = np.random.default_rng(0)
    layout = Layout(("text", "label"))
    rows = (
        layout.row(i, {"unit_id": f"u{i}", "text": f"{i} " + "words of an article " * 10, "label": "World"})
        for i in range(units)
    )
    records.store.ingest("agnews", rows, lambda texts: unit_vectors(generator, len(texts)))
    plan = load_plan(PLAN.read_text())
    noise = {"topic": TaskNoise(sampling_probability=400 / units, mechanism=Gaussian(10.0))}
    # The noise is fixed by hand: calibration is not what is measured, and this plan protects nothing.
    sign(
        records,
        CalibratedPlan(
            plan=plan,
            public_size=units,
            noise=noise,
            epsilon={"pld": EpsilonRange(lower=0.0, upper=3.0)},
            unsupported={},
        ),
        "benchmark",
    )
    return open_services(records, InstantEngine(), RandomVectors(generator))


def pipeline(services: Services, answers: int) -> tuple[dict[str, list[float]], list[float]]:
    records = services.records
    stages: dict[str, list[float]] = {}
    timed(stages, "look up the task", records.ledger.budgets, "task")
    timed(stages, "charge", records.ledger, "charge")
    timed(stages, "of it, having it witnessed", records.witness, "catch_up")
    timed(stages, "sample slots", records.store, "sample_slots")
    timed(stages, "votes and noise", RnmGaussian, "noisy_votes")
    timed(stages, "store the release", records.ledger, "release")
    whole = []

    async def ask_all() -> None:
        for number in range(answers):
            started = time.perf_counter()
            await services.answering.answer("agnews.topic", json.dumps(number), key_id="bench")
            whole.append(1000 * (time.perf_counter() - started))

    asyncio.run(ask_all())
    records.database.dispose()
    return stages, whole


def over_http(folder: Path, answers: int, units: int) -> tuple[float, float]:
    """Processor milliseconds of the serving process, per GET of /healthz and per answer."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, units, there))
    server.start()
    try:
        address, token = here.recv()
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
            process = psutil.Process(server.pid)

            def each(request: Callable[[int], httpx.Response], times: int) -> float:
                request(-1).raise_for_status()  # the first one pays for what later ones find ready
                before = process.cpu_times()
                for number in range(times):
                    request(number).raise_for_status()
                after = process.cpu_times()
                return 1000 * (after.user + after.system - before.user - before.system) / times

            # The kernel counts in hundredths of a second, so a short request is made many times.
            return each(lambda _: client.get("/healthz"), 20 * answers), each(
                lambda number: client.post("/v1/tasks/agnews.topic/answers", json={"query": str(number)}), answers
            )
    finally:
        server.terminate()
        server.join()


def serve(folder: Path, units: int, parent: Connection) -> None:
    """Send the address and an analyst's token to the parent, then serve until terminated."""
    services = opened(folder, units)
    _, token = services.records.keys.create("benchmark", "analyst")
    listening = socket.create_server(("127.0.0.1", 0))
    parent.send((f"http://127.0.0.1:{listening.getsockname()[1]}", token))
    uvicorn.Server(uvicorn.Config(create_app(services), log_level="error")).run(sockets=[listening])


def timed(stages: dict[str, list[float]], name: str, owner: object, method: str) -> None:
    original: Callable[..., object] = getattr(owner, method)
    times = stages.setdefault(name, [])

    def wrapper(*args: object, **options: object) -> object:
        started = time.perf_counter()
        try:
            return original(*args, **options)
        finally:
            times.append(1000 * (time.perf_counter() - started))

    setattr(owner, method, wrapper)


class RandomVectors:
    """An embedder whose embeddings mean nothing."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return unit_vectors(self._generator, len(texts))

    embed_many = embed

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        return unit_vectors(self._generator, len(texts))


def unit_vectors(generator: np.random.Generator, count: int) -> np.ndarray:
    vectors = generator.normal(size=(count, 384)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
