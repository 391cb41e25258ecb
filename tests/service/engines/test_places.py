"""Places in vLLM's batch and cache are given in order, by public numbers, and never one too many."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engines.vllm.places import Need, Places, Turn

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=12),
    st.data(),
)
def test_no_more_is_taken_than_there_is_and_no_request_overtakes(
    needs: list[tuple[int, int]], data: st.DataObject
) -> None:
    places, blocks = 5, 10

    async def all_of_them() -> None:
        pool, admitted = Places(places, blocks), []
        waiting = []
        for number, need in enumerate(Need(*need) for need in needs):

            async def take(number: int = number, need: Need = need) -> None:
                await pool.take(need)
                admitted.append((number, need))

            waiting.append(asyncio.create_task(take()))
            await settle()
        given_back: list[int] = []
        while len(given_back) < len(needs):
            here = [(number, need) for number, need in admitted if number not in given_back]
            assert [number for number, _ in admitted] == sorted(number for number, _ in admitted)
            assert sum(need.places for _, need in here) <= places
            assert sum(need.blocks for _, need in here) <= blocks
            assert here  # the first in line never waits while all places are free
            number, need = data.draw(st.sampled_from(here))
            given_back.append(number)
            pool.give(need)
            await settle()
        await asyncio.gather(*waiting)

    run(all_of_them())


def test_what_is_larger_than_all_there_is_is_admitted_alone() -> None:
    async def alone() -> list[str]:
        pool, seen = Places(4, 10), []
        await pool.take(Need(1, 1))

        async def take(name: str, need: Need) -> None:
            await pool.take(need)
            seen.append(name)

        large = asyncio.create_task(take("large", Need(1, 99)))
        small = asyncio.create_task(take("small", Need(1, 1)))
        await settle()
        assert seen == []
        pool.give(Need(1, 1))
        await settle()
        assert seen == ["large"]
        pool.give(Need(1, 99))
        await asyncio.gather(large, small)
        return seen

    assert run(alone()) == ["large", "small"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_request_that_gives_up_takes_nothing_and_keeps_no_other_waiting(at_once: bool) -> None:
    async def given_up() -> None:
        pool = Places(1, 9)
        await pool.take(Need(1, 0))
        first, second = (asyncio.create_task(pool.take(Need(1, 0))) for _ in range(2))
        await settle()
        if at_once:  # its place is given in the same moment
            pool.give(Need(1, 0))
            first.cancel()
        else:
            first.cancel()
            await settle()
            pool.give(Need(1, 0))
        with pytest.raises(asyncio.CancelledError):
            await first
        await second

    run(given_up())


def test_a_larger_cache_admits_requests_that_wait() -> None:
    async def resized() -> None:
        pool = Places(4, 4)
        await pool.take(Need(1, 3))
        waiting = asyncio.create_task(pool.take(Need(1, 3)))
        await settle()
        assert not waiting.done()
        pool.resize(6)
        await waiting

    run(resized())


@pytest.mark.parametrize("written_in_s", [0.0, 0.05, 0.2])
def test_a_turn_ends_at_a_time_that_was_fixed_before_unless_its_answer_overruns(written_in_s: float) -> None:
    """The wait for the next answer therefore reveals nothing of the time that this one really took."""

    async def ended() -> float:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        began = loop.time()
        turn = Turn(Need(1, 1), over.set, takes_s=0.1, unused_s=5.0)
        turn.begin()
        await asyncio.sleep(written_in_s)
        turn.end()
        await over.wait()
        assert not turn.lapsed
        return loop.time() - began

    assert run(ended()) >= max(0.1, written_in_s)


def test_a_turn_that_is_not_used_lapses_once() -> None:
    async def lapsed() -> int:
        given: list[None] = []
        turn = Turn(Need(1, 1), lambda: given.append(None), takes_s=0.01, unused_s=0.02)
        await asyncio.sleep(0.1)
        assert turn.lapsed
        return len(given)

    assert run(lapsed()) == 1
