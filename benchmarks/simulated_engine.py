"""An engine that only takes time: how the service scales, without a model to compute.

Each prompt takes a fixed time, and so many are under way at once in a replica, as on one accelerator with a full batch.
A replica's ceiling is therefore known beforehand: ``concurrency / latency_s`` prompts a second.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray.serve import Application

from exemplar_store import Slot
from service.engines.configs import NearestExemplarConfig
from service.engines.protocol import EngineInfo
from service.engines.task import Sentence, TaskSpec, ZeroShot
from service.records.telemetry.logs import configure_logs
from service.serving.application import Beside, EmbedderDeployment, EngineDeployment, Ingress, PrivateWork, deployment


@dataclass(frozen=True)
class Simulation:
    """How an engine behaves.

    Attributes:
        latency_s: of one prompt.
        concurrency: prompts at once in a replica.
        journal: a folder in which each replica makes a file when it starts, named by its process id. It notes there
            which questions' slots it begins to answer, and which it has answered.
    """

    latency_s: float
    concurrency: int
    journal: str | None = None


class SimulatedEngine:
    """Waits, then says what label the first exemplar of a slot has."""

    def __init__(self, simulation: Simulation):
        self._latency_s = simulation.latency_s
        self._running = asyncio.Semaphore(simulation.concurrency)
        self._journal = Path(simulation.journal) / str(os.getpid()) if simulation.journal else None
        if self._journal:
            self._journal.touch()

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        await self._prompt()
        return ZeroShot(np.full(len(task.labels), 1 / len(task.labels)))

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | None]:
        self._note("began", query)
        await asyncio.gather(*(self._prompt() for slot in slots if slot))
        self._note("done", query)
        votes = np.eye(len(task.labels))
        return [votes[task.labels.index(slot[0].fields[task.answer_field])] if slot else None for slot in slots]

    async def _prompt(self) -> None:
        if self._latency_s:
            async with self._running:
                await asyncio.sleep(self._latency_s)

    def _note(self, event: str, query: Mapping[str, str]) -> None:
        if self._journal:
            with self._journal.open("a") as file:
                file.write(f"{event} {' '.join(query.values())}\n")

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        await self._prompt()
        return Sentence(" ".join(keywords), "simulated")

    async def describe(self) -> EngineInfo:
        return EngineInfo("simulated", "each slot by itself", False, "for benchmarks: it only takes time")

    async def health(self) -> None:
        return None

    def close(self) -> None:
        return None


@deployment
class SimulatedEngineDeployment(EngineDeployment.func_or_class):  # type: ignore[misc, name-defined]
    """The service's own engine deployment, around a simulated engine."""

    def __init__(self, simulation: Simulation):
        configure_logs()
        self._engine = SimulatedEngine(simulation)
        self._language_model = False


def application(
    simulation: Simulation, *, engine: Mapping[str, Any], ingress: Mapping[str, Any], embedder: Mapping[str, Any]
) -> Application:
    """The service as :func:`service.serving.application.build` puts it together, with a simulated engine in it.

    Args:
        simulation: the engine.
        engine: options of its deployment, as Serve takes them.
        ingress: likewise of the ingress; private work is done where it is.
        embedder: likewise of the embedder.
    """
    quiet = {"log_level": "WARNING", "enable_access_log": False}
    embeds = EmbedderDeployment.options(**embedder, logging_config=quiet).bind(1)
    answers = SimulatedEngineDeployment.options(**engine, logging_config=quiet).bind(simulation)
    beside = Beside(NearestExemplarConfig(), answers, embeds, None)
    place = {"ray_actor_options": ingress["ray_actor_options"]}
    work = PrivateWork.options(**place, logging_config=quiet).bind(beside)
    return Ingress.options(**ingress, logging_config=quiet).bind(beside, work, None)
