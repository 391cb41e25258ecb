"""The client: what it sends, what it refuses, and which libraries it does not need."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from sanitization.restore import mechanism
from sanitization.restore.bundle import Bundle, BundleError
from sanitization.restore.client import RestoreClient, RestoreRefusedError
from sanitization.restore.ledger import BudgetExhaustedError, ChangedBundleError, RestoreLedger
from sanitization.restore.spans import SpanLeftInTextError, SpanNotFoundError
from tests.laws import ALPHA, p_value
from tests.sanitization.restore.made_up import published

TEXT = "Ann, 40, has fever and a rash."


class Server:
    """Answers like the service, and keeps what it was sent; the tests in tests/service use the real one."""

    def __init__(self, bundle: Bundle):
        self.bundle, self.bodies = bundle, []
        self.status = 200

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(
                200,
                json={
                    "manifest": self.bundle.manifest_bytes.decode(),
                    "book": base64.b64encode(self.bundle.book_bytes).decode(),
                    "publisher": self.bundle.signature.publisher,
                    "signature": self.bundle.signature.signature,
                },
            )
        self.bodies.append(request.content)
        said = {"answer": "measles"} if self.status == 200 else {"title": "Busy", "detail": "later"}
        return httpx.Response(self.status, json=said)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(published(tmp_path / "bundles"))


def client(server: Server, tmp_path: Path, **other: Any) -> RestoreClient:
    http = httpx.Client(base_url="http://restore", transport=httpx.MockTransport(server))
    settings = {"bundle": "clinic@1", "epsilon": 4.0, "ledger": tmp_path / "restore.db", "http": http, **other}
    return RestoreClient("http://restore", "key", **settings)


def test_only_the_redacted_text_and_a_number_leave(server: Server, tmp_path: Path) -> None:
    answer = client(server, tmp_path).ask(TEXT, ["fever", "rash"])
    assert answer.text == "measles"
    (body,) = server.bodies
    assert json.loads(body) == {
        "bundle": "clinic@1",
        "bundle_sha256": server.bundle.sha256,
        "query": "Ann, 40, has ___ and a ___.",
        "profile": answer.profile,
        "mode": "text",
        "free_text": False,
    }


def test_equal_redacted_text_and_number_are_equal_bytes(server: Server, tmp_path: Path, monkeypatch) -> None:
    """This holds whatever the spans, their number, their types and ε are."""
    monkeypatch.setattr(mechanism, "draw", lambda profile, k, epsilon: 2)
    one, other = client(server, tmp_path), client(server, tmp_path, epsilon=0.5)
    one.ask("has fever, rash now", ["fever", "rash"])
    one.ask("has thirst now", ["thirst"])
    other.ask("has gout, an unknown illness, now", ["gout, an unknown illness,"])
    other.ask("has cough,vertigo,rash now", [(4, 21 + 1)])
    assert len(set(server.bodies[:2])) == 1
    assert server.bodies[3] == server.bodies[0]
    assert json.loads(server.bodies[2])["query"] == "has ___ now"
    assert len(set(server.bodies)) == 1


@pytest.mark.slow
def test_what_is_sent_follows_the_promised_law(server: Server, tmp_path: Path) -> None:
    """Over many questions with the same spans, the true profile comes as often as ε allows, and no more often."""
    asking = client(server, tmp_path, epsilon=1.0, budget=1e9)
    profile = server.bundle.book.nearest({"fever": 1.0})
    sent = np.array([asking.ask(f"case {number}: fever", ["fever"]).profile for number in range(250)])
    law = mechanism.response(4, 1.0).rows(np.array([profile]))[0]
    assert p_value(np.bincount(sent, minlength=4), 250, law) > ALPHA
    assert p_value(np.bincount(np.full(250, profile), minlength=4), 250, law) < ALPHA  # sending the truth is caught


def test_no_spans_still_send_a_random_number(server: Server, tmp_path: Path) -> None:
    asking = client(server, tmp_path, epsilon=0.5, budget=1e9)
    assert {asking.ask(f"case {number}", []).profile for number in range(80)} == {0, 1, 2, 3}


def test_repeats_send_the_same_at_no_cost(server: Server, tmp_path: Path) -> None:
    asking = client(server, tmp_path, epsilon=0.5)
    for _ in range(20):
        asking.ask(TEXT, ["fever", "rash"])
    client(server, tmp_path, epsilon=0.5).ask(TEXT, ["rash", "fever"])  # as in another process
    assert len(set(server.bodies)) == 1
    assert RestoreLedger(tmp_path / "restore.db").spent() == 0.5


def test_free_text_sends_the_same_number_at_no_further_cost(server: Server, tmp_path: Path) -> None:
    """An answer is made of the redacted text and the number alone, so asking for another kind of answer is free."""
    client(server, tmp_path, epsilon=0.5).ask(TEXT, ["fever", "rash"])
    for mode in ("text", "steer"):
        client(server, tmp_path, epsilon=0.5, mode=mode, free_text=True).ask(TEXT, ["fever", "rash"])
    bodies = [json.loads(body) for body in server.bodies]
    assert [(body.pop("mode"), body.pop("free_text")) for body in bodies] == [
        ("text", False),
        ("text", True),
        ("steer", True),
    ]
    assert bodies[0] == bodies[1] == bodies[2]
    assert RestoreLedger(tmp_path / "restore.db").spent() == 0.5


def test_a_refused_question_keeps_its_draw(server: Server, tmp_path: Path) -> None:
    asking = client(server, tmp_path, epsilon=0.5)
    server.status = 429
    with pytest.raises(RestoreRefusedError, match="Busy: later"):
        asking.ask(TEXT, ["fever"])
    server.status = 200
    for _ in range(10):
        asking.ask(TEXT, ["fever"])
    assert len(set(server.bodies)) == 1


def test_preview_sends_and_draws_nothing(server: Server, tmp_path: Path) -> None:
    asking = client(server, tmp_path)
    seen = asking.preview("fever, and gout", ["fever", "gout"])
    assert (seen.redacted, seen.unknown, seen.profiles) == ("___, and ___", ("gout",), 4)
    assert seen.truth == pytest.approx(np.exp(4) / (np.exp(4) + 3), rel=1e-5)
    assert (seen.cost, seen.spent, seen.budget) == (4.0, 0.0, 40.0)
    assert server.bodies == []
    asking.ask("fever, and gout", ["fever", "gout"])
    seen = asking.preview("fever, and gout", ["fever", "gout"])
    assert (seen.cost, seen.spent) == (0.0, 4.0)


def test_refusals_come_before_anything_is_sent_or_charged(server: Server, tmp_path: Path) -> None:
    asking = client(server, tmp_path, budget=4.0)
    with pytest.raises(SpanNotFoundError):
        asking.ask(TEXT, ["gout"])
    with pytest.raises(SpanLeftInTextError):
        asking.ask("fever and fever", [(0, 5)])
    with pytest.raises(ValueError, match="400"):
        asking.ask(401 * "x", [])
    assert RestoreLedger(tmp_path / "restore.db").spent() == 0
    asking.ask(TEXT, ["fever"])
    with pytest.raises(BudgetExhaustedError):
        asking.ask(TEXT, ["rash"])
    assert len(server.bodies) == 1
    with pytest.raises(ValueError, match="21"):
        client(server, tmp_path, epsilon=21.0)
    with pytest.warns(UserWarning, match="ε = 9"):
        client(server, tmp_path, epsilon=9.0)


def test_another_bundle_under_the_name_is_refused(server: Server, tmp_path: Path) -> None:
    client(server, tmp_path).ask(TEXT, ["fever"])
    server.bundle = published(tmp_path / "others", report={"other": 1})
    with pytest.raises(ChangedBundleError):
        client(server, tmp_path).ask(TEXT, ["fever"])
    with pytest.raises(BundleError, match=r"clinic@1 .* clinic@2"):
        client(server, tmp_path, bundle="clinic@2").ask(TEXT, ["fever"])


@pytest.mark.slow
def test_attention_weighs_spans(server: Server, tmp_path: Path) -> None:
    """With real MiniLM: shares are positive, and a longer span receives more than a single letter."""
    from sanitization.restore.encoder import attention

    text = "He has a severe stabbing chest pain, and x."
    short, long = attention(text, [(41, 42), (9, 35)])
    assert 0 < short < long < 1
    server.bundle = published(tmp_path / "attentive", weights="attention")
    assert client(server, tmp_path).ask(TEXT, ["fever", "rash"]).text == "measles"


def test_the_client_is_light() -> None:
    """No torch, transformers, scipy or web framework."""
    script = (
        "import sys; import sanitization.restore.client;"
        "heavy = {'torch', 'transformers', 'scipy', 'fastapi', 'ray', 'vllm', 'opendp', 'sqlalchemy'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
