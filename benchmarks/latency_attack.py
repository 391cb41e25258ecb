"""Does anything that callers can time reveal whether one unit is in the knowledge base?

The same questions are asked of two knowledge bases that differ in one unit, the canary: as many and as large exemplars
as ingest takes, with replies as long as the embedding model reads. Every answer draws every unit, so the canary is
always there to be seen. An attacker times answers, a twin of each, and /readyz, /metrics, refusals and voided questions
beside answers, and calls that cost nothing (`free_calls.py`). The attacker also times trains: one /readyz after the
other for as long as an answer, or the signing of a plan with a one-time release, takes. Half of the times choose the
best threshold, and the other half judge it. The output shows the area under the ROC curve (0.5 is chance) and the lower
bound on ε that a Clopper-Pearson interval proves at δ = 1e-5, wrong with a probability of 1e-6. The service promises
that latency costs nothing, so the bound must be 0: "no distinguisher".

In one process, private work and requests share an interpreter, and trains notice it. So trains are shown there, but not
judged. ``--served`` runs the attack on `dpicl serve`, where they are judged.

The same attack then meets planted defects that earlier versions had, and must find each of them.

    python benchmarks/latency_attack.py [--answers 500] [--mechanisms votes ...] [--served] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import httpx
import numpy as np
import structlog
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan, EpsilonRange, Plan, TaskNoise, load_plan
from accounting.privacy.profiles import BoundedRange, Gaussian, GaussianThreshold, ProposeTestRelease
from benchmarks.free_calls import CALLS
from benchmarks.free_calls import attack as attack_by
from examples.serving import serving, use_database_in
from exemplar_store import MAX_UNIT_BYTES, Layout
from exemplar_store.exemplar import content
from service.answering.latency import Departure, Measured
from service.answering.mechanisms.adapter import text_of
from service.answering.mechanisms.embedding_mean import NearestCandidate
from service.answering.plans.signing import sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder
from service.engines.private_threads import privately
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.records.telemetry.heartbeat import Heartbeat
from service.serving.web import create_app
from service.settings import Settings

ROOT = Path(__file__).parents[1]
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
DOCUMENT = GENERATE.replace("    shots", "    document_field: text\n    shots")
MECHANISMS = {
    "votes": (CLASSIFY, "units", "{type: rnm_gaussian, vote: soft}", Gaussian(2.0)),
    "blocks": (CLASSIFY, "blocks", "{type: rnm_gaussian}", Gaussian(2.0)),
    "mean": (GENERATE, "units", "{type: embedding_mean}", Gaussian(2.0)),
    "ranked": (GENERATE, "units", "{type: keyword_joint_em, k: 5}", BoundedRange(1.0)),
    "documents": (DOCUMENT, "units", "{type: embedding_mean}", Gaussian(2.0)),
    "tested": (GENERATE, "blocks", "{type: keyword_ptr, k_min: 2, k_max: 5}", ProposeTestRelease(1.0, 2.0, 1e-6)),
    "shared": (GENERATE, "units", "{type: common_sentences}", GaussianThreshold(Gaussian(1.0), 1e-6)),
}
SIGNING = "signing"
ONCE = """
knowledge_base: KB
budget: {epsilon: 0.01, delta: 1.0e-9}
tasks:
  once:
    kind: classify
    release: once
    labels: [billing, delivery]
    label_descriptions: {billing: "Money, number NUMBER."}
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    mechanism: {type: prototypes}
"""
SERVED_GRAIN_MS = 1000
TOO_FEW_WORDS = "ranked100"  # a task whose questions are always voided


def signed_plan(knowledge_base: str) -> CalibratedPlan:
    """A plan with all tasks; the noise is fixed by hand, since the times do not depend on it."""
    tasks = {**MECHANISMS, TOO_FEW_WORDS: (GENERATE, "units", "{type: keyword_joint_em, k: 100}", BoundedRange(1.0))}
    text = "".join(
        template.replace("NAME", name).replace("SAMPLING", sampling).replace("MECHANISM", mechanism)
        for name, (template, sampling, mechanism, _) in tasks.items()
    )
    plan = load_plan((PLAN + text).replace(": kb", f": {knowledge_base}"))
    return by_hand(plan, {name: noise for name, (*_, noise) in tasks.items()}, 8.0)


def by_hand(
    plan: Plan, noise: Mapping[str, Gaussian | BoundedRange | ProposeTestRelease | GaussianThreshold], epsilon: float
) -> CalibratedPlan:
    return CalibratedPlan(
        plan=plan,
        public_size=UNITS,
        noise={name: TaskNoise(sampling_probability=1.0, mechanism=one) for name, one in noise.items()},
        epsilon={"pld": EpsilonRange(lower=0.0, upper=epsilon)},
        unsupported={},
    )


def exemplars(canary: bool, *, documents: bool = False) -> Iterator[dict[str, str]]:
    """Exemplars of all units; with ``documents``, the canary's texts are long instead of its replies."""
    for i in range(UNITS):
        label = ("billing", "delivery")[i % 2]
        yield {"unit_id": f"u{i}", "text": f"My parcel {i} is late.", "label": label, "response": "We are sorry."}
    if canary:
        generator, size = random.Random(1), 0
        while True:
            words = [f"word{generator.randrange(10**6)}" for _ in range(1100)]
            text = f"Where is my parcel number {words[0]}, which I sent back?"  # as near to the questions as can be
            lines = [" ".join(words[i : i + 6]) for i in range(0, len(words), 6)]
            long = {"text": "\n".join([text, *lines]), "response": "We are sorry."}
            row = {"text": text, "label": "billing", "response": " ".join(words)} | (long if documents else {})
            size += len(content(row, FIELDS))
            if size > MAX_UNIT_BYTES:
                return
            yield {"unit_id": "canary", **row}


