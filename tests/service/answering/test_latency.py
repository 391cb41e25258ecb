"""Time: answers take whole grains, and what is in flight reveals nothing of a sample."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from service.answering.latency import Departure, Measured, calm, smallest_grain_s
from service.engines.errors import EngineBusyError
from service.engines.fan_out import Admission
from service.engines.task import Prompt, TaskSpec
from service.environment import InvalidSettingError
from service.settings import Settings

TASK = TaskSpec("t", ("a", "b"), Prompt("", "", ""), ensemble=10, latency_grain_s=5.0)


class SkippingLoop(asyncio.SelectorEventLoop):
    """A real event loop whose clock goes on to the next timer at once, where there is nothing else to do."""

    now = 100.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(work)


def departs(grain_s: float, public_s: float, private_s: float) -> tuple[int, float]:
    """The number of grains by which an answer is late, and the time at which it leaves."""

    async def answer() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        charged, departure = loop.time(), Departure(grain_s)
        await asyncio.sleep(public_s)
        departure.fix()
        await asyncio.sleep(private_s)
        return await departure.wait(), loop.time() - charged

    return run(answer())


@pytest.mark.parametrize(
    ("public", "grains"), [(0.0, 1), (2.49, 1), (2.51, 2), (4.99, 2), (5.01, 2), (7.49, 2), (7.51, 3), (12.0, 3)]
)
def test_when_an_answer_leaves_is_fixed_before_its_sample(public: float, grains: int) -> None:
    """The public probe alone decides; what follows has half a grain, wherever in a grain the probe ended."""
    for private in (0.0, 1.0, 2.48):
        assert departs(5.0, public, private) == (0, pytest.approx(5.0 * grains, abs=1e-9))


@pytest.mark.parametrize(("private", "late"), [(4.9, 0), (5.1, 1), (9.9, 1), (10.1, 2)])
def test_an_answer_that_takes_longer_leaves_after_whole_grains_and_reports_how_many(private: float, late: int) -> None:
    assert departs(5.0, 0.0, private) == (late, pytest.approx(5.0 * (1 + late), abs=1e-9))


@pytest.mark.parametrize("grain", [0.05, 0.4, 0.59])
@pytest.mark.parametrize("public", [0.0, 0.09, 0.11, 0.3, 0.39])
def test_short_grains_leave_the_private_part_three_tenths_of_a_second(grain: float, public: float) -> None:
    """Requests and other programs hold it up for fractions of a second, however short the work is."""
    late, left = departs(grain, public, 0.299)
    assert late == 0
    assert departs(grain, public, 0.0) == (0, pytest.approx(left))


def test_without_a_grain_nothing_waits() -> None:
    assert departs(0.0, 1.0, 2.0) == (0, 3.0)


@pytest.mark.parametrize(
    ("work_s", "grain_s"),
    [(0.0, 0.4), (0.075, 0.4), (0.1, 0.4), (0.1001, 0.41), (0.25, 1.0), (15.15, 61.0), (25.0, 100.0)],
)
def test_the_grain_that_is_chosen_is_the_smallest_of_two_digits(work_s: float, grain_s: float) -> None:
    assert smallest_grain_s(work_s) == pytest.approx(grain_s)


def calmed(within_s: float, callbacks: int) -> tuple[float, int]:
    """Seconds that it waits for a calm loop in which callbacks of 20 ms follow one another, and how many are left."""

    async def wait() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        left = callbacks

        def busy() -> None:
            nonlocal left
            loop.now += 0.02
            left -= 1
            if left > 0:
                loop.call_soon(busy)

        loop.call_soon(busy)
        began = loop.time()
        await calm(within_s)
        return loop.time() - began, left

    return run(wait())


def test_a_sample_is_not_drawn_in_a_burst_of_requests() -> None:
    """What follows a sample has half a grain, and a loop that is far behind would come back to it too late."""
    waited, left = calmed(5.0, 30)
    assert left == 0
    assert 30 * 0.02 <= waited < 30 * 0.02 + 0.05


def test_an_endless_burst_delays_a_sample_by_a_grain_at_most() -> None:
    waited, left = calmed(0.5, 1_000)
    assert left > 0
    assert 0.5 <= waited < 0.6


def test_without_a_grain_no_calm_is_awaited() -> None:
    assert calmed(0.0, 30) == (0.0, 30)


def in_flight(slots_take: float, *, task: TaskSpec = TASK) -> list[tuple[float, int]]:
    """What an engine counts at every half second of a query whose probe takes one."""

    async def query(admission: Admission) -> None:
        with admission.probe(task):
            await asyncio.sleep(1.0)
        with admission.slots(task):
            await asyncio.sleep(slots_take)

    async def watch() -> list[tuple[float, int]]:
        admission = Admission(limit=10)
        work = asyncio.create_task(query(admission))
        seen = []
        for half in range(30):
            await asyncio.sleep(0.25)
            seen.append((half / 2, admission.in_flight))
            await asyncio.sleep(0.25)
        await work
        assert admission.in_flight == 0
        return seen

    return run(watch())


def test_how_long_slots_take_does_not_move_what_is_in_flight() -> None:
    seen = in_flight(0.1)
    assert seen == [(half / 2, 1 if half < 2 else 10 if half < 10 else 0) for half in range(30)]
    assert in_flight(3.9) == seen


def test_what_overruns_its_grain_still_counts_while_it_lasts() -> None:
    counts = dict(in_flight(7.0))
    assert [counts[at] for at in (4.5, 6.5, 7.5, 8.0, 9.0)] == [10, 10, 10, 0, 0]


def test_a_busy_engine_takes_a_query_again_when_the_answer_before_it_has_left() -> None:
    async def test() -> None:
        admission = Admission(limit=10)
        with admission.probe(TASK), admission.slots(TASK):
            pass
        await asyncio.sleep(4.9)  # its slots were done long ago
        with pytest.raises(EngineBusyError), admission.probe(TASK):
            pass
        await asyncio.sleep(0.2)
        with admission.probe(TASK):
            assert admission.in_flight == 1

    run(test())


def test_a_failed_probe_leaves_nothing_in_flight() -> None:
    async def test() -> int:
        admission = Admission(limit=10)
        with pytest.raises(RuntimeError), admission.probe(TASK):
            raise RuntimeError("down")
        return admission.in_flight

    assert run(test()) == 0


LONG = Measured("t", work_s=2.0, typical_s=0.5, grain_s=5.0, tokens=100, beside=300)


def test_longer_questions_than_were_measured_have_more_time() -> None:
    assert [LONG.times(tokens) for tokens in (0, 99, 100)] == [1.0, 1.0, 1.0]
    assert Measured("t", 5.0, work_s=2.0).times(400) == 1.0  # the engine counts none
    for measured, beside in ((LONG, 300), (replace(LONG, beside=0), 0)):
        for tokens in (101, 150, 400, 3000):
            # A calibrated slot: the question in one prompt, and in eight others that do not grow with it.
            ratio = (tokens + beside + 8 * 60) / (100 + beside + 8 * 60)
            deeper = (1 + (tokens + 300) / 6912) / (1 + (100 + 300) / 6912)  # what attention adds, in SmolLM2's layers
            assert ratio * deeper <= measured.times(tokens)

    async def grains(times: float, waits_s: float) -> int:
        departure = Departure(5.0)
        await asyncio.sleep(waits_s)
        departure.fix(times)
        await departure.wait()
        return departure._grains

    assert [run(grains(*given)) for given in ((1.0, 0.0), (3.0, 0.0), (4.1, 0.0), (1.0, 2.6), (1.0, 7.6))] == [
        *(1, 2, 3),
        *(2, 3),
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"latency_grain_ms": 0}, "DPICL_LATENCY_UNPADDED=true"),
        ({"latency_grain_ms": 100, "latency_unpadded": True}, "unset"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        Settings(**settings)
