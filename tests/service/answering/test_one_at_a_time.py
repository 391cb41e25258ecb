"""One at a time: however many ask, no call of the engine or the embedder is made beside a private part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting.plans.plan import load_plan
from service.answering.conversations import Conversation, Turn
from service.answering.latency import Departure
from service.answering.plans.signing import release, sign
from service.answering.turns import NoTurns
from service.engines.task import ZeroShot
from service.operations.services import Services, open_services
from service.records.signed import read_signed
from service.settings import Settings
from tests.service.answering.test_once import PLAN
from tests.service.conftest import Embedding, MajorityEngine, embed, make_records, nearly_noiseless, states

pytestmark = pytest.mark.slow

PRIVATE_S = 0.3
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


@pytest.fixture
def services(tmp_path: Path) -> Services:
    engine = Watched()

    def embedded(texts: Sequence[str]) -> np.ndarray:
        engine.note("embedding")
        return embed(texts)

    settings = Settings(database_url=f"sqlite:///{tmp_path / 'service.sqlite'}", development=True)
    records = make_records(tmp_path, epsilon=200, settings=settings)
    plan = PLAN.replace("answers: 2\n", "answers: 40\n    earlier_turns: rewrite\n    calibrate: none\n")
    sign(records, nearly_noiseless(load_plan(plan)), "test")
    release(records, "toys.for-ever", embed)
    return open_services(records, engine, Embedding(embedded))


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


FREE: list[Callable[[Services], Awaitable[None]]] = [converse, answer_from_one_release, try_out, measure, ask]


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
