"""The real thing: ``dpicl serve`` on Ray Serve with the example's tickets, over HTTP."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
import sqlalchemy as sa

from accounting.plans.plan import load_plan
from accounting.replay.books import violations
from service.answering.mechanisms.keyword_joint_em import public_domain
from service.records.database import open_database
from tests.e2e.serving import CANARY, DPICL, SUPPORT, Running, serving
from tests.service.gateway.test_mcp import call, connected

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("serve")) as running:
        yield running


def test_openais_client_asks_as_the_page_shows(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "analyst.md").read_text()
    (program,) = re.findall(r"^```python\n(from openai import .*?)^```", page, re.MULTILINE | re.DOTALL)
    shown: dict[str, Any] = {}
    exec(program.replace("http://127.0.0.1:8080", running.url).replace("dpicl_...", running.key), shown)  # noqa: S102
    label, cost, again = capsys.readouterr().out.splitlines()
    assert again == label
    assert label in load_plan((SUPPORT / "plan.yaml").read_text()).tasks["team"].labels
    assert "answers_left" in cost

    client = shown["client"]
    assert "support.team" in {model.id for model in client.models.list()}
    question = [{"role": "user", "content": "The courier left my parcel in the rain."}]
    stream = client.chat.completions.with_raw_response.create(model="support.team", messages=question, stream=True)
    said = [chunk.choices[0].delta.content or "" for chunk in stream.parse()]
    assert "".join(said) == label
    for response in (stream.http_response, running.ask("One more question")):
        assert len(response.headers.get_list("x-request-id")) == 1
        assert response.headers["x-should-retry"] == "false"


def test_free_text_is_answered_by_every_mechanism(running: Running) -> None:
    tasks = load_plan((SUPPORT / "replies.yaml").read_text()).tasks
    question = "The parcel arrived with a broken pot in it."
    page, topics, rules = (running.ask(question, f"support.{task}").json() for task in ("page", "topics", "rules"))
    assert page["text"] in tasks["page"].public_answers
    assert len(set(topics["keywords"])) == 3
    assert set(topics["keywords"]) <= set(public_domain({"text": question}, tasks["topics"].public_answers))
    assert rules["fallback"] == (rules["keywords"] == [])
    for answer in (page, topics, rules):
        assert answer["cost"] == {"charged": 1, "answers_left": 2}
        assert answer["method"]
    said = running.dpicl("ask", "support.topics", question, "--url", running.url, "--key", running.key)
    assert f"keywords: {', '.join(topics['keywords'])}" in said
    assert "free, answered before" in said


def test_a_task_that_runs_out_answers_from_its_one_time_release(running: Running) -> None:
    for number in range(running.get("/v1/tasks/support.triage").json()["answers"]):
        paid = running.ask(f"Question {number}", "support.triage")
        assert (paid.status_code, paid.json()["cost"]["charged"]) == (200, 1)
    free = running.ask("One too many", "support.triage").json()
    assert free["cost"] == {"charged": 0, "answers_left": 0, "source": "prototypes"}
    assert free["label"] in ("Office", "Workshop")


def charges(running: Running) -> Counter[str]:
    """The number of charges in each state; the ledger has no violations."""
    database = open_database(running.database_url)
    with database.connect() as connection:
        assert violations(connection) == []
        found = connection.execute(sa.text("SELECT state, count(*) AS number FROM charges GROUP BY state")).all()
    database.dispose()
    return Counter({row.state: row.number for row in found})


def test_callers_who_hang_up_lose_nothing(running: Running) -> None:
    """Ray Serve cancels an abandoned request; what it paid for is answered all the same."""
    before = charges(running)
    questions: list[str] = []
    while (
        len(questions) < 5 or charges(running) == before
    ):  # a busy machine may start on them after the caller has gone
        questions.append(f"Never mind question {len(questions)}")
        with pytest.raises(httpx.ReadTimeout):
            running.ask(questions[-1], timeout=httpx.Timeout(60, read=0.05))
    charged = [running.ask(question).json()["cost"]["charged"] for question in questions]
    assert 0 in charged
    assert charges(running) - before == Counter(released=len(questions))


def test_replicas_log_lines_of_json(running: Running) -> None:
    """Programs read these lines, so they have no prefix."""
    lines = running.log.read_text().splitlines()
    events = {json.loads(line)["event"] for line in lines if line.startswith("{")}
    assert "latency_measured" in events  # logged by the ingress
    assert not [line for line in lines if line.startswith("(")]


def test_nothing_is_open_to_other_machines(running: Running) -> None:
    waiting = running.listening()
    assert {"gcs_server", "raylet", "ray::ProxyActor"} <= {name for name, _, _ in waiting}
    assert sum(name.startswith("ray::ServeReplica") for name, _, _ in waiting) >= 3
    assert {address for _, address, _ in waiting} == {"127.0.0.1"}


def test_ray_requires_a_secret_token(running: Running) -> None:
    family = psutil.Process(running.process.pid).children(recursive=True)
    tokens = {process.environ().get("RAY_AUTH_TOKEN", "") for process in family}
    (token,) = tokens - {""}
    assert len(token) == 64
    assert token not in running.logs()
    methods = {
        "gcs_server": "/ray.rpc.NodeInfoGcsService/CheckAlive",
        "ray::ServeReplica:dp-icl:EmbedderDeployment": "/ray.serve.ASGIService/HandleRequest",
    }
    for service, method in methods.items():
        codes = [_call(port, method) for name, _, port in running.listening() if name.startswith(service)]
        assert grpc.StatusCode.UNAUTHENTICATED in codes, service
        assert grpc.StatusCode.OK not in codes, service
    (gcs,) = [port for name, _, port in running.listening() if name == "gcs_server"]
    assert _call(gcs, methods["gcs_server"], token) is grpc.StatusCode.OK
    assert _call(gcs, methods["gcs_server"], token[::-1]) is grpc.StatusCode.UNAUTHENTICATED


def _call(port: int, method: str, token: str | None = None) -> grpc.StatusCode:
    """The status of an empty call."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(method)(b"", metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_ray_does_not_publish_how_long_a_call_took(running: Running) -> None:
    for _, _, port in running.listening():
        try:
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=1).text
        except httpx.HTTPError:
            continue
        assert "latency_ms" not in text


