"""The real thing: ``dpicl serve`` on Ray Serve with the example's tickets, over HTTP."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import sqlalchemy as sa

from accounting.plan import load_plan
from accounting.replay import violations
from service.aggregating import public_domain
from service.database import open_database

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
DPICL = str(Path(sys.executable).parent / "dpicl")
CANARY = "canary-77d0c2"


@dataclass
class Running:
    url: str
    key: str
    log: Path
    process: subprocess.Popen[bytes]
    database_url: str
    environment: dict[str, str]

    def dpicl(self, *args: str) -> str:
        return _dpicl(self.environment, *args)

    def ask(self, query: str, task: str = "support.queue") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.post(f"{self.url}/v1/tasks/{task}/answers", json={"query": query}, headers=headers, timeout=60)


def _dpicl(environment: dict[str, str], *args: str) -> str:
    done = subprocess.run([DPICL, *args], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("serve")
    database_url = f"sqlite:///{folder}/e2e.sqlite"
    environment = {
        **os.environ,
        "DPICL_DATABASE_URL": database_url,
        "DPICL_ENCRYPTION_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
    }
    fields = [option for name in ("text", "queue", "desk", "reply") for option in ("--field", name)]
    _dpicl(
        environment, "kb", "create", "support", "--epsilon", "12", "--delta", "2e-4", "--public-size", "900", *fields
    )
    tickets = (SUPPORT / "tickets.jsonl").read_text().splitlines()[:150]
    few = folder / "few.jsonl"
    canary = json.dumps(
        {
            "unit_id": CANARY,
            "text": f"my name is {CANARY}",
            "queue": "Ledger",
            "desk": "Office",
            "reply": f"{CANARY} it is",
        }
    )
    few.write_text("\n".join([*tickets, canary]))
    _dpicl(environment, "kb", "ingest", "support", str(few))
    for plan in ("plan.yaml", "replies.yaml"):
        _dpicl(environment, "plan", "sign", str(SUPPORT / plan), "--yes", "--json")
    key = _dpicl(environment, "keys", "create", "e2e").strip()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "serve.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [DPICL, "serve", "--port", str(port)], env=environment, stdout=sink, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            assert process.poll() is None, log.read_text()
            try:
                if httpx.get(f"{url}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        else:
            pytest.fail(log.read_text())
        yield Running(url, key, log, process, database_url, environment)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_answers_repeat_and_run_out(running: Running) -> None:
    first = running.ask("The courier left my parcel in the rain.")
    assert first.status_code == 200, first.text
    assert first.json()["cost"]["charged"] == 1
    again = running.ask("The courier left my parcel  in the rain.").json()
    assert (again["id"], again["cost"]["charged"]) == (first.json()["id"], 0)

    task = httpx.get(f"{running.url}/v1/tasks/support.triage", headers={"Authorization": f"Bearer {running.key}"})
    for number in range(task.json()["answers"]):
        assert running.ask(f"Question {number}", "support.triage").status_code == 200
    refused = running.ask("One too many", "support.triage")
    assert refused.status_code == 402
    assert refused.headers["x-should-retry"] == "false"
    assert refused.json()["type"].endswith("answers-exhausted")


def test_free_text_is_answered_by_every_mechanism(running: Running) -> None:
    tasks = load_plan((SUPPORT / "replies.yaml").read_text()).tasks
    question = "The parcel arrived with a broken pot in it."
    page = running.ask(question, "support.page").json()
    assert page["text"] in tasks["page"].public_answers
    assert not {"label", "keywords", "fallback"} & set(page)

    topics = running.ask(question, "support.topics").json()
    assert len(set(topics["keywords"])) == 3
    assert set(topics["keywords"]) <= set(public_domain({"text": question}, tasks["topics"].public_answers))
    assert topics["text"] in tasks["topics"].public_answers or topics["text"].split() == topics["keywords"]

    rules = running.ask(question, "support.rules").json()
    assert rules["fallback"] == (rules["keywords"] == [])
    assert rules["keywords"] == sorted(rules["keywords"])
    for answer in (page, topics, rules):
        assert answer["cost"] == {"charged": 1, "answers_left": 2}
        assert answer["engine"]["is_llm"] is False
        assert answer["method"]

    said = running.dpicl("ask", "support.topics", question, "--url", running.url, "--key", running.key)
    assert topics["text"] in " ".join(said.split())
    assert f"keywords: {', '.join(topics['keywords'])}" in said
    assert "free, answered before" in said


def test_concurrent_twins_over_http_share_one_charge(running: Running) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = [r.json() for r in pool.map(running.ask, ["All of us ask about the pump."] * 8)]
    assert len({answer["id"] for answer in answers}) == 1
    assert sum(answer["cost"]["charged"] for answer in answers) == 1


def test_many_at_once_are_all_answered_and_paid_for(running: Running) -> None:
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(running.ask, [f"Where is order {i}?" for i in range(16)]))
    assert {response.status_code for response in responses} == {200}
    assert sum(response.json()["cost"]["charged"] for response in responses) == 16
    database = open_database(running.database_url)
    with database.connect() as connection:
        assert violations(connection) == []
        assert connection.execute(sa.text("SELECT count(*) FROM charges WHERE state != 'released'")).scalar() == 0
    database.dispose()


def test_callers_who_hang_up_lose_nothing(running: Running) -> None:
    """Ray Serve cancels an abandoned request; what it paid for is answered all the same."""
    headers = {"Authorization": f"Bearer {running.key}"}
    questions = [f"Never mind question {i}" for i in range(5)]
    for question in questions:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{running.url}/v1/tasks/support.queue/answers",
                json={"query": question},
                headers=headers,
                timeout=httpx.Timeout(5, read=0.05),
            )
    time.sleep(2)
    assert [running.ask(question).json()["cost"]["charged"] for question in questions] == [0] * 5


def test_ray_tells_no_one_how_long_a_call_took(running: Running) -> None:
    family = psutil.Process(running.process.pid).children(recursive=True)
    ports = {c.laddr.port for p in family for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert ports
    for port in ports:
        try:
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=1).text
        except httpx.HTTPError:
            continue
        assert "latency_ms" not in text


def test_the_command_line_asks_and_resumes_a_batch(running: Running, tmp_path: Path) -> None:
    remote = ("--url", running.url, "--key", running.key)
    answer = json.loads(running.dpicl("ask", "support.queue", "My password does not work.", *remote, "--json"))
    labels = ("Ledger", "Wheels", "Keys", "Greenhouse", "Farewell")
    assert answer["label"] in labels
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": i, "text": f"The lamp flickers {i}"}) + "\n" for i in range(4)))
    out = tmp_path / "answers.jsonl"
    running.dpicl("batch", "support.queue", str(questions), "--out", str(out), *remote)
    done = out.read_text().splitlines()
    assert [json.loads(line)["id"] for line in done] == [0, 1, 2, 3]
    assert all(json.loads(line)["answer"] in labels for line in done)
    out.write_text("\n".join(done[:2]) + "\n" + done[2][:9])  # stopped in the middle of a line
    running.dpicl("batch", "support.queue", str(questions), "--out", str(out), *remote)
    assert out.read_text().splitlines() == done  # the last two were asked again, for free
    assert "support.queue@1" in running.dpicl("budget", *remote)


def test_nothing_private_is_logged(running: Running) -> None:
    for task in ("queue", "page", "topics", "rules"):
        assert running.ask(f"{CANARY} asks about a lamp", f"support.{task}").status_code == 200
    running.ask("")
    text = running.log.read_text()
    session = Path("/tmp/ray/session_latest/logs")  # noqa: S108  (where Ray keeps its logs)
    text += "".join(file.read_text(errors="replace") for file in session.rglob("*") if file.is_file())
    assert CANARY not in text
    assert "contributions OK" not in text  # Serve's access log times every call


def test_it_stops_cleanly(running: Running) -> None:
    """Last: a signal ends it with status 0, and every process it started."""
    family = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) == 0
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
