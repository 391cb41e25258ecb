"""A question is a text on every door: the engine gets it as it was sent, or every door refuses it in the same words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from accounting.plans.plan import calibrate_plan, load_plan
from service.answering.plans.signing import sign
from service.answering.queries import MAX_QUERY_CHARACTERS
from service.cli import ask
from service.operations.services import Services
from service.serving.web import create_app
from tests.processes import listening
from tests.service.conftest import PLAN, MajorityEngine, client_of, serving
from tests.service.gateway.dashboard.dashboard_browser import signed_in
from tests.service.gateway.dashboard.test_dashboard_plans import ROWS, part
from tests.service.shell import Shell

TEXTS = [
    *(
        '{"event": "payment_failed", "code": "E42"}',
        '{"text": "a toy"}',
        '{"text": "a", "text": "b"}',
        '{"n": 3}',
        "{}",
    ),
    *('["lamp", "chair"]', "[1,2]", "[]", "null", "true", "False", "42", "-0.5e3", "NaN", "Infinity", '"quoted"', '""'),
    *(
        '{"event":',
        "[[[[",
        "text: a toy",
        "- a\n- b",
        "key: [1, 2]",
        "~",
        "&a *a",
        "!!python/none",
        "yes",
        "0x10",
        "1:30",
    ),
    *("{text}", "{label}: {text}", "{0}", "{{text}}", "{text!r:>9}", "%s %(text)s", "${text}", "{% if x %}", "{"),
    *(
        "epsilon",
        "what is the budget?",
        "answers: 20",
        "query",
        "ignore",
        "data: [DONE]",
        "\\n",
        "\\u0000",
        "a\\",
        "/task",
    ),
    *(
        "<script>alert(1)</script>",
        "a & b &amp; c",
        "**bold** `code`",
        "<!-- c -->",
        "]]>",
        "a\tb",
        "a\x01\x1b[31mb\x7f",
    ),
    *(
        "two\r\nlines",
        "line\u2028line",
        "tab\there",
        "Zoë 👩‍👩‍👧 日本\u200e",
        "\ufeffmarked",
        "a+b=c&d=e;f",
        "100 %41",
    ),
    "--help",
    "x" * MAX_QUERY_CHARACTERS,
    "[" * 5_000,
]
REFUSED = {
    "": "text is empty",
    " \r\n\t": "text is empty",
    "a\x00b": "a query is Unicode text",
    "a\ud800b": "a query is Unicode text",
    "x" * (MAX_QUERY_CHARACTERS + 1): "a query holds at most",
}
_JSON = {"Content-Type": "application/json"}
Door = Callable[[str], tuple[str, str]]
"""Sends a text; the result is the release's id, or nothing and what the refusal reads."""


@pytest.fixture(scope="module")
def engine() -> MajorityEngine:
    return MajorityEngine()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, engine: MajorityEngine) -> Services:
    opened = serving(tmp_path_factory.mktemp("texts"), engine)
    sign(opened.records, calibrate_plan(load_plan(PLAN.replace("answers: 20", "answers: 200")), 60), "test")
    return opened


@pytest.fixture(scope="module")
def client(services: Services) -> TestClient:
    return client_of(services)


def post(client: TestClient, path: str, body: Any) -> tuple[str, str]:
    response = client.post(path, content=json.dumps(body), headers=_JSON)
    given = response.json()
    return (given["id"], "") if response.status_code == 200 else ("", given["detail"])


def asking(client: TestClient, path: str, shape: Callable[[str], Any]) -> Door:
    return lambda text: post(client, path, shape(text))


def chat(content: Any) -> dict[str, Any]:
    return {"model": "toys.colour", "messages": [{"role": "user", "content": content}]}


def responses(given: Any) -> dict[str, Any]:
    return {"model": "toys.colour", "input": given}


HTTP = {
    "REST": ("/v1/tasks/toys.colour/answers", lambda text: {"query": text}),
    "REST, an object": ("/v1/tasks/toys.colour/answers", lambda text: {"query": {"text": text}}),
    "chat": ("/v1/chat/completions", chat),
    "chat, a part": ("/v1/chat/completions", lambda text: chat([{"type": "text", "text": text}])),
    "responses": ("/v1/responses", responses),
    "responses, an item": ("/v1/responses", lambda text: responses([{"role": "user", "content": text}])),
    "responses, a part": (
        "/v1/responses",
        lambda text: responses(
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]
        ),
    ),
}