@dataclass
class Grain:
    """The same grain for all tasks."""

    grain_s: float
    report = ()

    async def of(self, task: SignedTask) -> Measured:
        return Measured(task.address, self.grain_s)

    def overran(self, _task: SignedTask) -> None:
        pass

    async def all(self) -> tuple[()]:
        return ()


@dataclass(kw_only=True)
class Side:
    """One of the two knowledge bases, as callers of its service see it."""

    records: Records
    client: httpx.AsyncClient
    admin: str
    knowledge_base: str = "kb"
    number: int = 0

    async def timed(self, expected: int, method: str, path: str, **options: object) -> float:
        started = time.perf_counter()
        await asyncio.sleep(0)  # a request waits for the event loop, as one that arrives through a socket does
        response = await self.client.request(method, path, **options)  # type: ignore[arg-type]
        took = time.perf_counter() - started
        assert response.status_code == expected, f"{method} {path}: {response.status_code} {response.text}"
        return took

    async def ask(self, task: str, question: str, expected: int = 200) -> float:
        path = f"/v1/tasks/{self.knowledge_base}.{task}/answers"
        return await self.timed(expected, "POST", path, json={"query": question})

    async def sign(self) -> float:
        """Sign a plan that differs from all others, with a one-time release."""
        path = f"/v1/knowledge-bases/{self.knowledge_base}/plans?confirm=worse_than_free"
        headers = {"Authorization": f"Bearer {self.admin}", "Content-Type": "application/yaml"}
        plan = ONCE.replace("KB", self.knowledge_base).replace("NUMBER", str(self.number))
        return await self.timed(201, "POST", path, headers=headers, content=plan.encode())


@dataclass(kw_only=True)
class World(Side):
    """One of two services in this process."""

    services: Services


def fill(records: Records, name: str, embedder: Embedder, canary: bool, *, documents: bool) -> None:
    """Create a knowledge base, and sign its plan."""
    records.create_knowledge_base(
        name, epsilon=30, delta=1e-3, public_size=UNITS, fields=list(FIELDS), embedded_field="text"
    )
    layout = Layout(FIELDS)
    rows = (layout.row(number, row) for number, row in enumerate(exemplars(canary, documents=documents), 1))
    records.store.ingest(name, rows, embedder.embed_many)
    sign(records, signed_plan(name), "benchmark")


@contextlib.asynccontextmanager
async def world(file: str, embedder: Embedder, canary: bool, *, documents: bool = False) -> AsyncIterator[World]:
    settings = Settings(
        database_url=f"sqlite:///{file}",
        development=True,
        witness_url="none",
        metrics_open=True,
    )
    records = open_records(settings)
    fill(records, "kb", embedder, canary, documents=documents)
    services = open_services(records, NearestExemplarEngine(embedder), embedder)
    app = create_app(services)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        client.headers["Authorization"] = f"Bearer {records.keys.create('attacker', 'analyst')[1]}"
        await services.grains.all()
        admin = records.keys.create("signer", "admin")[1]
        yield World(records=records, client=client, admin=admin, services=services)
    records.database.dispose()


