"""One at a time: however many ask, no call of the engine or the embedder is made beside a private part."""

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting.ledger.errors import UnknownTaskError
from accounting.plans.plan import load_plan
from sanitization.restore.bundle import Bundle
from service.answering import answering as pipeline
from service.answering.answering import BusyError
from service.answering.conversations import Conversation, Turn
from service.answering.latency import Departure
from service.answering.plans.signing import release, sign
from service.answering.turns import NoTurns
from service.engines.task import TaskSpec, ZeroShot
from service.operations import restoring, sanitising, sanitising_preview
from service.operations.restoring import RedactedText
from service.operations.roles import Actor
from service.operations.sanitising import TextsToSanitize
from service.operations.services import Services, open_services
from service.records.signed import read_signed
from service.settings import Settings
from tests.sanitization.restore.made_up import published
from tests.service.answering.test_once import PLAN
from tests.service.conftest import Embedding, MajorityEngine, embed, make_records, nearly_noiseless, states

pytestmark = pytest.mark.slow

PRIVATE_S = 0.3
ANA = Actor("k", "k", "key", "analyst")
TURNS = (Turn("user", "I have a kite."), Turn("assistant", "From where?"), Turn("user", "From Spain. Is it red?"))


class Watched(MajorityEngine):
    """A model that computes one thing after the other, by sleeping; ``beside`` has what was begun beside private parts.

    Attributes:
        private: number of private parts that it works on.
        begun: set when there is one.
    """

    info = replace(MajorityEngine.info, is_llm=True)

    def __init__(self) -> None:
        super().__init__()
        self.private = 0
        self.begun = asyncio.Event()
        self.beside: list[str] = []
        self._processor = asyncio.Lock()

    def note(self, what: str) -> None:
        if self.private:
            self.beside.append(what)

    async def zero_shot(self, task, query):
        self.note("zero-shot")
        if task.kind == "generate":
            return ZeroShot(texts=("Is the kite red?",), tokens=10)
        return replace(await super().zero_shot(task, query), tokens=10)

    async def contributions(self, task, query, slots, zero_shot):
        self.note("slots")
        private = task.knowledge_base == "toys"
        self.private += private
        self.begun.set()
        try:
            async with self._processor:
                await asyncio.sleep(PRIVATE_S)
            return await super().contributions(task, query, slots, zero_shot)
        finally:
            self.private -= private


