"""Commands that speak HTTP, at an address that is mistyped, busy, or another program's."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.cli import ask
from service.operations.services import Services
from tests.service.shell import Shell

pytestmark = pytest.mark.slow

ANSWER = {
    "id": "r",
    "task": "kb.t@1",
    "label": "A",
    "query_fields": ["text"],
    "cost": {"charged": 1, "answers_left": 3},
}


class Server(ThreadingHTTPServer):
    """Answers everything alike, after some refusals.

    Attributes:
        status, body, headers: the answer to each request.
        refusals: number of questions to refuse first, with status 503 and the same headers.
    """

    status, body = 200, b""
    headers: dict[str, str]
    refusals = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        busy = self.command == "POST" and self.server.refusals > 0
        self.server.refusals -= busy
        self.send_response(503 if busy else self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = answer  # noqa: N815 (the names that the library calls)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.headers = {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def commands(tmp_path: Path, url: str) -> dict[str, tuple[object, ...]]:
    """Every command that takes --url."""
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"text": "a toy"}\n')
    at = ("--url", url, "--key", "dpicl_x")
    restore = ("a text", "--bundle", "b@1", "--ledger", tmp_path / "restore.sqlite")
    return {
        "ask": ("ask", "kb.t", "a toy", *at),
        "batch": ("batch", "kb.t", questions, "--out", tmp_path / "answers.jsonl", *at),
        "budget": ("budget", *at),
        "restore ask": ("restore", "ask", *restore, *at),
        "restore preview": ("restore", "preview", *restore, *at),
    }


NAMES = ("ask", "batch", "budget", "restore ask", "restore preview")
MISTYPED = (
    *("127.0.0.1:8080", "localhost:8080", "ftp://localhost", "http://", "http:/localhost", "", "http://[::1"),
    *(
        "http:// localhost",
        "http://127.0.0.1:port",
        "http://127.0.0.1:80800",
        "http://127.0.0.1:0",
        "http://127.0.0.1:8080\n",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_mistyped_address_is_reported_in_one_sentence(dpicl: Shell, tmp_path: Path, name: str) -> None:
    for url in MISTYPED:
        status, out, err = dpicl(*commands(tmp_path, url)[name])
        assert (status, out) == (1, "")
        assert f"error: --url: {url!r} is not" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_key_or_an_address_holds_is_not_repeated(dpicl: Shell, tmp_path: Path, name: str) -> None:
    for url in ("http://me:secret@127.0.0.1:9", "http://me:secret@127.0.0.1:0", "http://127.0.0.1:9/?key=secret"):
        said = dpicl.fails(*commands(tmp_path, url)[name])
        assert "leave out what stands before an @" in said
        assert "secret" not in said
    for key in ("dpicl_canary\nX-Other: b", "“canary”", "'canary'"):
        said = dpicl.fails(*commands(tmp_path, "http://127.0.0.1:9")[name], "--key", key)
        assert "a character that no key has" in said
        assert "canary" not in said


@pytest.mark.parametrize("name", NAMES)
def test_another_programs_address_is_reported_in_one_sentence(
    dpicl: Shell, server: Server, tmp_path: Path, name: str
) -> None:
    wrong = [
        (404, b"<html>Not here</html>", {}, "answered 404, and not"),
        (404, b"[]", {}, "answered 404, and not"),
        (301, b"", {"Location": "https://example.org/"}, "answered 301"),
        (200, b'"hello"', {}, "answered 200, and not"),
    ]
    if not name.startswith("restore"):
        wrong += [(200, b"{}", {}, "answered 200, and not"), (404, b'{"error": {}}', {}, "answered 404, and not")]
    for server.status, server.body, server.headers, message in wrong:
        status, _, err = dpicl(*commands(tmp_path, server.url)[name])
        assert status == 1
        assert message in err
        assert "Traceback" not in err
    server.shutdown()
    server.server_close()
    assert "does not answer" in dpicl.fails(*commands(tmp_path, server.url)[name])


def test_a_base_url_that_ends_in_v1_is_recognised(dpicl: Shell, services: Services, monkeypatch) -> None:
    """OpenAI's client needs such a base URL, and this client does not."""
    from service.serving.web import create_app

    app = TestClient(create_app(services), base_url="http://service/v1", headers={"Authorization": "Bearer x"})
    monkeypatch.setattr(ask, "connect", lambda _service: app)
    assert "leave /v1 out" in dpicl.fails("ask", "kb.t", "a toy")


@pytest.mark.parametrize(
    ("header", "waited"),
    [
        ("7", 7),
        ("0", 1),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1),
        ("Fri, 31 Dec 2100 23:59:59 GMT", 60),
        ("120, 240", 1),
        ("nan", 1),
        ("86400", 60),
    ],
)
def test_a_busy_service_is_asked_again_after_the_time_it_names(
    dpicl: Shell, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, waited: float
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(ask.time, "sleep", slept.append)
    server.body = json.dumps({**ANSWER, "engine": {"notice": "n"}}).encode()
    server.headers, server.refusals = {"Retry-After": header}, 2
    dpicl.ok(*commands(tmp_path, server.url)["batch"])
    assert slept == [waited, waited]
    assert json.loads((tmp_path / "answers.jsonl").read_text())["answer"] == "A"
