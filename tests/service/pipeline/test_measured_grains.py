"""Latency grains: measured with the largest slots there can be, chosen or refused by that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from accounting.plan import CalibratedPlan
from aggregation.keywords import keywords
from exemplar_store import MAX_EXEMPLAR_BYTES, Slot
from exemplar_store.exemplar import content
from service.engines.protocol import EngineUnavailableError
from service.pipeline.latency import GrainTooSmallError
from service.plans.signing import sign
from service.services import Services, open_services
from service.settings import Settings
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records

SLOW_S = 0.12


class SlowEngine(MajorityEngine):
    """Takes its time, and keeps the slots that it was shown."""

    def __init__(self, takes_s: float = SLOW_S) -> None:
        super().__init__()
        self.takes_s = takes_s
        self.shown: list[Sequence[Slot]] = []

    async def contributions(self, task, query, slots, zero_shot):
        self.shown.append(slots)
        time.sleep(self.takes_s)  # noqa: ASYNC251  (work, not waiting)
        return await super().contributions(task, query, slots, zero_shot)


def padded(folder: Path, calibrated: CalibratedPlan, engine: MajorityEngine, **settings) -> Services:
    url = f"sqlite:///{folder / 'service.sqlite'}"
    records = make_records(folder, settings=Settings(database_url=url, development=True, **settings))
    sign(records, calibrated, "test")
    return open_services(records, engine, EMBEDDER)


def test_the_slots_measured_are_as_large_as_any_can_be(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    engine = SlowEngine(0.0)
    services = padded(tmp_path, calibrated, engine)
    (measured,) = asyncio.run(services.grains.all())
    assert (measured.task, measured.problem) == ("toys.colour@1", "")
    for slots in engine.shown:
        assert [len(slot) for slot in slots] == [4] * 10  # the task's ensemble, and the most that its slots keep
        (size,) = {len(content(exemplar.fields, list(exemplar.fields))) for slot in slots for exemplar in slot}
        assert 0.8 * MAX_EXEMPLAR_BYTES < size <= MAX_EXEMPLAR_BYTES
        said = [keywords(exemplar.fields["text"]) for exemplar, *_ in slots]
        assert len(frozenset().union(*said)) == sum(map(len, said))  # as many words to count as there can be
    assert services.records.ledger.budgets.statuses()[0].tasks[0].charged == 0


def test_where_no_grain_is_set_one_that_hides_the_work_is_chosen(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    services = padded(tmp_path, calibrated, SlowEngine())
    assert services.grains.report is None
    (measured,) = asyncio.run(services.grains.all())
    assert services.grains.report == [measured]
    assert measured.work_s >= SLOW_S
    assert measured.grain_s in (0.5, 1.0, 2.0, 5.0)
    assert measured.grain_s >= 2 * measured.work_s


def test_another_plan_under_a_tasks_number_is_measured_itself(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    """As a restore can leave it: numbers are given again."""
    engine = SlowEngine(0.0)
    services = padded(tmp_path, calibrated, engine)
    task = services.records.ledger.budgets.task("toys.colour")
    document = task.document.replace('"ensemble":10,', '"ensemble":20,')
    assert document != task.document
    other = replace(task, plan=replace(task.plan, document=document, digest="of another"))

    async def both() -> None:
        await services.grains.of(task)
        assert {len(slots) for slots in engine.shown} == {10}
        await services.grains.of(other)

    asyncio.run(both())
    assert {len(slots) for slots in engine.shown} == {10, 20}


def test_a_grain_below_twice_the_work_is_refused_and_nothing_is_charged(
    tmp_path: Path, calibrated: CalibratedPlan
) -> None:
    services = padded(tmp_path, calibrated, SlowEngine(), latency_grain_ms=150)
    (measured,) = asyncio.run(services.grains.all())
    assert "set DPICL_LATENCY_GRAIN_MS to at least" in measured.problem
    with pytest.raises(GrainTooSmallError, match="a latency grain of 150 ms does not hide that"):
        asyncio.run(services.answering.answer("toys.colour", "q", key_id="k"))
    assert services.records.ledger.budgets.statuses()[0].tasks[0].states["charged"] == 0


def test_an_answer_waits_for_the_measurement_and_keeps_its_grain(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    services = padded(tmp_path, calibrated, SlowEngine())

    async def ask() -> float:
        grain = await services.grains.of(services.records.ledger.budgets.task("toys.colour"))
        started = time.monotonic()
        await services.answering.answer("toys.colour", "q", key_id="k")
        assert time.monotonic() - started >= grain
        return grain

    assert asyncio.run(ask()) >= 0.5


def test_a_grain_that_outlives_a_charge_is_refused(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    services = padded(tmp_path, calibrated, SlowEngine(), lease_s=64.2, query_timeout_s=1.0)
    (measured,) = asyncio.run(services.grains.all())
    assert "raise DPICL_LEASE_S" in measured.problem


def test_a_task_that_is_refused_is_measured_again_and_others_do_not_wait(
    tmp_path: Path, calibrated: CalibratedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else may have kept the machine busy when the service started."""
    engine = SlowEngine()
    services = padded(tmp_path, calibrated, engine, latency_grain_ms=150)
    monkeypatch.setattr("service.pipeline.measured_grains.REFUSED_FOR_S", 0.05)

    async def both() -> None:
        task = services.records.ledger.budgets.task("toys.colour")
        with pytest.raises(GrainTooSmallError):
            await services.grains.of(task)
        engine.takes_s = 0.0
        await asyncio.sleep(0.1)
        assert await services.grains.of(task) == 0.15
        async with services.grains._turn:  # another task is being measured
            assert await asyncio.wait_for(services.grains.of(task), 1) == 0.15

    asyncio.run(both())


def test_an_engine_that_is_down_is_measured_when_it_is_up(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    engine = SlowEngine(0.0)
    services = padded(tmp_path, calibrated, engine)
    engine.down = True
    with pytest.raises(EngineUnavailableError):
        asyncio.run(services.grains.all())
    engine.down = False
    assert len(asyncio.run(services.grains.all())) == 1


def test_without_padding_nothing_is_measured(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    engine = SlowEngine(0.0)
    services = padded(tmp_path, calibrated, engine, latency_unpadded=True)
    assert list(asyncio.run(services.grains.all())) == []
    assert engine.shown == []