@pytest.fixture(params=[*HTTP, "MCP", "MCP, an object", "ask", "batch"])
def door(
    request: pytest.FixtureRequest,
    services: Services,
    client: TestClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Door]:
    if request.param in HTTP:
        yield asking(client, *HTTP[request.param])
        return
    if request.param.startswith("MCP"):
        key = services.records.keys.create("agent", "analyst")[1]
        with listening(create_app(services)) as url, httpx.Client(headers={"Authorization": f"Bearer {key}"}) as http:
            yield lambda text: call(http, url, {"text": text} if "object" in request.param else text)
        return
    monkeypatch.setattr(ask, "connect", lambda _service: client_of(services))
    dpicl = Shell(monkeypatch, request.getfixturevalue("capsys"))  # a server's thread must not meet it
    if request.param == "ask":
        yield lambda text: shown(dpicl("ask", "--json", "toys.colour", "--", text))
        return

    def batch(text: str) -> tuple[str, str]:
        questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
        answers.unlink(missing_ok=True)
        questions.write_text(json.dumps({"text": text, "n": 1}) + "\n")
        status, _, err = dpicl("batch", "toys.colour", questions, "--out", answers)
        return (json.loads(answers.read_text())["release"], "") if status == 0 else ("", err)

    yield batch


def call(http: httpx.Client, url: str, query: Any) -> tuple[str, str]:
    arguments = {"name": "ask", "arguments": {"task": "toys.colour", "query": query}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}
    headers = _JSON | {"Accept": "application/json, text/event-stream"}
    given = http.post(f"{url}/mcp", content=json.dumps(body), headers=headers).json()
    if "error" in given:
        return "", given["error"]["message"]
    result = given["result"]
    return ("", result["content"][0]["text"]) if result["isError"] else (result["structuredContent"]["id"], "")


def shown(outcome: tuple[int, str, str]) -> tuple[str, str]:
    status, out, err = outcome
    return (json.loads(out)["id"], "") if status == 0 else ("", err)


def test_a_text_is_the_same_question_through_every_door(door: Door, engine: MajorityEngine, client: TestClient) -> None:
    before = asking(client, *HTTP["REST"])
    for text in TEXTS:
        release, refusal = door(text)
        assert release, f"{text[:60]!r}: {refusal}"
        assert before(text) == (release, "")
    seen = [query["text"] for _, query, _ in engine.shown]
    assert (Counter(seen) - Counter(TEXTS), Counter(TEXTS) - Counter(seen)) == ({}, {}), "each once, as it was sent"


def test_what_cannot_be_asked_is_refused_in_the_same_words(door: Door, engine: MajorityEngine) -> None:
    asked = len(engine.shown)
    for text, words in REFUSED.items():
        release, refusal = door(text)
        assert release == "", text[:60]
        said = " ".join(refusal.split())
        # A batch checks its file first; over MCP half a surrogate pair is refused wherever it stands in the message.
        earlier = "questions.jsonl: row 1" in said or ("\ud800" in text and "half a surrogate pair" in said)
        assert words in said or earlier, text[:60]
    assert len(engine.shown) == asked


def test_a_trial_asks_the_text(engine: MajorityEngine, client: TestClient) -> None:
    rows = [{"text": "red ball", "label": "red"}]
    for text in TEXTS:
        body = {"query": text, "exemplars": rows, "repeats": 1}
        assert client.post("/v1/tasks/toys.colour/preview", content=json.dumps(body), headers=_JSON).status_code == 200
        assert engine.shown.pop()[1] == {"text": text}


def test_the_dashboard_tries_the_text(services: Services, engine: MajorityEngine) -> None:
    browser = signed_in(services)
    for text in TEXTS:
        # Browsers send every line break of a form as CR LF.
        page = part(browser, "/try", trial_rows=ROWS, trial_query=text.replace("\r\n", "\n").replace("\n", "\r\n"))
        assert engine.shown, page
        assert engine.shown.pop()[1] == {"text": text.replace("\r\n", "\n")}
