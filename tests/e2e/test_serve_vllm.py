"""A language model end to end: ``dpicl serve`` with a tiny model of random weights on vLLM's CPU engine.

vLLM keeps one task's blocks: it reads them at the first question, and again after each change.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from accounting.replay.books import violations
from examples.tiny_model import make_tiny_model
from service.records.database import open_database
from tests.e2e.serving import CANARY, SUPPORT, Running, configured, serving, stops

pytestmark = [pytest.mark.lengthy, pytest.mark.vllm]

PLAN = """
knowledge_base: support
budget: {epsilon: 4, delta: 1.0e-4}
accountant: pld
tasks:
  desk:
    kind: classify
    labels: [Office, Workshop]
    label_field: desk
    prompt: {exemplar: "Ticket: {text}\\nWhere: {desk}", query: "Ticket: {text}\\nWhere:"}
    shots: 4
    slot_tokens: 300
    ensemble: 6
    answers: 20
    mechanism: {type: rnm_gaussian, vote: soft}
  block:
    kind: classify
    labels: [Office, Workshop]
    label_field: desk
    prompt: {exemplar: "Ticket: {text}\\nWhere: {desk}", query: "Ticket: {text}\\nWhere:"}
    sampling: blocks
    shots: 30
    slot_tokens: 300
    ensemble: 6
    answers: 20
    mechanism: {type: rnm_gaussian, vote: soft}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("serve")
    model = make_tiny_model(folder / "model", chat=True)
    options = configured(folder, engine={"name": "vllm", "model": str(model), "kv_cache_gib": 1})
    (folder / "plan.yaml").write_text(PLAN)
    with serving(folder, *options, plans=(folder / "plan.yaml",)) as running:
        yield running


def ask(running: Running, query: str) -> httpx.Response:
    return running.ask(query, "support.desk")


def vllm_processes(running: Running) -> list[psutil.Process]:
    """vLLM's processes, parents first, by title or by how they were started: not every environment can set titles."""
    family = psutil.Process(running.process.pid).children(recursive=True)
    found = [p for p in family if p.name().startswith("VLLM::") or any("spawn_main" in word for word in p.cmdline())]
    assert found, [(p.pid, p.name(), p.cmdline()[:3]) for p in family]
    return found


def test_several_at_once_are_answered_by_the_model(running: Running) -> None:
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(partial(ask, running), [f"{CANARY} asks where order {i} is" for i in range(8)]))
    assert {response.status_code for response in responses} == {200}
    assert {response.json()["label"] for response in responses} <= {"Office", "Workshop"}
    engine = responses[0].json()["engine"]
    assert (engine["name"], engine["is_llm"], engine["remote"]) == ("vllm", True, False)
    assert "Isolation of slots: on the CPU" in running.dpicl("budget")


def test_nothing_is_open_to_other_machines(running: Running) -> None:
    assert {address for _, address, _ in running.listening()} == {"127.0.0.1"}


def test_answers_from_kept_blocks_go_on_through_every_change(running: Running, tmp_path: Path) -> None:
    first = running.ask("Where is my parcel?", "support.block")
    assert first.status_code == 200, first.text
    latency = running.get("/v1/tasks/support.block").json()["latency"]
    assert (latency["kept_blocks"], latency["cold"]) == (30, None)
    assert latency["grain_s"] >= 2 * latency["largest_s"] > 0
    more = [json.loads(line) for line in (SUPPORT / "tickets.jsonl").read_text().splitlines()[150:160]]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(one) + "\n" for one in more))
    running.dpicl("kb", "ingest", "support", str(tmp_path / "more.jsonl"))
    assert running.ask("Where is my second parcel?", "support.block").status_code == 200
    running.dpicl("kb", "forget", "support", more[0]["unit_id"], "--yes")
    assert running.ask("Where is my third parcel?", "support.block").status_code == 200
    left = running.ask("Where is my parcel?", "support.block").json()["cost"]
    assert (left["charged"], left["answers_left"]) == (0, 17)


def test_a_dead_engine_charges_nothing_and_is_replaced(running: Running) -> None:
    core = vllm_processes(running)[0]
    core.kill()
    core.wait(20)
    refused = ask(running, "Is anybody there?")
    assert refused.status_code == 503
    assert "nothing was charged" in refused.json()["detail"]
    deadline = time.monotonic() + 600
    while (answer := ask(running, f"Is anybody there at {time.monotonic()}?")).status_code == 503:
        assert time.monotonic() < deadline, answer.text
        time.sleep(1)
    assert answer.status_code == 200, answer.text
    database = open_database(running.database_url)
    with database.connect() as connection:
        assert violations(connection) == []
    database.dispose()


def test_a_killed_replica_leaves_no_engine_behind(running: Running) -> None:
    """Systems kill replicas for their memory, most of which vLLM's processes hold. They and the service end."""
    processes = vllm_processes(running)
    replica = next(process for process in processes[0].parents() if "EngineDeployment" in " ".join(process.cmdline()))
    replica.kill()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []
    stops(running.process)


def test_nothing_private_is_logged(running: Running) -> None:
    text = running.logs()
    assert "VLLM" in text or "vllm" in text
    assert CANARY not in text
    assert "prompt_token_ids_len" not in text  # what vLLM dumps when it dies
