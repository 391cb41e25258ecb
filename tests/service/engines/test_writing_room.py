"""Slots that write together find places in the real engine, however many are alive and whatever else is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aggregation.token_ensemble import TokenEnsemble
from examples.tiny_model import make_tiny_model
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError
from service.engines.task import Writing, ZeroShot
from tests.service.engines.test_vllm import CLASSIFY, GENERATE, QUERY, Running, slot

pytestmark = pytest.mark.lengthy

MOST = 8
TASK = replace(
    GENERATE,
    most_slots=MOST,
    slot_tokens=100,
    candidates=1,
    writing=Writing(TokenEnsemble(0.5, 4.0, 1.0), 6, 6, 20, 1.0),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An engine for fewer prompts at once than slots, with places for just as many slots as the plan may draw."""
    folder: Path = make_tiny_model(tmp_path_factory.mktemp("model"))
    running = Running(folder, max_num_seqs=2, max_writing_slots=MOST, max_model_len=512, timeout_s=20)
    yield running
    running.engine.close()
    running.loop.close()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of opinions that each token was drawn from."""
    counts: list[int] = []
    draw = TokenEnsemble.draw

    def noting(ensemble, public, opinions):
        counts.append(sum(opinion is not None for opinion in opinions))
        return draw(ensemble, public, opinions)

    monkeypatch.setattr(TokenEnsemble, "draw", noting)
    return counts


@pytest.mark.parametrize("live", [1, 2, 3, MOST - 1, MOST])
def test_every_live_slot_is_heard_at_every_token(running: Running, heard: list[int], live: int) -> None:
    running.write(TASK, [slot(number) for number in range(live)] + [()] * (MOST - live))
    assert set(heard) == {live}


def test_one_place_too_few_would_silence_the_slots(running: Running, heard: list[int], monkeypatch) -> None:
    """The test guards against this bug: vLLM has fewer places than the engine gives."""
    from service.engines.vllm.places import Places

    monkeypatch.setattr(running.engine._config, "__dict__", {**running.engine._config.__dict__, "timeout_s": 2.0})
    monkeypatch.setattr(Places, "_fits", lambda *_: True)
    monkeypatch.setattr(running.engine, "_writing_problem", lambda *_: "")
    running.write(TASK, [slot(number) for number in range(MOST + 6)])
    assert min(heard) < MOST + 6


def test_more_slots_than_places_are_refused_before_anything_is_asked(running: Running) -> None:
    asked = replace(TASK, most_slots=MOST + 1)
    assert f"max_writing_slots to {MOST + 1}" in running.run(running.engine.room(asked, 20, 0, 9))
    with pytest.raises(UnanswerableQueryError, match="max_writing_slots"):
        running.zero_shot(asked)
    with pytest.raises(EngineUnavailableError, match="max_writing_slots"):
        running.run(running.engine.turn(asked, 20, 1.0))
    with pytest.raises(EngineUnavailableError, match="max_writing_slots"):
        running.write(TASK, [slot(number) for number in range(MOST + 1)])


def test_slots_that_the_cache_does_not_hold_are_refused(running: Running) -> None:
    """Whether they fit is decided with the largest slots; what a sample's slots hold does not matter."""
    one = 512 // 32 + 1
    needed = MOST * ((20 + 6 + 100) // 32 + 1) + (20 + 6) // 32 + 1 + one + 1
    config = running.engine._llm.vllm_config.cache_config
    for there, fits in ((needed, True), (needed - 1, False)):
        running.engine._rooms.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(config, "num_gpu_blocks", there)
            patch.setattr(config, "kv_cache_size_tokens", there * 32)
            problem = running.run(running.engine.room(TASK, 20, 0, MOST))
        assert ("ensemble or slot_tokens" in problem) != fits
    assert running.run(running.engine.room(TASK, 20, 0, MOST)) == ""


def test_an_answer_waits_for_the_time_that_another_announced_not_for_what_it_took(running: Running) -> None:
    """When the next answer begins does not reveal how many of the slots were alive."""

    async def waited(live: int) -> float:
        engine, loop = running.engine, asyncio.get_running_loop()
        turn = await engine.turn(TASK, 20, 1.5)
        began = loop.time()
        slots = [slot(number) for number in range(live)] + [()] * (MOST - live)
        first = asyncio.create_task(engine.write(replace(TASK, turn=turn), QUERY, slots, ZeroShot()))
        await engine.turn(TASK, 20, 0.0)
        waited = loop.time() - began
        await first
        engine._turns.clear()
        return waited

    for live in (0, MOST):
        assert 1.4 < running.run(waited(live)) < 3.0
        running.run(asyncio.sleep(0))


def test_prompts_neither_take_places_of_slots_nor_wait_for_them(running: Running, heard: list[int]) -> None:
    """A turn that is held keeps no prompt waiting, and as many prompts as there may be keep no slot waiting."""

    async def beside() -> None:
        engine = running.engine
        turn = await engine.turn(TASK, 20, 0.0)
        assert (await engine.zero_shot(CLASSIFY, QUERY)).probabilities is not None
        labels = [slot(number) for number in range(40)]
        asked = engine.contributions(CLASSIFY, QUERY, labels, ZeroShot())
        slots = [slot(number) for number in range(MOST)]
        written = engine.write(replace(TASK, turn=turn), QUERY, slots, ZeroShot())
        outputs, _ = await asyncio.gather(asked, written)
        assert all(output is not None for output in outputs)

    running.run(beside())
    assert set(heard) == {MOST}


def test_a_trial_takes_its_turn(running: Running, heard: list[int]) -> None:
    """Public slots write beside private ones without taking a place of theirs."""
    trial = replace(TASK, knowledge_base="trials of support", most_slots=0)
    slots = [slot(number) for number in range(MOST)]

    async def both() -> None:
        write = running.engine.write
        await asyncio.gather(*(write(task, QUERY, slots, ZeroShot()) for task in (trial, TASK, trial, TASK)))

    running.run(both())
    assert set(heard) == {MOST}
