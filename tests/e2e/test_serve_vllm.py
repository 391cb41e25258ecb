"""A language model end to end: ``dpicl serve`` with a tiny model of random weights on vLLM's CPU engine."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from accounting.replay.books import violations
from examples.tiny_model import make_tiny_model
from service.records.database import open_database
from tests.e2e.serving import CANARY, Running, configured, serving, stops

LABELS = {"Payments", "Shipping", "Security", "Garden", "Members"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("serve")
    model = make_tiny_model(folder / "model", chat=True)
    options = configured(folder, engine={"name": "vllm", "model": str(model), "enforce_eager": True})
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DPICL_LATENCY_UNPADDED", "true")  # its work is as slow as the machine is busy
        with serving(folder, *options) as running:
            yield running


def vllm_processes(running: Running) -> list[psutil.Process]:
    """vLLM's own, parents first. By title or by how they were begun: a title cannot be set in every environment."""
    family = psutil.Process(running.process.pid).children(recursive=True)
    found = [p for p in family if p.name().startswith("VLLM::") or any("spawn_main" in word for word in p.cmdline())]
    assert found, [(p.pid, p.name(), p.cmdline()[:3]) for p in family]
    return found


def answered_again(running: Running) -> None:
    """Serve has put another replica in the place of one that ended."""
    deadline = time.monotonic() + 600
    while (answer := running.ask(f"Is anybody there at {time.monotonic()}?")).status_code == 503:
        assert time.monotonic() < deadline, answer.text
        time.sleep(1)
    assert answer.status_code == 200, answer.text


def test_several_at_once_are_answered_by_the_model(running: Running) -> None:
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(running.ask, [f"{CANARY} asks where order {i} is" for i in range(8)]))
    assert {response.status_code for response in responses} == {200}
    assert {response.json()["label"] for response in responses} <= LABELS
    engine = responses[0].json()["engine"]
    assert (engine["name"], engine["is_llm"], engine["remote"]) == ("vllm", True, False)
    assert "Isolation of slots: on the CPU" in running.dpicl("budget")


def test_nothing_is_open_to_other_machines(running: Running) -> None:
    assert {address for _, address, _ in running.listening()} == {"127.0.0.1"}


def test_a_dead_engine_charges_nothing_and_is_replaced(running: Running) -> None:
    core = vllm_processes(running)[0]
    core.kill()
    core.wait(20)
    refused = running.ask("Is anybody there?")
    assert refused.status_code == 503
    assert "nothing was charged" in refused.json()["detail"]
    answered_again(running)
    database = open_database(running.database_url)
    with database.connect() as connection:
        assert violations(connection) == []
    database.dispose()


def test_a_killed_replica_leaves_no_engine_behind(running: Running) -> None:
    """As when it takes too much memory: what vLLM started holds most of it, and would stay."""
    processes = vllm_processes(running)
    replica = next(process for process in processes[0].parents() if "EngineDeployment" in " ".join(process.cmdline()))
    replica.kill()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []
    answered_again(running)


def test_nothing_private_is_logged(running: Running) -> None:
    text = running.logs()
    assert "VLLM" in text or "vllm" in text
    assert CANARY not in text
    assert "prompt_token_ids_len" not in text  # what vLLM dumps when it dies


def test_it_stops_with_all_its_processes(running: Running) -> None:
    assert vllm_processes(running)
    stops(running.process)
