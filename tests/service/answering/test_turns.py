"""Turns: one at a time, in order, by public times alone."""

import asyncio

import pytest

from service.answering.turns import Turns, turn
from service.engines.errors import EngineBusyError
from tests.service.answering.test_latency import run


def begun(*lasting: tuple[float, float]) -> list[float]:
    """When each turn begins, of calls that come at once; each turn is ended after, and then still lasts, seconds."""

    async def ask(turns: Turns, begins: list[float], works_s: float, lasts_s: float) -> None:
        async with turn(turns) as taken:
            begins.append(asyncio.get_running_loop().time() - 100.0)
            await asyncio.sleep(works_s)
            await taken.end(lasts_s)
        await asyncio.sleep(1000.0)  # how long it works on does not matter

    async def all_at_once() -> list[float]:
        turns, begins = Turns(), []
        await asyncio.gather(*(ask(turns, begins, *times) for times in lasting))
        return begins

    return run(all_at_once())


def test_each_begins_when_the_one_before_it_has_ended() -> None:
    assert begun((1.0, 0.0), (0.5, 2.0), (0.0, 0.0), (0.0, 5.0), (1.0, 1.0)) == [0.0, 1.0, 3.5, 3.5, 8.5]


def test_a_turn_ends_with_its_block_however_that_ends_and_at_last_by_itself() -> None:
    async def test() -> list[float]:
        turns, loop = Turns(), asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            async with turn(turns):
                raise ZeroDivisionError
        times = [loop.time()]
        await turns.begin(0.0, most_s=7.0)  # who has it is gone
        async with turn(turns):
            times.append(loop.time())
        return [at - 100.0 for at in times]

    assert run(test()) == [0.0, 7.0]


def test_who_waits_too_long_or_gives_up_leaves_the_queue() -> None:
    async def test() -> float:
        turns, loop = Turns(), asyncio.get_running_loop()
        number = await turns.begin(9.0, 60.0)
        with pytest.raises(EngineBusyError):
            async with turn(turns, about_s=4.0, patience_s=2.0):
                pass
        gone = asyncio.create_task(turns.begin(4.0, 60.0))
        await asyncio.sleep(1.0)
        assert await turns.wait_s() == pytest.approx(6.0 + 4.0)
        gone.cancel()
        await asyncio.wait([gone])
        assert await turns.wait_s() == pytest.approx(6.0)
        await turns.end(number)
        async with turn(turns):
            return loop.time() - 100.0

    assert run(test()) == 3.0


def test_a_turn_that_has_lapsed_ends_no_other() -> None:
    async def test() -> float:
        turns, loop = Turns(), asyncio.get_running_loop()
        first = await turns.begin(0.0, 5.0)
        await turns.begin(0.0, 60.0)
        await turns.end(first)
        await turns.begin(0.0, 1.0)
        return loop.time() - 100.0

    assert run(test()) == 65.0
