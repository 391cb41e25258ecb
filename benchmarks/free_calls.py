"""Does a free call of the engine show how long private slots take beside it?

The engine computes one prompt after the other, by sleeping, as one accelerator does. Two knowledge bases differ in one
unit, the canary, which makes slots take twelve times as long. Beside each answer an attacker makes a call that costs
nothing: a conversation to rewrite, a trial, an answer of a one-time release, a text to sanitise or to restore. The
attacker times it, as in ``latency_attack.py``, which judges the times and runs this attack with the others.

The planted defect of each kind is a call that takes no turn.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan, EpsilonRange, TaskNoise, load_plan
from accounting.privacy.profiles import Gaussian
from exemplar_store import Row, Slot
from service.answering.conversations import Conversation, Turn
from service.answering.latency import Grains, Measured
from service.answering.plans.signing import release, sign
from service.answering.turns import NoTurns
from service.engines.protocol import EngineInfo
from service.engines.task import Sentence, TaskSpec, ZeroShot
from service.operations import restoring, sanitising
from service.operations.restoring import RedactedText
from service.operations.roles import Actor
from service.operations.sanitising import TextsToSanitize
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.records.signed import read_signed
from service.settings import Settings
from tests.sanitization.restore.made_up import published

UNITS = 12
CANARY = "canary"
ATTACKER = Actor("attacker", "attacker", "key", "analyst")
PUBLIC_S, SHORT_S, LONG_S = 0.005, 0.005, 0.06
GRAIN_S = 0.16
PLAN = """
knowledge_base: KB
budget: {epsilon: 8, delta: 1.0e-4}
tasks:
  mood:
    kind: classify
    labels: [good, bad]
    earlier_turns: rewrite
    calibrate: none
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 2
    ensemble: 6
    answers: 100000
    mechanism: {type: rnm_gaussian}
  once:
    kind: classify
    release: once
    labels: [good, bad]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    mechanism: {type: prototypes}