def test_the_command_line_asks_and_resumes_a_batch(running: Running, tmp_path: Path) -> None:
    remote = ("--url", running.url, "--key", running.key)
    answer = json.loads(running.dpicl("ask", "support.team", "My password does not work.", *remote, "--json"))
    labels = ("Payments", "Shipping", "Security", "Garden", "Members")
    assert answer["label"] in labels
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": i, "text": f"The lamp flickers {i}"}) + "\n" for i in range(4)))
    out = tmp_path / "answers.jsonl"
    running.dpicl("batch", "support.team", str(questions), "--out", str(out), *remote)
    done = out.read_text().splitlines()
    assert [json.loads(line)["id"] for line in done] == [0, 1, 2, 3]
    assert all(json.loads(line)["answer"] in labels for line in done)
    out.write_text("\n".join(done[:2]) + "\n" + done[2][:9])  # stopped in the middle of a line
    running.dpicl("batch", "support.team", str(questions), "--out", str(out), *remote)
    assert out.read_text().splitlines() == done  # the last two were asked again, for free
    assert "support.team@1" in running.dpicl("budget", *remote)


async def test_an_agent_asks_over_mcp(running: Running) -> None:
    async with connected(running.url, running.key) as client:
        tasks = (await call(client, "tasks"))["tasks"]
        assert "support.team@1" in {task["task"] for task in tasks}
        answer = await call(client, "ask", task="support.team", query=f"{CANARY} asks for an agent")
    assert answer["label"] == running.ask(f"{CANARY} asks for an agent", "support.team").json()["label"]


def test_nothing_private_is_logged(running: Running) -> None:
    for task in ("team", "page", "topics", "rules"):
        assert running.ask(f"{CANARY} asks about a lamp", f"support.{task}").status_code == 200
    running.ask("")
    text = running.logs()
    assert CANARY not in text
    assert "contributions OK" not in text  # Serve's access log times every call


def test_it_prints_when_answers_leave(running: Running) -> None:
    printed = running.log.read_text()
    for task in ("team@1", "page@2", "topics@2", "rules@2"):
        assert re.search(rf"support\.{task}: answers leave after \d+ ms or multiples", printed), printed


def test_a_node_that_departs_takes_no_new_requests(running: Running) -> None:
    temporary = running.environment["RAY_TMPDIR"]
    subprocess.run(
        [sys.executable, "-m", "service.serving.departure", "service"],
        env={**running.environment, "TMPDIR": temporary},
        check=True,
        timeout=120,
    )
    assert running.get("/v1/tasks").status_code == 503
    Path(temporary, "ray", "session_latest", "dpicl-leaving").unlink()
    assert running.get("/v1/tasks").status_code == 200


def test_it_ends_with_its_ray(running: Running) -> None:
    """The service does not linger half-dead: it exits, and its supervisor can start it again."""
    family = psutil.Process(running.process.pid).children(recursive=True)
    [raylet] = [one for one in family if one.name() == "raylet"]
    raylet.kill()
    assert running.process.wait(15) == 1
    assert "Ray's raylet has died, which ends the service: start it again" in running.log.read_text()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []


@pytest.mark.lengthy
def test_a_grain_that_hides_nothing_is_refused(running: Running) -> None:
    """After the service that used this database has stopped."""
    environment = {**running.environment, "DPICL_LATENCY_GRAIN_MS": "1"}
    refused = subprocess.run([DPICL, "serve", "--port", "8789"], env=environment, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "a latency grain of 1 ms does not hide that: set DPICL_LATENCY_GRAIN_MS to at least" in refused.stderr