class Steered:
    """A model beside it that is steered by a bundle."""

    def __init__(self, engine: Watched, bundle: Bundle) -> None:
        self.engine, self.bundle = engine, bundle

    async def bundles(self) -> frozenset[str]:
        return frozenset({self.bundle.sha256})

    async def health(self) -> None:
        return None

    async def restore(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> np.ndarray:
        self.engine.note("steering")
        return np.eye(len(task.labels))[0]

    async def restore_text(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> str:
        self.engine.note("steering")
        return "rest"


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    engine = Watched()

    def embedded(texts: Sequence[str]) -> np.ndarray:
        engine.note("embedding")
        angles = np.array([zlib.crc32(text.encode()) for text in texts], float)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    (tmp_path / "public.txt").write_text("a kite\na boat\na ball\na drum\n")
    given = {"public_texts": tmp_path / "public.txt", "restore_bundles": tmp_path / "bundles"}
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'service.sqlite'}", development=True, **given)
    records = make_records(tmp_path, epsilon=200, settings=settings)
    plan = PLAN.replace("answers: 2\n", "answers: 40\n    earlier_turns: rewrite\n    calibrate: none\n")
    sign(records, nearly_noiseless(load_plan(plan)), "test")
    release(records, "toys.for-ever", embed)
    steered = Steered(engine, published(tmp_path / "bundles"))
    services = open_services(records, engine, Embedding(embedded), steerer=steered)
    services.sanitizers.prepare()
    return services


async def converse(services: Services) -> None:
    await services.answering.answer("toys.colour", Conversation(TURNS), key_id="k")


async def answer_from_one_release(services: Services) -> None:
    await services.answering.answer("toys.for-ever", "a kite", key_id="k")


async def try_out(services: Services) -> None:
    calibrated = read_signed(services.records.ledger.budgets.task("toys.colour").document)
    toys = [{"text": "a kite", "label": "red"}]
    await services.trials.try_task(
        calibrated, "colour", "a boat", toys, embedded_field="text", response_field=None, repeats=2, asker="k"
    )


async def measure(services: Services) -> None:
    services.grains.overran(services.records.ledger.budgets.task("toys.colour"))
    await services.grains.all()


async def ask(services: Services) -> None:
    await services.answering.answer("toys.colour", "another", key_id="k")


async def sanitise(services: Services) -> None:
    wanted = TextsToSanitize(texts=["a kite and a boat"], mechanism="whole_rr")
    await sanitising.sanitize(ANA, services.answering, services.sanitizers, services.records.texts, wanted)


async def preview_sanitising(services: Services) -> None:
    chief = Actor("chief", "chief", "account", "admin")
    await sanitising_preview.show(chief, services.answering, services.sanitizers, "two kites", 8.0, "whole_rr", [])


async def restore_steered(services: Services) -> None:
    bundle = services.restoring.bundle("clinic@1")
    asked = {"bundle": bundle.address, "bundle_sha256": bundle.sha256, "query": "has ___", "profile": 1}
    await restoring.answer(ANA, services.restoring, RedactedText(**asked, mode="steer"))


FREE: list[Callable[[Services], Awaitable[None]]] = [
    converse,
    answer_from_one_release,
    try_out,
    measure,
    ask,
    sanitise,
    preview_sanitising,
    restore_steered,
]


async def beside_a_private_part(services: Services, call: Callable[[Services], Awaitable[None]]) -> list[str]:
    """The calls that are made while the engine works on an answer's private part."""
    await services.grains.all()
    engine = services.engine
    engine.begun.clear()
    answer = asyncio.create_task(services.answering.answer("toys.colour", "a question", key_id="k"))
    await engine.begun.wait()
    await call(services)
    await answer
    return engine.beside


@pytest.mark.parametrize("call", FREE)
async def test_no_call_is_made_beside_a_private_part(services: Services, call) -> None:
    assert await beside_a_private_part(services, call) == []


@pytest.mark.parametrize("call", FREE)
async def test_without_turns_each_of_them_is(services: Services, call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a call that takes no turn shows how long private parts take."""
    taken = services.answering.stages.turns
    monkeypatch.setattr(type(taken), "begin", NoTurns.begin)
    assert await beside_a_private_part(services, call) != []


async def test_texts_of_known_words_take_no_turn(services: Services) -> None:
    """They are sanitised without an embedding, and so without waiting for answers."""
    wanted = TextsToSanitize(texts=["a kite", "a boat"], mechanism="whole_rr")
    before = services.answering.stages.turns._number
    await sanitising.sanitize(ANA, services.answering, services.sanitizers, services.records.texts, wanted)
    assert services.answering.stages.turns._number == before
    await sanitise(services)
    assert services.answering.stages.turns._number == before + 1


async def late(services: Services, callers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of answers that miss their grain, of callers that ask at once."""
    wait, overran = Departure.wait, 0

    async def counted(departure: Departure) -> int:
        nonlocal overran
        grains = await wait(departure)
        overran += grains > 0
        return grains

    monkeypatch.setattr(Departure, "wait", counted)
    await services.grains.all()
    asked = [services.answering.answer("toys.colour", f"question {n}", key_id="k") for n in range(callers)]
    await asyncio.gather(*asked)
    return overran


async def test_callers_who_ask_at_once_wait_for_each_other_and_none_is_late(services: Services, monkeypatch) -> None:
    assert await late(services, 16, monkeypatch) == 0
    assert states(services) == {"released": 16 + 1}
    assert services.engine.beside == []


async def test_side_by_side_they_would_be_late(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(services.answering.stages.turns), "begin", NoTurns.begin)
    assert await late(services, 16, monkeypatch) > 8


async def test_who_would_wait_too_long_comes_back_when_there_is_room(services: Services) -> None:
    """A refusal states when the queue is short enough again, which public things alone decide."""
    await services.grains.all()
    stages = services.answering.stages
    await stages.turns.begin(stages.timeout_s + 14.5, most_s=stages.timeout_s + 20)
    with pytest.raises(BusyError, match="come back in 15 seconds") as refused:
        await ask(services)
    assert refused.value.retry_after_s == 15


async def test_questions_begin_apart(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd that comes at once does not take the processor from an answer that is due."""
    began: list[float] = []
    budgets = services.answering.ledger.budgets
    task = type(budgets).task

    def noted(*arguments: object) -> object:
        began.append(time.monotonic())
        return task(*arguments)

    monkeypatch.setattr(type(budgets), "task", noted)
    asked = [services.answering.answer("toys.none", f"question {n}", key_id="k") for n in range(6)]
    assert all(
        isinstance(refused, UnknownTaskError) for refused in await asyncio.gather(*asked, return_exceptions=True)
    )
    assert len(began) == 6
    assert max(began) - min(began) > 4.5 * pipeline._APART_S