"""
Times = tuple[list[float], list[float]]
"""Of the free calls beside answers: first without the canary, then with it."""


class OneProcessor:
    """A language model that computes one thing after the other, by sleeping; so does its embedder."""

    def __init__(self) -> None:
        self._processor = asyncio.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def compute(self, seconds: float) -> None:
        async with self._processor:
            await asyncio.sleep(seconds)

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        await self.compute(PUBLIC_S)
        if task.kind == "generate":
            return ZeroShot(texts=("Is it good?",), tokens=9)
        return ZeroShot(np.full(len(task.labels), 1 / len(task.labels)), tokens=9)

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | None]:
        shown = [exemplar.fields["text"] for slot in slots for exemplar in slot]
        await self.compute(LONG_S if any(CANARY in text for text in shown) else SHORT_S)
        return [np.array([1.0, 0.0]) if slot else None for slot in slots]

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        return Sentence(" ".join(keywords), "simulated")

    async def describe(self) -> EngineInfo:
        return EngineInfo("simulated", "each slot by itself", True, "for attacks: it only takes time")

    async def health(self) -> None:
        return None

    def close(self) -> None:
        return None

    def embed(self, texts: Sequence[str | None]) -> np.ndarray:
        if self.loop is not None:
            asyncio.run_coroutine_threadsafe(self.compute(PUBLIC_S), self.loop).result()
        angles = np.array([zlib.crc32((text or "").encode()) for text in texts], float)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    embed_many = embed_bounded = embed


class Grain(Grains):
    """The grain that the longest slots need."""

    async def of(self, task: SignedTask) -> Measured:
        return Measured(task.address, GRAIN_S, work_s=1.2 * LONG_S)


async def converse(services: Services, number: int) -> None:
    """Have a conversation rewritten, as a question that was answered before."""
    said = (Turn("user", f"I saw film {number}."), Turn("assistant", "Which?"), Turn("user", "Is it good?"))
    await services.answering.answer("free.mood", Conversation(said), key_id="attacker")


async def try_out(services: Services, number: int) -> None:
    """Try a task on a public exemplar."""
    calibrated = read_signed(services.records.ledger.budgets.task("free.mood").document)
    shown = [{"text": "A film.", "label": "good"}]
    await services.trials.try_task(
        calibrated, "mood", f"{number}", shown, embedded_field="text", response_field=None, repeats=1, asker="attacker"
    )


async def ask_one_release(services: Services, number: int) -> None:
    """Ask a task with a one-time release."""
    await services.answering.answer("free.once", f"Is film {number} good?", key_id="attacker")


async def sanitise(services: Services, number: int) -> None:
    """Have a text sanitised that must be embedded."""
    wanted = TextsToSanitize(texts=[f"I saw film {number}."], mechanism="whole_rr")
    sanitizers, texts = services.sanitizers, services.records.texts
    await sanitising.sanitize(ATTACKER, services.answering, sanitizers, texts, wanted)


async def restore(services: Services, _number: int) -> None:
    """Have a redacted text answered."""
    bundle = services.restoring.bundle("clinic@1")
    asked = RedactedText(bundle=bundle.address, bundle_sha256=bundle.sha256, query="has ___", profile=1)
    await restoring.answer(ATTACKER, services.restoring, asked)


Call = Callable[[Services, int], Awaitable[None]]
CALLS: Mapping[str, Call] = {
    "a conversation": converse,
    "a trial": try_out,
    "a one-time answer": ask_one_release,
    "a sanitised text": sanitise,
    "a restored text": restore,
}


def fill(records: Records, name: str, engine: OneProcessor) -> None:
    """Create a knowledge base and sign its plan; the noise is fixed by hand, since the times do not depend on it."""
    records.create_knowledge_base(
        name, epsilon=30, delta=1e-3, public_size=UNITS, fields=["text", "label"], embedded_field="text"
    )
    texts = [f"Film {number}." for number in range(UNITS)] + [f"The {CANARY}."] * (name == "with")
    rows = [Row(number, f"u{number}", {"text": text, "label": "good"}) for number, text in enumerate(texts)]
    records.ingest(name, rows, engine.embed, by="attack")
    noise = {one: TaskNoise(sampling_probability=1.0, mechanism=Gaussian(2.0)) for one in ("mood", "once")}
    epsilon = {"pld": EpsilonRange(lower=0.0, upper=8.0)}
    plan = load_plan(PLAN.replace("KB", name))
    calibrated = CalibratedPlan(plan=plan, public_size=UNITS, noise=noise, epsilon=epsilon, unsupported={})
    sign(records, calibrated, "attack")
    release(records, f"{name}.once", engine.embed)


def opened(folder: Path) -> Services:
    """A service with both knowledge bases, and one whose calls are free."""
    url = f"sqlite:///{folder}/attack.sqlite"
    (folder / "public.txt").write_text("good\nbad\nlong\nshort\n")
    published(folder / "bundles")
    given = {"public_texts": folder / "public.txt", "restore_bundles": folder / "bundles"}
    settings = Settings(database_url=url, development=True, witness_url="none", latency_grain_ms=10, **given)
    records, engine = open_records(settings), OneProcessor()
    for name in ("without", "with", "free"):
        fill(records, name, engine)
    services = open_services(records, engine, engine)
    services.answering.grains = Grain()
    services.sanitizers.prepare()
    return services


def plant(services: Services) -> None:
    """Let free calls take no turn."""
    stages = replace(services.answering.stages, turns=NoTurns())
    services.answering._made.stages = services.answering._rewriting.stages = services.trials._stages = stages
    services.answering.free_call = nullcontext  # type: ignore[method-assign,assignment]
    services.restoring.turns = NoTurns()


async def attack(call: Call, answers: int, *, planted: bool) -> Times:
    """The times of a free call, beside as many answers of both knowledge bases."""
    times: Times = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        services = await asyncio.to_thread(opened, Path(folder))
        services.engine.loop = asyncio.get_running_loop()  # type: ignore[attr-defined]
        if planted:
            plant(services)
        for number in range(answers + 2):
            for side in random.sample((0, 1), 2):
                name = ("without", "with")[side]
                asked = services.answering.answer(f"{name}.mood", f"Is {name} {number} good?", key_id="attacker")
                answer = asyncio.create_task(asked)
                await asyncio.sleep(0.03)  # when its slots are about to be computed
                began = time.perf_counter()
                await call(services, 2 * number + side)
                if number > 1:  # the first ones warm up
                    times[side].append(time.perf_counter() - began)
                await answer
        services.records.database.dispose()
    return times