async def observe(one: Side, task: str, beside: str, times: dict[str, list[float]], late_s: float) -> None:
    """Ask one question and time what callers can see of it; ``beside`` names the request that is made meanwhile."""
    one.number += 1
    question = f"Where is my parcel number {one.number}, which I sent back?"
    if task == "documents":
        question += "".join(
            f"\nIt was sent on day {day} and has not arrived at number {one.number}." for day in range(40)
        )
    asking = one.sign() if task == SIGNING else one.ask(task, question)
    answer = asyncio.create_task(asking)
    if beside == A_TRAIN:
        train: list[float] = []
        while not answer.done():
            train.append(await one.timed(200, "GET", "/readyz"))
            await asyncio.sleep(_WIRE_S)
        for name, statistic in TRAINS.items():
            times[name].append(float(statistic(train)))
    elif beside == "a twin":
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


_WIRE_S = 0.001
"""Seconds between two requests of a train. In one process there is no network, and private work would have to wait."""
A_TRAIN = "a train"
TRAINS: dict[str, Callable[[list[float]], float]] = {
    "train max": max,
    "train mean": statistics.fmean,
    "train early": lambda train: statistics.fmean(train[: 1 + len(train) // 10]),
    "train 90 %": lambda train: np.quantile(train, 0.9),
    "train 99 %": lambda train: np.quantile(train, 0.99),
}
"""Statistics that an attacker computes from a train: one number for each answer."""
BESIDE = ("", "a twin", "/readyz", "/metrics", "a refusal", "a void")


Times = dict[str, tuple[list[float], list[float]]]
"""Times by observation: first without the canary, then with it."""


async def attack(embedder: Embedder, task: str, beside: str, answers: int, grain_s: float | None = None) -> Times:
    """Collect times in this process; ``grain_s`` replaces the measured grain."""
    documents = task == "documents"
    with tempfile.TemporaryDirectory() as folder:
        async with (
            world(f"{folder}/without.sqlite", embedder, False, documents=documents) as without,
            world(f"{folder}/with.sqlite", embedder, True, documents=documents) as with_canary,
        ):
            # Both measure made-up slots, so the grain does not depend on the canary. Both then get the same grain, so
            # that the two do not differ by chance.
            sides = (without, with_canary)
            reports = [one for side in sides for one in side.services.grains.report or ()]
            asked = [one.grain_s for one in reports if one.task.startswith(f"kb.{task}@")]
            grain = Grain(grain_s or max(asked, default=1.0))
            for side in sides:
                side.services.answering.grains = grain
            return await compare(sides, task, beside, answers, grain.grain_s / 2)


async def compare(sides: tuple[Side, Side], task: str, beside: str, answers: int, late_s: float) -> Times:
    """Collect times of two sides that take turns."""
    both: list[tuple[Side, dict[str, list[float]]]] = [(side, defaultdict(list)) for side in sides]
    for number in range(5 + answers):
        if number == 5:  # the first ones warm up
            for _, times in both:
                times.clear()
        for one, times in random.sample(both, 2):
            await observe(one, task, beside, times, late_s)
    return {what: (both[0][1][what], both[1][1][what]) for what in both[0][1]}


WITHIN = """
from service.serving import application
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine

async def on_the_loop(work):
    return work()

class Within(application.Ingress.func_or_class):
    async def __init__(self, engine, embedder, config, local, restore, work):
        await super().__init__(engine, embedder, config, local, restore)
        within = NearestExemplarEngine(application.RemoteEmbedder(embedder))
        within.contributions.__func__.__globals__["privately"] = on_the_loop
        object.__setattr__(self._services.answering.stages, "engine", within)

application.Ingress = application.deployment(Within).options(name="Ingress")
build = application.build
"""
"""An application with all private work in the ingress's process: slots on its event loop, releases in a thread."""


@contextlib.contextmanager
def served(folder: Path, embedder: Embedder, *, planted: bool) -> Iterator[Callable[[str, str, int], Times]]:
    """Run `dpicl serve` with both knowledge bases of each kind, and yield a function that collects their times.

    With ``planted``, the application is that of :data:`WITHIN`.
    """
    use_database_in(folder)
    os.environ |= {"DPICL_WITNESS_URL": "none", "DPICL_LATENCY_GRAIN_MS": str(SERVED_GRAIN_MS)}
    os.environ["DPICL_METRICS_OPEN"] = "true"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    (folder / "within.py").write_text(WITHIN)
    config = (ROOT / "service" / "serving" / "serve.yaml").read_text()
    (folder / "serve.yaml").write_text(
        config.replace("service.serving.application:build", "within:build") if planted else config
    )
    records = open_records(Settings())
    names = [f"{kind}-{side}" for kind in ("texts", "documents") for side in ("without", "with")]
    for name in names:
        fill(records, name, embedder, name.endswith("with"), documents=name.startswith("documents"))
    admin = records.keys.create("signer", "admin")[1]
    asked = dict.fromkeys(names, 0)
    options = ("--config", str(folder / "serve.yaml"))
    with serving(folder, *options, what="Ray Serve", timeout_s=300) as ready:

        async def observed(task: str, beside: str, answers: int) -> Times:
            kind = "documents" if task == "documents" else "texts"
            async with httpx.AsyncClient(base_url=ready.base_url, headers=ready.headers, timeout=300) as client:
                without, with_canary = (
                    Side(records=records, client=client, admin=admin, knowledge_base=name, number=asked[name])
                    for name in (f"{kind}-without", f"{kind}-with")
                )
                times = await compare((without, with_canary), task, beside, answers, SERVED_GRAIN_MS / 2000)
                asked.update({side.knowledge_base: side.number for side in (without, with_canary)})
                return times

        yield lambda task, beside, answers: asyncio.run(observed(task, beside, answers))
    records.database.dispose()


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
    """The ε proven by an event that is likelier under ``high``; wrong with a probability of twice ``error``."""
    few, many = [int(np.sum((times > threshold) == above)) for times in (low, high)]
    most = stats.beta.ppf(1 - error, few + 1, low.size - few) if few < low.size else 1.0
    least = stats.beta.ppf(error, many, high.size - many + 1) if many else 0.0
    return max(0.0, float(np.log((least - DELTA) / most))) if least > DELTA else 0.0


# Planted defects.


_bounded = NearestCandidate.embeddings


async def embeddings_at_answer_time(self: NearestCandidate, outputs: Sequence[object]) -> list[np.ndarray | None]:
    if self.embedder is None:  # they come with the outputs
        return await _bounded(self, outputs)  # type: ignore[arg-type]
    texts = list(dict.fromkeys(text for output in outputs if (text := text_of(output))))  # type: ignore[arg-type]
    embed = self.embedder.embed
    known = dict(zip(texts, await privately(lambda: embed(texts)), strict=True)) if texts else {}
    return [known.get(text) if (text := text_of(output)) else None for output in outputs]  # type: ignore[arg-type]


async def on_the_loop(work: Callable[[], object]) -> object:
    return work()


def readiness_that_embeds(embedder: Embedder) -> Callable[[Heartbeat, str], bool]:
    def alive(_self: Heartbeat, _what: str) -> bool:
        return embedder.embed(["ready"]).shape == (1, 384)

    return alive


def planted(embedder: Embedder) -> dict[str, tuple[str, str, float, list[object]]]:
    """Defects by name: a task, the observation that shows the defect, a grain, and the patches that plant it."""
    at_answer_time = mock.patch.object(NearestCandidate, "embeddings", embeddings_at_answer_time)
    return {
        "replies embedded at answer time, a grain that does not hide it": (
            "mean",
            "answers",
            0.001,
            [at_answer_time, mock.patch("service.answering.latency._LEAST_ROOM_S", 0.0)],
        ),
        "/readyz embeds where private replies are embedded": (
            "mean",
            "/readyz",
            0.2,
            [at_answer_time, mock.patch.object(Heartbeat, "alive", readiness_that_embeds(embedder))],
        ),
        "voids leave at once": (
            "mean",
            "a void",
            0.2,
            [at_answer_time, mock.patch("service.answering.answering.Departure", UnpaddedVoids)],
        ),
        "slots are compared on the event loop": (
            "documents",
            "train max",
            0.2,
            [mock.patch("service.engines.embedded.nearest_exemplar.privately", on_the_loop)],
        ),
    }


class UnpaddedVoids(Departure):
    """Does not wait for a question that failed before its slots were sampled."""

    def __init__(self, grain_s: float) -> None:
        super().__init__(grain_s)
        self._fixed_at = 0.0

    def fix(self, times: float = 1.0) -> None:
        super().fix(times)
        self._fixed_at = asyncio.get_running_loop().time()

    async def wait(self) -> int:
        if asyncio.get_running_loop().time() - self._fixed_at < 1e-4:  # nothing came after the probe: it failed
            return 0
        return await super().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=500, help="a side, for each mechanism and observation")
    tasks = [*MECHANISMS, SIGNING]
    parser.add_argument("--mechanisms", nargs="+", choices=tasks, default=tasks)
    parser.add_argument("--served", action="store_true", help="on `dpicl serve` instead of in this process")
    parser.add_argument("--quick", action="store_true", help="few answers: shows that it runs, proves little")
    options = parser.parse_args()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # which MCP's library lets write
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    answers = 20 if options.quick else options.answers
    embedder = Embedder()
    print(f"{answers} answers a side; medians in milliseconds; proven ε at δ = {DELTA:g}, wrong with p = {2 * ERROR:g}")
    print(f"{'mechanism':12}{'observed':18}{'without':>10}{'with':>10}{'AUC':>8}{'ε >':>8}")
    passed = on_serve(embedder, answers, options.mechanisms) if options.served else here(embedder, answers, options)
    if not options.quick and not passed:
        raise SystemExit(1)


def here(embedder: Embedder, answers: int, options: argparse.Namespace) -> bool:
    """Attack in this process; return whether exactly the planted defects were found. Trains are only shown."""
    found = []
    tasks = [task for task in options.mechanisms if not (options.quick and task == SIGNING)]
    for task in tasks:
        besides = (*BESIDE, A_TRAIN) if not options.quick else ("", "/readyz")
        for beside in besides if task != SIGNING else (A_TRAIN,):
            times = asyncio.run(attack(embedder, task, beside, answers))
            bounds = show(task, beside, times)
            found += bounds if beside != A_TRAIN else []
    found += [free_call(name, answers, planted=False) for name in CALLS]
    clean = not any(found)
    print("no distinguisher" if clean else "DISTINGUISHED")
    caught = []
    print("planted defects:")
    for name, (task, what, grain_s, patches) in planted(embedder).items():
        beside = A_TRAIN if what in TRAINS else "" if what == "answers" else what
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)  # type: ignore[arg-type]
            times = asyncio.run(attack(embedder, task, beside, answers, grain_s))
        print(name)
        caught.append(max(show(task, beside, times)) > 0)
    print("free calls take no turn")
    caught += [free_call(name, answers, planted=True) > 0 for name in CALLS]
    print("all found" if all(caught) else "NOT ALL FOUND")
    return clean and all(caught)


