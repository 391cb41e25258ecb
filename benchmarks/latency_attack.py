"""Can anything that callers can time tell whether one unit is in the knowledge base?

Two services answer the same questions. Their knowledge bases differ in one unit, the canary: as many and as large
exemplars as ingest takes, with replies as long as the embedding model reads. Every answer draws every unit, so the
canary is always there to be seen. An attacker times answers, a twin of each, /readyz, /metrics, refusals, and voided
questions beside answers; half of the times choose the best threshold, the other half judge it. Printed is the lower
bound on ε that a Clopper-Pearson interval proves at δ = 1e-5, wrong with a probability of 1e-6. Latency is promised to
cost nothing, so it must be 0: "no distinguisher".

The same attack then meets planted defects that earlier versions had, and must find each of them.

    python benchmarks/latency_attack.py [--answers 500] [--mechanisms votes ...] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

import httpx
import numpy as np
import structlog
from scipy import stats

from accounting.ledger.budgets import SignedTask
from accounting.plan import CalibratedPlan, EpsilonRange, TaskNoise, load_plan
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease
from exemplar_store import MAX_UNIT_BYTES, Layout
from exemplar_store.exemplar import content
from service.api.app import create_app
from service.embedding.embedder import Embedder
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.pipeline.latency import Departure
from service.pipeline.mechanisms.adapter import said
from service.pipeline.mechanisms.embedding_mean import NearestCandidate
from service.plans.signing import sign
from service.private_threads import privately
from service.records.records import open_records
from service.services import Services, open_services
from service.settings import Settings
from service.telemetry.heartbeat import Heartbeat

DELTA = 1e-5
ERROR = 5e-7
UNITS = 24
FIELDS = ("text", "label", "response")
PLAN = """
knowledge_base: kb
budget: {epsilon: 8, delta: 1.0e-4}
tasks:
"""
CLASSIFY = """
  NAME:
    kind: classify
    labels: [billing, delivery]
    sampling: SAMPLING
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 3
    ensemble: 8
    answers: 100000
    mechanism: MECHANISM
"""
GENERATE = """
  NAME:
    kind: generate
    sampling: SAMPLING
    prompt: {exemplar: "{text}: {response}", query: "{text}:"}
    shots: 3
    ensemble: 8
    answers: 100000
    candidates: 4
    public_answers: [We have sent your money back., Your parcel is on its way to you., Please try again tomorrow.]
    mechanism: MECHANISM
