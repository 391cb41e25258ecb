"""Blocks read ahead: when they are read again, how long that takes, and what it holds up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from accounting.plans.plan import CalibratedPlan, load_plan
from exemplar_store import Layout, Slot, read_json_lines
from service.answering import kept_blocks
from service.answering.answering import BusyError
from service.answering.latency import GrainTooSmallError, Measured
from service.engines.errors import EngineUnavailableError, NotKeptError
from service.operations.services import Services
from tests.service.answering.test_answering import BLOCKS_PLAN
from tests.service.answering.test_measured_grains import LanguageModel, padded
from tests.service.conftest import embed, nearly_noiseless, rows, states
from tests.service.engines.contract import EngineContract, KeepingContract

pytestmark = pytest.mark.slow

ANSWER_S = 0.05


class KeepingEngine(LanguageModel):
    """Keeps the blocks that it is given, and abstains from all others."""

    info = replace(LanguageModel.info, keeps_blocks=True)

    def __init__(self) -> None:
        super().__init__(ANSWER_S)
        self.kept: dict[str, list[Slot]] = {}
        self.calls: list[tuple[str, int]] = []
        self.has_room, self.this, self.takes_s_to_read, self.takes_s_to_measure = "", "first", 0.0, 0.1

    async def room(self, task, tokens, blocks, most) -> str:
        return self.has_room

    async def keep(self, task, blocks: Sequence[Slot]) -> str:
        measuring = blocks and "measurements" in task.knowledge_base
        await asyncio.sleep(self.takes_s_to_measure if measuring else self.takes_s_to_read)
        self.calls.append((task.knowledge_base, len(blocks)))
        self.kept[task.knowledge_base] = list(blocks)
        return self.this

    async def zero_shot(self, task, query):
        if task.kept and task.kept != self.this:
            raise NotKeptError("anew")
        return await super().zero_shot(task, query)

    async def contributions(self, task, query, slots, zero_shot):
        outputs = await super().contributions(task, query, slots, zero_shot)
        if not task.kept:
            return outputs
        kept = {contents(slot) for slot in self.kept[task.knowledge_base]}
        return [output if contents(slot) in kept else None for slot, output in zip(slots, outputs, strict=True)]


def contents(slot: Slot) -> tuple[str, ...]:
    return tuple(exemplar.fields["text"] for exemplar in slot)


@pytest.fixture
def engine() -> KeepingEngine:
    return KeepingEngine()


class TestContract(EngineContract, KeepingContract):
    slots, changed = 12, 1


@pytest.fixture
def services(tmp_path: Path, engine: KeepingEngine, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setattr("service.answering.measured_grains._RUNS", 1)
    return padded(tmp_path, plan(), engine)


def plan() -> CalibratedPlan:
    return nearly_noiseless(load_plan(BLOCKS_PLAN.replace("max_exemplars: 9", "max_exemplars: 25")))


def private(engine: KeepingEngine) -> list[int]:
    return [count for name, count in engine.calls if name == "toys"]


def more(services: Services, number: int) -> None:
    exemplars = [{"unit_id": f"more {number}", "text": f"more {number}", "label": "red"}]
    services.records.ingest("toys", read_json_lines(rows(exemplars), Layout(("text", "label"))), embed, by="t")


def ask(services: Services, query: str):
    return services.answering.answer("toys.colour", query, key_id="k")


@pytest.mark.slow
async def test_blocks_are_read_before_the_first_answer_and_again_after_each_change(services, engine) -> None:
    engine.takes_s_to_measure = 2.0
    (measured,) = await services.grains.all()
    assert (measured.blocks, measured.cold, measured.beside) == (8, "", 0)
    assert measured.work_s < 2.0  # without the time of reading: warm blocks are measured
    assert measured.block_s * 22 >= 2.0  # 22 made up: as many as a sample may have
    assert private(engine) == [8]
    await ask(services, "one")
    await ask(services, "two")
    assert private(engine) == [8]
    await asyncio.to_thread(services.records.forget, "toys", "u1", by="t")
    await ask(services, "three")
    await asyncio.to_thread(more, services, 1)
    await asyncio.gather(ask(services, "four"), ask(services, "five"))
    assert private(engine) == [8, 8, 8]


async def test_questions_go_on_after_a_public_time_however_long_reading_takes(services, engine, monkeypatch) -> None:
    """The grains hide the reading of as many of the largest blocks as public events can have changed."""
    grains: list[float] = []

    @asynccontextmanager
    async def grain(grain_s: float) -> AsyncIterator[None]:
        engine.takes_s = 0.0
        grains.append(grain_s)
        yield
        assert not engine.shown  # no question before it is over

    @asynccontextmanager
    async def noted(_turns, *, about_s: float) -> AsyncIterator[None]:
        grains.append(about_s)
        yield

    def forget(unit: str):
        return lambda: services.records.forget("toys", unit, by="t")

    await services.grains.all()
    largest = Measured("t", 0.2, work_s=0.1, tokens=15, blocks=8, block_s=2.0, rows_s=0.5)
    monkeypatch.setattr(services.grains, "of", lambda _task: asyncio.sleep(0, largest))
    monkeypatch.setattr(kept_blocks, "on_grain", grain)
    monkeypatch.setattr(kept_blocks, "turn", noted)
    changes = [
        [lambda: more(services, 1)],
        [forget("u1")],
        [forget("u2"), forget("u3")],
        [forget("u4"), lambda: more(services, 2)],
        [],
    ]
    for number, some in enumerate(changes):
        for change in some:
            await asyncio.to_thread(change)
        engine.shown.clear()
        await ask(services, f"{number}")
    whole, one, two = (1.5 * (0.5 + 2.0 * blocks) for blocks in (8, 1, 2))
    assert grains == [whole, whole, one, one, two, two, whole, whole]


async def test_a_block_that_changes_between_reading_and_drawing_abstains_and_arrivals_do_not_matter(
    services, engine, monkeypatch
) -> None:
    said: list[list] = []
    answered = engine.contributions

    async def spy(task, query, slots, zero_shot):
        outputs = await answered(task, query, slots, zero_shot)
        if task.kept and task.knowledge_base == "toys":
            said.append([output is None for output, slot in zip(outputs, slots, strict=True) if slot])
        return outputs

    sample = kept_blocks.ExemplarStore.sample_blocks

    def every_block(*args, **options):
        return sample(*args, **{**options, "probability": 1.0})

    await services.grains.all()
    monkeypatch.setattr(engine, "contributions", spy)
    charge = services.records.ledger.charge
    monkeypatch.setattr("service.answering.draw.ExemplarStore.sample_blocks", every_block)

    def then_change(change):
        def charged(*args, **options):
            outcome = charge(*args, **options)
            change()
            return outcome

        return charged

    monkeypatch.setattr(services.records.ledger, "charge", then_change(lambda: more(services, 1)))
    await ask(services, "arrives")
    forget = then_change(lambda: services.records.forget("toys", "u3", by="t"))
    monkeypatch.setattr(services.records.ledger, "charge", forget)
    await ask(services, "goes")
    monkeypatch.setattr(services.records.ledger, "charge", charge)
    await ask(services, "after")
    assert [sum(one) for one in said] == [0, 1, 0]


async def test_units_that_are_drawn_had_arrived_when_the_blocks_were_read(services, engine, monkeypatch) -> None:
    """Units that came after the check of the question count as well, because the blocks were read again."""
    await services.grains.all()
    measured, sample, said = services.grains.of, kept_blocks.ExemplarStore.sample_blocks, []

    async def of(task):
        await asyncio.to_thread(more, services, 1)
        return await measured(task)

    def every_block(*args, **options):
        drawn = sample(*args, **{**options, "probability": 1.0})
        said.extend(contents(slot) for slot in drawn)
        return drawn

    monkeypatch.setattr(services.grains, "of", of)
    monkeypatch.setattr("service.answering.draw.ExemplarStore.sample_blocks", every_block)
    await ask(services, "checked before")
    read, drawn = said[:8], said[8:]
    assert any("more 1" in block for block in drawn)
    assert drawn == read == [contents(slot) for slot in engine.kept["toys"]]


async def test_answers_are_done_before_blocks_are_read_again_and_questions_wait_their_turn(services, engine) -> None:
    order: list[str] = []
    answered, keep, asked = engine.contributions, engine.keep, asyncio.Event()

    async def slow(*args):
        asked.set()
        await asyncio.sleep(0.3)
        outputs = await answered(*args)
        order.append("answered")
        return outputs

    async def noted(*args):
        order.append("read")
        return await keep(*args)

    await services.grains.all()
    engine.contributions, engine.keep = slow, noted
    first = asyncio.create_task(ask(services, "one"))
    await asked.wait()
    await asyncio.to_thread(more, services, 1)
    await asyncio.gather(first, ask(services, "two"))
    assert order == ["answered", "read", "answered"]


async def test_a_question_does_not_wait_longer_than_an_answer_may_take(services, engine, monkeypatch) -> None:
    (measured,) = await services.grains.all()
    await asyncio.to_thread(more, services, 1)
    slow = replace(measured, rows_s=2.0)
    monkeypatch.setattr(services.grains, "of", lambda _task: asyncio.sleep(0, slow))
    monkeypatch.setattr(services.answering.blocks, "_stages", replace(services.answering.stages, timeout_s=0.2))
    with pytest.raises(BusyError):
        await ask(services, "one")
    assert states(services) == {}


async def test_an_engine_that_starts_anew_reads_again_and_nothing_is_charged_meanwhile(services, engine) -> None:
    await services.grains.all()
    engine.this = "second"
    with pytest.raises(EngineUnavailableError):
        await ask(services, "one")
    assert private(engine) == [8]
    assert (await ask(services, "one")).charged
    assert private(engine) == [8, 8]


async def test_reading_that_fails_charges_nothing_and_is_tried_again(services, engine) -> None:
    await services.grains.of(services.records.ledger.budgets.task("toys.colour"))
    keep, engine.keep = engine.keep, AsyncMock(side_effect=RuntimeError("of a block's own text"))
    with pytest.raises(EngineUnavailableError) as error:
        await ask(services, "one")
    assert "own text" not in str(error.value)
    assert states(services).keys() <= {"voided"}
    engine.keep = keep
    assert (await ask(services, "one")).charged


def test_without_room_the_grain_is_that_of_cold_caches_and_the_reason_is_given(tmp_path: Path, engine) -> None:
    engine.has_room = "raise kv_cache_gib to 7"
    (measured,) = asyncio.run(padded(tmp_path, plan(), engine).grains.all())
    assert (measured.blocks, measured.cold, measured.beside) == (0, "raise kv_cache_gib to 7", 1024)
    assert engine.calls == []


def test_units_are_measured_as_before(tmp_path: Path, engine, calibrated: CalibratedPlan) -> None:
    (measured,) = asyncio.run(padded(tmp_path, calibrated, engine).grains.all())
    assert (measured.blocks, measured.cold) == (0, "")
    assert engine.calls == []


def test_made_up_blocks_that_are_not_answered_are_let_go(services, engine) -> None:
    engine.silent = 1
    (measured,) = asyncio.run(services.grains.all())
    assert "1 of 22 of the largest" in measured.problem
    assert [count for _, count in engine.calls] == [22, 0]
    with pytest.raises(GrainTooSmallError):
        asyncio.run(ask(services, "q"))
