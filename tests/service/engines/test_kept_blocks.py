"""Blocks that vLLM reads ahead and keeps: on the CPU, with a tiny model of random weights and a cache soon full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from examples.tiny_model import make_tiny_model
from exemplar_store import Exemplar
from service.engines.errors import NotKeptError
from service.engines.task import ZeroShot
from tests.service.engines.contract import EngineContract, KeepingContract
from tests.service.engines.test_vllm import CALIBRATION, CLASSIFY, GENERATE, QUERY, Running, exemplar, slot

pytestmark = [pytest.mark.model, pytest.mark.lengthy]

TASK = replace(CLASSIFY, calibration=CALIBRATION, slot_tokens=300)
BLOCKS = [slot(number, 4) for number in range(6)]
CACHE = 120  # pieces of 32 tokens


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from vllm import AsyncEngineArgs

    made = AsyncEngineArgs.__init__

    def small(arguments, **given):
        made(arguments, **given, num_gpu_blocks_override=CACHE)

    with mock.patch.object(AsyncEngineArgs, "__init__", small):
        folder = make_tiny_model(tmp_path_factory.mktemp("model"))
        running = Running(folder, max_model_len=512, max_answer_tokens=12)
    yield running
    running.engine.close()
    running.loop.close()


class TestContract(EngineContract, KeepingContract):
    slots, changed = 10, 1

    @pytest.fixture
    def running(self, running: Running) -> Running:
        return running


def asked(running: Running, task, slots, query=QUERY) -> tuple[list, list[tuple[int, int]]]:
    """The outputs, and for each prompt the number of its tokens and of those that were cached."""
    with running.watched() as prompts:
        outputs = running.run(running.engine.contributions(task, query, slots, ZeroShot()))
    return list(outputs), [(len(one.prompt_token_ids), one.num_cached_tokens) for _, one in prompts]


def flood(running: Running) -> None:
    """Ask as many other prompts as fill the cache four times."""
    other = replace(CLASSIFY, knowledge_base="another")
    slots = [slot(1000 + number, 9) for number in range(100)]
    _, prompts = asked(running, other, slots)
    assert sum(tokens for tokens, _ in prompts) > 4 * 32 * CACHE


def keep(running: Running, task=TASK, blocks=BLOCKS) -> str:
    return running.run(running.engine.keep(task, blocks))


def test_whatever_else_is_asked_a_kept_block_is_found_cached_and_one_that_is_not_is_evicted(running):
    computed = [tokens - cached for tokens, cached in asked(running, CLASSIFY, BLOCKS)[1]]
    assert min(computed) > 90
    flood(running)
    evicted = [cached for _, cached in asked(running, CLASSIFY, BLOCKS)[1]]
    assert evicted == [0] * 6

    kept = keep(running)
    for question in range(4):
        flood(running)
        query = {"text": f"{question} pots are broken"}
        _, prompts = asked(running, replace(TASK, kept=kept), BLOCKS, query)
        assert len(prompts) == 6  # one each: the calibration's are done
        (without,) = running.engine._tokens["classify"].prompts(["Ticket: 0 pots are broken\nTeam:"])
        assert all(tokens - cached < len(without) + 2 + 32 for tokens, cached in prompts)
    keep(running, blocks=[])
    flood(running)
    assert [cached for _, cached in asked(running, TASK, BLOCKS)[1] if not cached]
    flood(running)
    assert [cached for _, cached in asked(running, CLASSIFY, BLOCKS)[1]] == [0] * 6


def test_without_pinning_questions_evict_a_block_that_they_do_not_draw(running):
    """The planted bug: blocks are read ahead and left to vLLM, in a cache with room for all of them and an answer."""
    from service.engines.vllm.keeping import PIN  # once the engine has chosen vLLM's environment

    for pin, found in (("nothing", False), (PIN, True)):
        with mock.patch("service.engines.vllm.keeping.PIN", pin):
            pinned = replace(TASK, kept=keep(running))
        for question in range(25):
            asked(running, pinned, BLOCKS[1:], {"text": f"{question} parcels of lamps are lost " * 12})
        _, ((_, cached),) = asked(running, pinned, BLOCKS[:1])
        assert (cached > 0) == found
        keep(running, blocks=[])


@pytest.mark.parametrize("task", [TASK, replace(TASK, calibration=()), replace(GENERATE, slot_tokens=300)])
def test_a_kept_block_has_bit_for_bit_the_output_that_it_had_before(running, task):
    flood(running)
    cold = asked(running, task, BLOCKS)[0]
    warm = asked(running, task, BLOCKS)[0]
    kept = keep(running, task)
    pinned = replace(task, kept=kept)
    outputs = asked(running, pinned, BLOCKS)[0]
    flood(running)
    alone = [asked(running, pinned, [one])[0][0] for one in BLOCKS]
    for others in (warm, outputs, alone):
        assert all(np.array_equal(one, other) for one, other in zip(cold, others, strict=True))
    assert all(one is not None for one in cold)
    keep(running, task, [])


def test_a_block_that_changed_since_it_was_read_abstains_and_no_other_does(running):
    pinned = replace(TASK, kept=keep(running))
    changed = [BLOCKS[0], BLOCKS[1][1:], *BLOCKS[2:], ()]
    outputs, prompts = asked(running, pinned, changed)
    assert [output is None for output in outputs] == [False, True, *[False] * 4, True]
    assert len(prompts) == 5
    keep(running, blocks=changed)
    flood(running)
    outputs, prompts = asked(running, pinned, changed)
    assert [output is None for output in outputs] == [False] * 6 + [True]
    assert min(cached for _, cached in prompts) > 60
    keep(running, blocks=[])


def test_exemplars_that_do_not_fit_are_left_out_as_otherwise(running):
    endless = Exemplar(fields={"text": "lamp " * 3000, "team": "Keys"}, embedding=None)
    blocks = [(endless, *(exemplar(i) for i in range(6))), (endless,), slot(3, 9)]
    task = replace(TASK, slot_tokens=170)
    cold, _ = asked(running, task, blocks)
    outputs, _ = asked(running, replace(task, kept=keep(running, task, blocks)), blocks)
    assert cold[1] is outputs[1] is None
    assert all(np.array_equal(cold[i], outputs[i]) for i in (0, 2))
    keep(running, task, [])


def test_what_is_let_go_is_free_again(running):
    """The blocks that are kept one after the other are together three times as large as the cache."""
    for number in range(12):
        keep(running, blocks=[slot(2000 + 6 * number + i, 6) for i in range(6)])
    keep(running, blocks=[])
    flood(running)


def test_an_engine_that_has_started_anew_refuses_before_anything_is_sampled(running):
    lost = replace(TASK, kept="another process's")
    with pytest.raises(NotKeptError):
        running.run(running.engine.zero_shot(lost, QUERY))
    both = [asked(running, task, BLOCKS)[0] for task in (lost, TASK)]
    assert all(np.array_equal(*pair) for pair in zip(*both, strict=True))


def test_room_is_promised_by_public_numbers_once(running):
    def room(task, blocks, most=2):
        return running.run(running.engine.room(task, 20, blocks, most))

    assert room(TASK, 6) == ""
    assert "raise kv_cache_gib to 5" in room(TASK, 60)
    assert room(TASK, 6) == ""  # the same task's again
    other = replace(TASK, name="support.other@1")
    assert "slot_tokens" in room(other, 6)
    assert room(other, 1, 1) == ""


def test_the_largest_block_measured_has_as_much_left_to_compute_as_any(running):
    task = replace(TASK, measuring=True, slot_tokens=150, knowledge_base="made up")
    text = " ".join(f"{a}{b}{c}x" for a in "abcd" for b in "efghijk" for c in "lmnop")
    blocks = [(Exemplar({"text": f"{i} {text}", "team": "Keys"}, None),) for i in range(3)]
    measured = replace(task, kept=keep(running, task, blocks))
    flood(running)
    _, prompts = asked(running, measured, blocks)
    keep(running, task, [])
    assert len(prompts) == 3
    left = {tokens - cached for tokens, cached in prompts}
    real = replace(TASK, slot_tokens=150)
    for size in (1, 2, 3, 5):
        some = [slot(3000 + 10 * size + i, size) for i in range(6)]
        pinned = replace(real, kept=keep(running, real, some))
        assert max(tokens - cached for tokens, cached in asked(running, pinned, some)[1]) <= min(left)
    keep(running, real, [])
