"""Answers that slots write together take their places by public numbers, before a sample is drawn."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, PlanError, load_plan
from service.answering.answering import BusyError
from service.answering.latency import GrainTooSmallError
from service.answering.plans.signing import check_engine
from service.engines.protocol import EngineInfo
from service.operations.services import Services
from service.records.engine_record import note_engine
from service.records.records import Records
from tests.service.answering.test_measured_grains import measure, padded
from tests.service.conftest import TEXT_PLAN, MajorityEngine, nearly_noiseless, states
from tests.service.engines.roomy import WRITES, Roomy

SENTENCES = load_plan(TEXT_PLAN.format(epsilon=30, answers=2, mechanism="type: token_ensemble, tokens: 5"))


class Writer(Roomy, MajorityEngine):
    """Notes the order of its calls, and the turn of each.

    Attributes:
        problem: reason why there is no room for all slots.
        free: event that makes turns available.
        waits_s: seconds until a turn comes.
    """

    info = replace(MajorityEngine.info, is_llm=True, **WRITES)
    problem = ""
    waits_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.turns: list[tuple[int, float]] = []
        self.free = asyncio.Event()
        self.free.set()

    async def zero_shot(self, task, query):
        return replace(await super().zero_shot(task, query), tokens=len(query["text"].split()))

    async def room(self, task, tokens, blocks, most):
        self.events.append(f"room for {most}")
        return self.problem

    async def turn(self, task, tokens, takes_s):
        await self.free.wait()
        await asyncio.sleep(self.waits_s)
        self.turns.append((tokens, takes_s))
        self.events.append("turn")
        return f"turn {len(self.turns)}"

    async def write(self, task, query, slots, zero_shot):
        assert not task.measuring or len(slots) == task.most_slots
        self.events.append(f"write in {task.turn}")
        return "written"


@pytest.fixture
def engine() -> Writer:
    return Writer()


@pytest.fixture
def services(tmp_path: Path, engine: Writer) -> Services:
    return padded(tmp_path, nearly_noiseless(SENTENCES), engine, query_timeout_s=5.0)


async def test_places_are_taken_before_the_sample_is_drawn_for_as_long_as_the_largest_slots_take(
    services: Services, engine: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = (await services.grains.all())[0]
    engine.events.clear()
    engine.turns.clear()
    sample = services.records.store.sample_slots

    def noting(*args, **options):
        engine.events.append("sample")
        return sample(*args, **options)

    monkeypatch.setattr(services.records.store, "sample_slots", noting)
    await services.answering.answer("toys.story", "a red boat", key_id="k")
    assert engine.events == ["turn", "sample", "write in turn 1"]
    assert engine.turns == [(3, pytest.approx(measured.work_s))]


async def test_a_question_whose_turn_does_not_come_is_refused_and_not_charged(services, engine) -> None:
    services.answering.stages = replace(services.answering.stages, timeout_s=0.3)
    await services.grains.all()
    engine.free.clear()
    with pytest.raises(BusyError):
        await services.answering.answer("toys.story", "a boat", key_id="k")
    assert states(services) == {"voided": 1}


async def test_waiting_for_a_turn_counts_as_public_time(services: Services, engine: Writer) -> None:
    """The number of grains is fixed after the wait: what follows has half a grain to itself."""
    measured = (await services.grains.all())[0]
    loop = asyncio.get_running_loop()
    engine.waits_s = 1.6 * measured.grain_s
    began = loop.time()
    await services.answering.answer("toys.story", "a boat", key_id="k")
    assert loop.time() - began >= 3 * measured.grain_s


@pytest.mark.parametrize("slots", [40, 300])
def test_all_slots_are_measured_and_their_places_are_not_part_of_it(tmp_path, engine: Writer, slots: int) -> None:
    """The largest number of slots is measured, not a smaller one from which the time is extrapolated."""
    plan = _with_ensemble(slots)
    assert measure(padded(tmp_path, plan, engine)).problem == ""
    assert engine.events[:2] == [f"room for {slots}"] * 2
    assert engine.turns  # Writer.write asserts how many slots there are


def test_a_plan_whose_slots_do_not_fit_the_engine_is_refused_when_it_starts(services, engine) -> None:
    engine.problem = "there are too few places"
    assert "too few places" in measure(services).problem
    with pytest.raises(GrainTooSmallError):
        asyncio.run(services.answering.answer("toys.story", "a boat", key_id="k"))
    assert states(services) == {}
    assert not any(event.startswith("write") for event in engine.events)


@pytest.mark.parametrize(
    ("room", "field"),
    [
        ({}, None),
        ({"writing_slots": 40 + 6 * 6 + 6 - 1}, "ensemble"),
        ({"cache_tokens": 82 * (1024 + 5) - 1}, "slot_tokens"),
        ({"cache_tokens": 82 * 512 - 1, "model_tokens": 512}, "slot_tokens"),
        ({"cache_tokens": 82 * 512, "model_tokens": 512}, None),
    ],
)
def test_a_plan_whose_slots_do_not_fit_the_engine_is_not_signed(records: Records, room, field) -> None:
    """All slots that blocks may draw are counted, each as large as it may be."""
    described = EngineInfo("vllm", "isolated", True, "", **{**WRITES, **room})
    note_engine(records.database, described)
    written = yaml.safe_load(TEXT_PLAN.format(epsilon=1, answers=10, mechanism="type: token_ensemble, tokens: 5"))
    written["tasks"]["story"] |= {"ensemble": 40, "shots": 1, "sampling": "blocks"}
    plan = load_plan(yaml.safe_dump(written, sort_keys=False))
    if field is None:
        check_engine(records, plan)
        return
    with pytest.raises(PlanError, match=rf"tasks\.story\.{field}: "):
        check_engine(records, plan)


def _with_ensemble(slots: int) -> CalibratedPlan:
    calibrated = nearly_noiseless(SENTENCES)
    task = calibrated.plan.tasks["story"].model_copy(update={"ensemble": slots})
    return calibrated.model_copy(update={"plan": calibrated.plan.model_copy(update={"tasks": {"story": task}})})


async def test_a_trial_takes_a_turn_for_each_text(services: Services, engine: Writer) -> None:
    await services.grains.all()
    engine.turns.clear()
    exemplars = [{"text": "a kite", "label": "flies"}]
    plan, public = nearly_noiseless(SENTENCES), {"embedded_field": "text", "response_field": None, "asker": ""}
    await services.trials.try_task(plan, "story", "a boat", exemplars, repeats=2, **public)
    assert [takes_s for _, takes_s in engine.turns] == [0.0, 0.0]  # the time that it takes is public
