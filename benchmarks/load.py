"""How many answers miss their latency grain, by the number of callers?

Every sample fills all slots with the largest exemplars that ingest takes, so that the private part of each answer is as
long as any can be. Callers ask new questions, one after the other. A question that gets a 429 is asked again after the
time that it names. The service has its default settings, so the grain is measured at the start. An answer that misses
its grain is one that the service reports as `answer_overran`. None may.

    python benchmarks/load.py [--served] [--model smollm2] [--callers 1 4 8 16 32 64] [--questions 3] [--bytes 16384]

With ``--served`` the service is `dpicl serve`, else it runs in this process. With ``--model``, the engine is vLLM with
that model instead of `nearest_exemplar`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import numpy as np
import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from accounting.plans.plan import CalibratedPlan, EpsilonRange, TaskNoise, load_plan
from accounting.privacy.profiles import Gaussian
from examples.serving import serving, use_database_in
from exemplar_store import MAX_EXEMPLAR_BYTES, Layout
from service.answering.measured_grains import made_up_text, made_up_words
from service.answering.plans.signing import sign
from service.engines.configs import NearestExemplarConfig, VllmConfig
from service.engines.embedding.embedder import Embedder
from service.engines.factory import open_engine
from service.operations.services import open_services
from service.records.records import Records, open_records
from service.serving.web import create_app
from service.settings import Settings

LABELS = ("billing", "delivery", "other")
PLAN = """
knowledge_base: load
budget: {epsilon: 8, delta: 1.0e-4}
tasks:
  queue:
    kind: classify
    labels: [billing, delivery, other]
    calibrate: none
    prompt: {exemplar: "Message: {text}\\nQueue: {label}", query: "Message: {text}\\nQueue:"}
    shots: 4
    ensemble: ENSEMBLE
    slot_tokens: 256
    answers: 1000000
    mechanism: {type: rnm_gaussian, vote: soft}