def free_call(name: str, answers: int, *, planted: bool) -> float:
    """Print what a free call beside answers shows, with an engine that only takes time; return the bound on ε."""
    times = asyncio.run(attack_by(CALLS[name], answers, planted=planted))
    (bound,) = show("beside", name, {name: times})
    return bound


def on_serve(embedder: Embedder, answers: int, tasks: Sequence[str]) -> bool:
    """Attack the service on Ray Serve.

    Returns:
        Whether nothing was found in the service as it is, and trains found slots compared in the ingress's process.
    """
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), embedder, planted=False) as observed:
        found = [bound for task in tasks for bound in show(task, A_TRAIN, observed(task, A_TRAIN, answers))]
    clean = not any(found)
    print("no distinguisher" if clean else "DISTINGUISHED")
    print("planted: private work in the ingress's process")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), embedder, planted=True) as observed:
        caught = max(show("documents", A_TRAIN, observed("documents", A_TRAIN, answers))) > 0
        if SIGNING in tasks:  # shown, not judged: reading one more unit takes half a millisecond
            show(SIGNING, A_TRAIN, observed(SIGNING, A_TRAIN, answers))
    print("found" if caught else "NOT FOUND")
    return clean and caught


def show(task: str, beside: str, times: Times) -> list[float]:
    """Print what was observed; return the bounds on ε."""
    bounds = []
    for what, (zero, one) in times.items():
        if what == (beside or "answers") or (beside == A_TRAIN and what in TRAINS):
            medians = [1000 * float(np.median(side)) for side in (zero, one)]
            area = stats.mannwhitneyu(one, zero).statistic / (len(one) * len(zero))
            bounds.append(judge(zero, one))
            print(f"{task:12}{what:18}{medians[0]:10.2f}{medians[1]:10.2f}{area:8.2f}{bounds[-1]:8.2f}", flush=True)
    return bounds


if __name__ == "__main__":
    main()