"""
MECHANISMS = {
    "votes": (CLASSIFY, "units", "{type: rnm_gaussian, vote: soft}", Gaussian(2.0)),
    "blocks": (CLASSIFY, "blocks", "{type: rnm_gaussian}", Gaussian(2.0)),
    "mean": (GENERATE, "units", "{type: embedding_mean}", Gaussian(2.0)),
    "ranked": (GENERATE, "units", "{type: keyword_joint_em, k: 5}", BoundedRange(1.0)),
    "tested": (GENERATE, "blocks", "{type: keyword_ptr, k_min: 2, k_max: 5}", ProposeTestRelease(1.0, 2.0, 1e-6)),
}
TOO_FEW_WORDS = "ranked100"  # a task whose questions are always voided


def signed_plan() -> CalibratedPlan:
    """All tasks; the noise is fixed by hand, for what is timed does not depend on it."""
    tasks = {**MECHANISMS, TOO_FEW_WORDS: (GENERATE, "units", "{type: keyword_joint_em, k: 100}", BoundedRange(1.0))}
    text = "".join(
        template.replace("NAME", name).replace("SAMPLING", sampling).replace("MECHANISM", mechanism)
        for name, (template, sampling, mechanism, _) in tasks.items()
    )
    return CalibratedPlan(
        plan=load_plan(PLAN + text),
        public_size=UNITS,
        noise={name: TaskNoise(sampling_probability=1.0, mechanism=noise) for name, (*_, noise) in tasks.items()},
        epsilon={"pld": EpsilonRange(lower=0.0, upper=8.0)},
        unsupported={},
    )


def exemplars(canary: bool) -> Iterator[dict[str, str]]:
    for i in range(UNITS):
        label = ("billing", "delivery")[i % 2]
        yield {"unit_id": f"u{i}", "text": f"My parcel {i} is late.", "label": label, "response": "We are sorry."}
    if canary:
        generator, size = random.Random(1), 0
        while True:
            words = [f"word{generator.randrange(10**6)}" for _ in range(1100)]
            text = f"Where is my parcel number {words[0]}, which I sent back?"  # as near to the questions as can be
            row = {"text": text, "label": "billing", "response": " ".join(words)}
            size += len(content(row, FIELDS))
            if size > MAX_UNIT_BYTES:
                return
            yield {"unit_id": "canary", **row}


@dataclass
class Grain:
    """One for all tasks."""

    grain_s: float
    report = ()

    async def of(self, _task: SignedTask) -> float:
        return self.grain_s

    async def all(self) -> tuple[()]:
        return ()


@dataclass
class World:
    """One of the two services."""

    services: Services
    client: httpx.AsyncClient
    number: int = 0

    async def timed(self, expected: int, method: str, path: str, **options: object) -> float:
        started = time.perf_counter()
        response = await self.client.request(method, path, **options)  # type: ignore[arg-type]
        took = time.perf_counter() - started
        assert response.status_code == expected, f"{method} {path}: {response.status_code} {response.text}"
        return took

    async def ask(self, task: str, question: str, expected: int = 200) -> float:
        return await self.timed(expected, "POST", f"/v1/tasks/kb.{task}/answers", json={"query": question})


@contextlib.asynccontextmanager
async def world(file: str, embedder: Embedder, canary: bool) -> AsyncIterator[World]:
    settings = Settings(
        database_url=f"sqlite:///{file}",
        development=True,
        witness_url="none",
        metrics_open=True,
    )
    records = open_records(settings)
    records.create_knowledge_base(
        "kb", epsilon=9, delta=1e-3, public_size=UNITS, fields=list(FIELDS), embedded_field="text"
    )
    layout = Layout(FIELDS)
    rows = (layout.row(number, row) for number, row in enumerate(exemplars(canary), 1))
    records.store.ingest("kb", rows, embedder.embed)
    sign(records, signed_plan(), "benchmark")
    services = open_services(records, NearestExemplarEngine(embedder), embedder)
    app = create_app(services)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        client.headers["Authorization"] = f"Bearer {records.keys.create('attacker', 'analyst')[1]}"
        await services.grains.all()
        yield World(services, client)
    records.database.dispose()


async def observe(one: World, task: str, beside: str, times: dict[str, list[float]], late_s: float) -> None:
    """Ask one question and time what callers can see of it; ``beside`` is what else is asked meanwhile."""
    one.number += 1
    question = f"Where is my parcel number {one.number}, which I sent back?"
    answer = asyncio.create_task(one.ask(task, question))
    if beside == "a twin":
        await asyncio.sleep(0.002)
        times[beside].append(await one.ask(task, question))
    elif beside:
        await asyncio.sleep(random.uniform(0.0, late_s))
        match beside:
            case "a void":
                times[beside].append(await one.ask(TOO_FEW_WORDS, f"Void {one.number}", expected=422))
            case "a refusal":
                times[beside].append(await one.ask(task, "", expected=422))
            case path:
                times[beside].append(await one.timed(200, "GET", path))
    times["answers"].append(await answer)


BESIDE = ("", "a twin", "/readyz", "/metrics", "a refusal", "a void")


async def attack(
    embedder: Embedder, task: str, beside: str, answers: int, grain_s: float | None = None
) -> dict[str, tuple[list[float], list[float]]]:
    """Times by what was observed, without and with the canary, taken in turns.

    ``grain_s`` replaces what is measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with (
            world(f"{folder}/without.sqlite", embedder, False) as without,
            world(f"{folder}/with.sqlite", embedder, True) as with_canary,
        ):
            # Both measure made-up slots, which tells nothing of the canary; the same grain, so that chance does not.
            reports = [one for side in (without, with_canary) for one in side.services.grains.report or ()]
            grain = Grain(grain_s or max(one.grain_s for one in reports if one.task.startswith(f"kb.{task}@")))
            both: list[tuple[World, dict[str, list[float]]]] = []
            for side in (without, with_canary):
                side.services.answering._grains = grain
                both.append((side, defaultdict(list)))
            late_s = grain.grain_s / 2
            for number in range(5 + answers):
                if number == 5:  # the first ones warm up
                    for _, times in both:
                        times.clear()
                for one, times in random.sample(both, 2):
                    await observe(one, task, beside, times, late_s)
            return {what: (both[0][1][what], both[1][1][what]) for what in both[0][1]}


def judge(zero: Sequence[float], one: Sequence[float]) -> float:
    """A proven lower bound on ε at :data:`DELTA`: the even times choose an event, the odd ones judge it."""
    chosen, judged = [tuple(np.asarray(times[first::2]) for times in (zero, one)) for first in (0, 1)]
    events = [
        (threshold, above, order)
        for threshold in np.quantile(np.concatenate(chosen), np.linspace(0.02, 0.98, 97))
        for above in (True, False)
        for order in (1, -1)
    ]
    best = max(events, key=lambda event: proven(*chosen[:: event[2]], *event[:2], 0.05))
    return proven(*judged[:: best[2]], *best[:2], ERROR)