"""
LIGHT, LANGUAGE_MODEL = 40, 6
"""Slots of an answer."""
_UNITS_PER_SLOT = 16  # twice as many as one keeps
_FILLED = 0.8  # of an exemplar's bytes are those of words, each with five; others are the label's and JSON's

Overran = Callable[[], int]


def fill(records: Records, slots: int, size: int) -> None:
    """Create a knowledge base of exemplars of a size, the largest, and sign a plan whose answers draw all of them.

    Noise and embeddings are made up, since times do not depend on them; this plan protects nothing.
    """
    units = _UNITS_PER_SLOT * slots
    records.create_knowledge_base(
        "load",
        epsilon=30,
        delta=1e-3,
        public_size=units,
        fields=["text", "label"],
        embedded_field="text",
        max_exemplar_bytes=size,
    )
    layout, words, most = Layout(("text", "label")), made_up_words(), int(_FILLED * size) // 5
    rows = (
        layout.row(i, {"unit_id": f"u{i}", "text": made_up_text(words, most), "label": LABELS[i % 3]})
        for i in range(units)
    )
    records.store.ingest("load", rows, lambda texts: np.tile(np.eye(1, 384, dtype=np.float32), (len(texts), 1)))
    noise = {"queue": TaskNoise(sampling_probability=1.0, mechanism=Gaussian(2.0))}
    epsilon = {"pld": EpsilonRange(lower=0.0, upper=8.0)}
    plan = load_plan(PLAN.replace("ENSEMBLE", str(slots)))
    calibrated = CalibratedPlan(plan=plan, public_size=units, noise=noise, epsilon=epsilon, unsupported={})
    sign(records, calibrated, "benchmark")


@dataclass
class Load:
    """Callers of a service.

    Attributes:
        client: has an analyst's key.
        overran: the number of answers that have missed their grain so far.
    """

    client: httpx.AsyncClient
    overran: Overran
    numbers: count[int] = field(default_factory=count)

    async def measure(self, callers: int, questions: int) -> int:
        """Print what some callers meet, and return how many answers overran."""
        statuses: Counter[int] = Counter()
        took: list[float] = []

        async def call() -> None:
            for _ in range(questions):
                took.append(await self._ask(statuses))

        before, began = self.overran(), time.perf_counter()
        await asyncio.gather(*(call() for _ in range(callers)))
        rate = len(took) / (time.perf_counter() - began)
        late = self.overran() - before
        print(
            f"{callers:8}{len(took):9}{late:9}{statuses[429]:9}{statistics.median(took):10.2f}{max(took):10.2f}"
            f"{rate:11.1f}",
            flush=True,
        )
        return late

    async def _ask(self, statuses: Counter[int]) -> float:
        while True:
            began = time.perf_counter()
            question = {"query": f"Where is parcel {next(self.numbers)}, which I sent back?"}
            response = await self.client.post("/v1/tasks/load.queue/answers", json=question)
            statuses[response.status_code] += 1
            if response.status_code == 200:
                return time.perf_counter() - began
            if response.status_code != 429:
                raise SystemExit(f"{response.status_code}: {response.text}")
            await asyncio.sleep(float(response.headers["retry-after"]))


@asynccontextmanager
async def here(folder: Path, model: str | None, size: int) -> AsyncIterator[tuple[httpx.AsyncClient, Overran]]:
    """The service in this process."""
    reported: Counter[str] = Counter()

    def noted(_logger: object, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        reported[str(event["event"])] += 1
        raise structlog.DropEvent

    structlog.configure(processors=[noted])
    embedder = Embedder()
    records = open_records(Settings())
    fill(records, LANGUAGE_MODEL if model else LIGHT, size)
    engine = open_engine(vllm(model) if model else NearestExemplarConfig(), embedder)
    try:
        app = create_app(services := open_services(records, engine, embedder))
        key = records.keys.create("load", "analyst")[1]
        options = {"transport": httpx.ASGITransport(app), "base_url": "http://load", "timeout": 600}
        async with app.router.lifespan_context(app), httpx.AsyncClient(**options) as client:  # type: ignore[arg-type]
            client.headers["Authorization"] = f"Bearer {key}"
            (measured,) = await services.grains.all()
            print(f"largest slots {1000 * measured.work_s:.0f} ms, grain {1000 * measured.grain_s:.0f} ms")
            yield client, lambda: reported["answer_overran"]
    finally:
        engine.close()


def vllm(model: str) -> VllmConfig:
    return VllmConfig(name="vllm", model=model, max_model_len=1024, kv_cache_gib=1, dtype="bfloat16")


@contextmanager
def served(folder: Path, model: str | None, size: int):  # type: ignore[no-untyped-def]
    """`dpicl serve`, whose log is read."""
    fill(open_records(Settings()), LANGUAGE_MODEL if model else LIGHT, size)
    options = ("--model", model) if model else ()
    log = folder / "serve.log"
    with serving(folder, *options, what="Ray Serve", timeout_s=600) as ready:
        yield ready, lambda: log.read_text().count("answer_overran")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--served", action="store_true", help="`dpicl serve` instead of this process")
    parser.add_argument("--model", help="language model for vLLM, such as smollm2")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--questions", type=int, default=3, help="of each caller")
    parser.add_argument("--bytes", type=int, default=MAX_EXEMPLAR_BYTES, help="of an exemplar, the most")
    options = parser.parse_args()
    logging.getLogger("httpx").setLevel(logging.WARNING)

    async def measure(client: httpx.AsyncClient, overran: Overran) -> int:
        print(f"{'callers':>8}{'answers':>9}{'overran':>9}{'429':>9}{'median s':>10}{'most s':>10}{'answers/s':>11}")
        load = Load(client, overran)
        return sum([await load.measure(callers, options.questions) for callers in options.callers])

    async def in_process() -> int:
        async with here(folder, options.model, options.bytes) as (client, overran):
            return await measure(client, overran)

    async def over_http(address: httpx.URL, headers: httpx.Headers, overran: Overran) -> int:
        limits = httpx.Limits(max_connections=max(options.callers))
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=600, limits=limits) as client:
            return await measure(client, overran)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        use_database_in(folder)
        os.environ["DPICL_WITNESS_URL"] = "none"
        if options.served:
            with served(folder, options.model, options.bytes) as (ready, overran):
                late = asyncio.run(over_http(ready.base_url, ready.headers, overran))
        else:
            late = asyncio.run(in_process())
    if late:
        raise SystemExit(f"{late} answers overran")
    print("no answer overran")


if __name__ == "__main__":
    main()
