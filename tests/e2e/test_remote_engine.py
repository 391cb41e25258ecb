"""The remote engine with a real vLLM server: answers through the real pipeline, charged in a real ledger."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from examples.tiny_model import make_tiny_model
from exemplar_store import Exemplar
from service.answering.answering import Answer
from service.answering.plans.signing import sign
from service.answering.queries import InvalidQueryError
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import UnusableReplyError
from service.engines.remote.engine import OpenAiCompatibleEngine
from service.engines.task import Prompt, TaskSpec
from service.operations.services import open_services
from service.records.records import Records
from tests.processes import answers, free_ports, wait_for
from tests.service.conftest import EMBEDDER, PLAN, TEXT_PLAN, make_records, states

pytestmark = [pytest.mark.lengthy, pytest.mark.vllm]

KEY = "a-key-of-this-test"
STORY = TaskSpec(
    "toys.story@1", (), Prompt("", "{text}: {label}", "{text}:"), kind="generate", candidates=2, knowledge_base="toys"
)
SLOTS = [tuple(Exemplar({"text": f"toy {n} {i}", "label": "red"}, None) for i in range(2)) for n in range(8)]


@dataclass(frozen=True)
class Server:
    url: str
    log: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("vllm")
    model = make_tiny_model(folder / "model", chat=True)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(model), "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"]
    # With chunked prefill, the CPU build dies of a prompt that is cut in two and sampled with a seed.
    command += ["--max-model-len", "1024", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
    # A model with random weights would fill its replies with the white space that a schema allows.
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    # An engine in this process sets variables of vLLM, for its log among others; the server is an operator's own.
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("VLLM_")},
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_API_KEY": KEY,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    log = folder / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environment, stdout=sink, stderr=subprocess.STDOUT)
    try:
        up = wait_for(lambda: process.poll() is not None or answers(f"http://127.0.0.1:{port}/health"), 180)
        assert (up, process.poll()) == (True, None), log.read_text()[-4000:]
        yield Server(f"http://127.0.0.1:{port}/v1", log)
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        process.terminate()
        _, alive = psutil.wait_procs(family, timeout=30)
        for one in alive:
            one.kill()


@pytest.fixture
def records(tmp_path: Path) -> Records:
    records = make_records(tmp_path)
    records.store.allow_remote_engine("toys", True)
    mechanism = "type: keyword_ptr, k_min: 1, k_max: 3"
    for plan in (PLAN, TEXT_PLAN.format(epsilon=4, answers=5, mechanism=mechanism)):
        sign(records, calibrate_plan(load_plan(plan), public_size=60), "test")
    return records


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", KEY)


def asking(server: Server, work: Any, **settings: Any) -> Any:
    """The result of a coroutine function that takes an engine."""

    async def run() -> Any:
        config = OpenAiCompatibleConfig(
            name="openai_compatible",
            base_url=server.url,
            model="tiny",
            isolation="best_effort",
            **{"max_answer_tokens": 16, "max_attempts": 2, **settings},
        )
        engine = OpenAiCompatibleEngine(config)
        try:
            return await asyncio.wait_for(work(engine), 120)
        finally:
            engine.close()
            await asyncio.sleep(0.1)

    return asyncio.run(run())


def answer(server: Server, records: Records, address: str, query: str = "a new toy", **settings: Any) -> Answer:
    return asking(
        server,
        lambda engine: open_services(records, engine, EMBEDDER).answering.answer(address, query, key_id="k"),
        **settings,
    )


@pytest.mark.parametrize(("task", "settings"), [("colour", {"constrain_labels": True}), ("story", {})])
def test_an_answer_is_released_and_charged(server: Server, records: Records, task: str, settings: dict) -> None:
    given = answer(server, records, f"toys.{task}", **settings)
    assert given.charged
    assert given.release.answer["label"] in ("red", "blue") if task == "colour" else given.release.answer["text"]
    assert states(records, task) == {"released": 1}


def test_a_model_that_replies_with_no_label_charges_nothing(server: Server, records: Records) -> None:
    """The weights are random, so the model finds a label only where the server allows nothing else."""
    with pytest.raises(UnusableReplyError):
        answer(server, records, "toys.colour", constrain_labels=False)
    assert states(records, "colour") == {"voided": 1}


def test_every_slot_votes_when_the_server_allows_labels_only(server: Server) -> None:
    task = TaskSpec(
        "toys.colour@1", ("red", "blue"), Prompt("", "{text}: {label}", "{text}:"), "label", knowledge_base="toys"
    )

    async def work(engine: OpenAiCompatibleEngine):
        await engine.health()
        zero_shot = await engine.zero_shot(task, {"text": "a new toy"})
        return zero_shot.probabilities, await engine.contributions(task, {"text": "a new toy"}, [*SLOTS, ()], zero_shot)

    probabilities, outputs = asking(server, work, constrain_labels=True)
    assert sorted(probabilities) == [0, 1]
    assert outputs[-1] is None
    assert all(sorted(output) == [0, 1] for output in outputs[:-1])
    assert all(output.dtype == np.float64 for output in outputs[:-1])


def test_sampled_texts_do_not_depend_on_the_order_of_slots(server: Server) -> None:
    async def work(engine: OpenAiCompatibleEngine):
        query = {"text": "a new toy"}
        zero_shot = await engine.zero_shot(STORY, query)
        return [await engine.contributions(STORY, query, slots, zero_shot) for slots in (SLOTS, SLOTS[::-1])]

    forwards, backwards = asking(server, work, temperature=0.9)
    assert list(forwards) == list(backwards[::-1])
    assert len(set(forwards)) == len(SLOTS)


def test_a_query_too_long_for_the_model_is_free(server: Server, records: Records) -> None:
    with pytest.raises(InvalidQueryError, match="shorter"):
        answer(server, records, "toys.colour", "a new toy " * 1000)
    assert states(records, "colour") == {"voided": 1}


def test_the_server_started_like_this_writes_down_no_prompt(server: Server, records: Records) -> None:
    answer(server, records, "toys.colour", "a plaything", constrain_labels=True)
    assert "POST /v1/chat/completions" in server.log.read_text()
    assert not any(word in server.log.read_text() for word in ("plaything", "toy", KEY))
