"""An engine that only takes time: it shows how the service scales, with no model to compute.

Each prompt takes a fixed time, and a replica works on a fixed number of prompts at once, as one accelerator does with a
full batch. A replica's ceiling is therefore known beforehand: ``concurrency / latency_s`` prompts per second.
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
from service.serving.application import (
    Beside,
    EmbedderDeployment,
    EngineDeployment,
    Ingress,
    PrivateWork,
    TurnsDeployment,
    deployment,
)


@dataclass(frozen=True)
class Simulation:
    """Behaviour of a simulated engine.

    Attributes:
        latency_s: seconds that one prompt takes.
        concurrency: number of prompts at once in a replica.
        journal: folder in which each replica creates a file when it starts, named after its process id. The replica
            notes there which questions' slots it begins to answer, and which it has answered.
    """

    latency_s: float
    concurrency: int
    journal: str | None = None


class SimulatedEngine:
    """Waits, then votes for the label of each slot's first exemplar."""

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


def application(
    simulation: Simulation, *, engine: Mapping[str, Any], ingress: Mapping[str, Any], embedder: Mapping[str, Any]
) -> Application:
    """The service as :func:`service.serving.application.build` puts it together, with a simulated engine in it.

    Args:
        simulation: behaviour of the engine.
        engine: options of the engine's deployment, as Serve takes them.
        ingress: options of the ingress's deployment; private work is placed with the ingress.
        embedder: options of the embedder's deployment.
    """
    quiet = {"log_level": "WARNING", "enable_access_log": False}
    embeds = EmbedderDeployment.options(**embedder, logging_config=quiet).bind(1)
    answers = SimulatedEngineDeployment.options(**engine, logging_config=quiet).bind(simulation)
    place = {"ray_actor_options": ingress["ray_actor_options"]}
    turns = TurnsDeployment.options(**place, logging_config=quiet).bind()
    beside = Beside(NearestExemplarConfig(), answers, embeds, None, turns)
    work = PrivateWork.options(**place, logging_config=quiet).bind(beside)
    return Ingress.options(**ingress, logging_config=quiet).bind(beside, work, None)