def proven(low: np.ndarray, high: np.ndarray, threshold: float, above: bool, error: float) -> float:
    """The ε that an event proves, which is likelier under ``high``; wrong with a probability of twice ``error``."""
    few, many = [int(np.sum((times > threshold) == above)) for times in (low, high)]
    most = stats.beta.ppf(1 - error, few + 1, low.size - few) if few < low.size else 1.0
    least = stats.beta.ppf(error, many, high.size - many + 1) if many else 0.0
    return max(0.0, float(np.log((least - DELTA) / most))) if least > DELTA else 0.0


# What earlier versions did.


async def embeddings_at_answer_time(self: NearestCandidate, outputs: Sequence[object]) -> list[np.ndarray | None]:
    texts = list(dict.fromkeys(text for output in outputs if (text := said(output))))  # type: ignore[arg-type]
    assert self.embedder is not None
    embed = self.embedder.embed
    known = dict(zip(texts, await privately(lambda: embed(texts)), strict=True)) if texts else {}
    return [known.get(text) if (text := said(output)) else None for output in outputs]  # type: ignore[arg-type]


def readiness_that_embeds(embedder: Embedder) -> Callable[[Heartbeat, str], bool]:
    def alive(_self: Heartbeat, _what: str) -> bool:
        return embedder.embed(["ready"]).shape == (1, 384)

    return alive


def planted(embedder: Embedder) -> dict[str, tuple[str, float, list[object]]]:
    """By name: what shows it, a grain, and the patches that bring it back."""
    at_answer_time = mock.patch.object(NearestCandidate, "embeddings", embeddings_at_answer_time)
    return {
        "replies embedded at answer time, a grain that does not hide it": ("answers", 0.001, [at_answer_time]),
        "/readyz embeds where private replies are embedded": (
            "/readyz",
            0.2,
            [at_answer_time, mock.patch.object(Heartbeat, "alive", readiness_that_embeds(embedder))],
        ),
        "voids leave at once": (
            "a void",
            0.2,
            [at_answer_time, mock.patch("service.pipeline.answering.Departure", UnpaddedVoids)],
        ),
    }


class UnpaddedVoids(Departure):
    """Waits only for what was sampled."""

    def __init__(self, grain_s: float) -> None:
        super().__init__(grain_s)
        self._fixed_at = 0.0

    def fix(self) -> None:
        super().fix()
        self._fixed_at = asyncio.get_running_loop().time()

    async def wait(self) -> int:
        if asyncio.get_running_loop().time() - self._fixed_at < 1e-4:  # nothing came after the probe: it failed
            return 0
        return await super().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=500, help="a side, for each mechanism and observation")
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--quick", action="store_true", help="few answers: shows that it runs, proves little")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    answers = 20 if options.quick else options.answers
    embedder = Embedder()
    print(f"{answers} answers a side; medians in milliseconds; proven ε at δ = {DELTA:g}, wrong with p = {2 * ERROR:g}")
    print(f"{'mechanism':12}{'observed':14}{'without':>10}{'with':>10}{'ε >':>8}")
    found = []
    for task in options.mechanisms:
        for beside in BESIDE if not options.quick else ("", "/readyz"):
            for what, (zero, one) in asyncio.run(attack(embedder, task, beside, answers)).items():
                if what == (beside or "answers"):
                    found.append(say(task, what, zero, one))
    clean = not any(found)
    print("no distinguisher" if clean else "DISTINGUISHED")
    caught = []
    print("planted defects:")
    for name, (what, grain_s, patches) in planted(embedder).items():
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)  # type: ignore[arg-type]
            beside = "" if what == "answers" else what
            times = asyncio.run(attack(embedder, "mean", beside, answers, grain_s))
        print(name)
        caught.append(say("mean", what, *times[what]) > 0)
    print("all found" if all(caught) else "NOT ALL FOUND")
    if not options.quick and not (clean and all(caught)):
        raise SystemExit(1)


def say(task: str, what: str, zero: Sequence[float], one: Sequence[float]) -> float:
    bound = judge(zero, one)
    medians = [1000 * float(np.median(times)) for times in (zero, one)]
    print(f"{task:12}{what:14}{medians[0]:10.2f}{medians[1]:10.2f}{bound:8.2f}", flush=True)
    return bound


if __name__ == "__main__":
    main()
