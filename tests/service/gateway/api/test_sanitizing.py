"""``POST /v1/sanitize``: texts that may leave, their cost, and refusals."""

import itertools
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from research.sanitization.as_published import PUBLISHED
from sanitization import mechanisms
from sanitization.mechanisms import CORRECTED, RESPONSES
from service.engines.embedding import sanitizers
from service.engines.embedding.embedder import Embedder
from service.engines.embedding.sanitizers import MOST_UNKNOWN
from service.operations.services import Services
from service.settings import Settings
from tests.service.conftest import client_of, serving

pytestmark = pytest.mark.model

WORDS = 300
PUBLIC = ("Can I keep a cat?", "Who pays for repairs?", "When is the rent due?", "How do I give notice?")
TEXT = "Jane had a state school in 1999, <NAME>!"  # three words, one of them unknown, and "NAME"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    """A service that sanitises, with a cap of ε = 60 for each key."""
    folder = tmp_path_factory.mktemp("sanitising")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        (folder / "public.txt").write_text("\n\n".join(PUBLIC))
        texts = {"sanitizer_words": WORDS, "public_texts": folder / "public.txt", "text_epsilon_cap": 60}
        services = serving(folder, embedder=Embedder(), **texts)
    early = asking(services)(texts=["a"])
    assert (early.status_code, early.json()["error"]["code"]) == (503, "sanitizer_unavailable")
    assert early.headers["retry-after"] == "60"
    services.sanitizers.prepare()
    return services


def asking(services: Services) -> Any:
    """A function that asks as a new analyst."""
    client, headers = client_of(services), {"Content-Type": "application/json"}
    return lambda **body: client.post("/v1/sanitize", headers=headers, content=json.dumps(body))


@pytest.fixture
def ask(services: Services) -> Any:
    return asking(services)


def test_what_is_promised_and_what_it_cost(ask: Any) -> None:
    said = ask(texts=[TEXT, "", TEXT], epsilon=4.3, keep=["stopwords", "punctuation", "placeholders"]).json()
    epsilon = said["artifact"]["audit"]["epsilon"]
    assert 3.99 < epsilon <= 4
    assert said["items"][0] == said["items"][2]
    assert said["items"][1] == {"text": "", "tokens": 0, "epsilon_token": epsilon, "epsilon_text": 0}
    assert re.fullmatch(r"\w+ had a \w+ \w+ in \d+, <NAME>!", said["items"][0]["text"])
    assert (said["items"][0]["tokens"], said["items"][0]["epsilon_text"]) == (10, pytest.approx(3 * epsilon))
    assert said["ledger"] == {"charged": pytest.approx(12), "epsilon": pytest.approx(12), "cap": 60}
    assert {"stopwords", "placeholders", "which texts are repeated"} < set(said["released_as_public"])
    assert set(said["items"][0]) == {"text", "tokens", "epsilon_token", "epsilon_text"}, "not which words were changed"


def test_a_repeat_is_free_and_equal(ask: Any) -> None:
    first = ask(texts=[TEXT, "state"], epsilon=4, conversation="today").json()
    again = ask(texts=["state", TEXT, "high school"], epsilon=4, conversation="later").json()
    assert [item["text"] for item in again["items"][1::-1]] == [item["text"] for item in first["items"]]
    assert again["ledger"]["charged"] == again["ledger"]["conversation_epsilon"] == pytest.approx(8)
    assert again["ledger"]["epsilon"] == pytest.approx(8 + first["ledger"]["conversation_epsilon"])


def test_the_cap(ask: Any) -> None:
    assert ask(texts=["state school"], epsilon=25).status_code == 200
    refused = ask(texts=["house", "state school", "high"], epsilon=25)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "text_budget_exhausted")
    assert "items" not in refused.json()
    assert ask(texts=["state school"], epsilon=25).json()["ledger"]["charged"] == 0
    assert ask(texts=["house"], epsilon=10).status_code == 200


def test_whole_texts(ask: Any) -> None:
    """A text costs one ε, even if it is long or empty. At ε = 25, any but the nearest has a chance below 1e-10."""
    long = "My landlord in Boston wants me to pay for the repairs of the roof. " * 9
    said = ask(texts=[long, "", long, "And my cat?"], mechanism="whole_rr", epsilon=9.9).json()
    epsilon = said["artifact"]["audit"]["epsilon"]
    assert 9.49 < epsilon <= 9.5
    assert {item["text"] for item in said["items"]} <= set(PUBLIC)
    assert [(item["tokens"], item["epsilon_text"]) for item in said["items"]] == [(1, epsilon)] * 4
    assert not {"stopwords", "placeholders"} & set(said["released_as_public"])
    assert (said["artifact"]["mechanism"], said["artifact"]["keep"]) == ("whole_rr", [])
    nearest = ask(texts=["Who must pay the plumber?"], mechanism="whole_rr", epsilon=25, keep=[]).json()
    assert nearest["items"][0]["text"] == PUBLIC[1]
    assert nearest["ledger"]["epsilon"] == pytest.approx(3 * epsilon + 25)


def test_an_epsilon_that_cannot_be_attained_is_refused(ask: Any) -> None:
    for epsilon, mechanism in itertools.product((0.4, 25.01, 1e300), ("medoid_rr", "whole_rr")):
        refused = ask(texts=["a"], epsilon=epsilon, mechanism=mechanism)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "epsilon_not_attainable")
        assert (refused.json()["least"], refused.json()["largest"]) == (0.5, 25)


def test_invalid_requests_are_refused(ask: Any) -> None:
    for body in (
        {"texts": []},
        {"texts": ["a"] * 257},
        {"texts": ["a"], "epsilon": -1},
        {"texts": ["a"], "epsilon": float("nan")},
        {"texts": ["a"], "epsilon": "8"},
        {"texts": ["a"], "keep": ["names"]},
        {"texts": ["a"], "mechanism": "fbdd"},
        {"texts": ["a"], "mechanism": "whole_rr", "keep": ["stopwords"]},
        {"texts": ["a"], "conversation": "a\nb"},
        {"texts": [" ".join(f"x{'q' * i}" for i in range(MOST_UNKNOWN + 1))]},
    ):
        refused = ask(**body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request"), body
        assert len(refused.json().get("problems", ["one"])) == 1, "said once"


@pytest.mark.parametrize("mechanism", CORRECTED)
def test_published_mechanisms_are_offered_corrected(ask: Any, mechanism: str) -> None:
    said = ask(texts=["state school, sent as it is: zebrafish"], epsilon=4, mechanism=mechanism).json()
    assert said["artifact"]["mechanism"] == mechanism
    assert said["artifact"]["audit"]["epsilon"] <= 4
    assert said["artifact"]["audit"]["inputs"] == said["artifact"]["audit"]["of"]
    assert said["ledger"]["charged"] == pytest.approx(4 * said["artifact"]["audit"]["epsilon"])
    assert "zebrafish" not in said["items"][0]["text"]


def test_mechanisms_as_published_are_refused_with_what_is_offered(ask: Any) -> None:
    for name in {*PUBLISHED} - {*CORRECTED} | {"rot13"}:
        (problem,) = ask(texts=["a"], mechanism=name).json()["problems"]
        assert all(offered in problem for offered in (*RESPONSES, *CORRECTED, "whole_rr"))
        assert "true ε is at most" in problem


def test_tables_that_callers_make_do_not_fill_the_disk(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, size = services.sanitizers._folder, 8 * 300**2
    monkeypatch.setattr(sanitizers, "MOST_TABLE_BYTES", 3 * size)
    first = services.sanitizers.open("santext", 3.0, [])
    for epsilon in (3.5, 4.5, 5.0, 5.5, 6.0):
        services.sanitizers.open("santext", epsilon, [])
        assert sum(file.stat().st_size for file in folder.glob("*.npy")) <= 3 * size + 1000
    assert len(first.sanitize("state school").text.split()) == 2, "it stays open"
    assert services.sanitizers.open("santext", 3.0, []).artifact.digest == first.artifact.digest


@pytest.mark.parametrize("mechanism", ["medoid_rr", "whole_rr"])
def test_strange_texts(ask: Any, mechanism: str) -> None:
    """JSON can hold half a surrogate pair, which is not Unicode; it costs the same as other words."""
    texts = ["", "\ud800 \udfff", "\x00\x1b", "😀 日本語", "x" * 200_000]
    said = ask(texts=texts, epsilon=0.5, mechanism=mechanism)
    assert said.status_code == 200
    words = [0, 2, 1, 2, 1] if mechanism == "medoid_rr" else [1] * 5
    epsilons = [round(item["epsilon_text"] / 0.5, 3) for item in said.json()["items"]]
    assert epsilons == words


def test_too_many_or_too_few_words_are_refused(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "LARGEST_BYTES", 8 * WORDS)
    refused = ask(texts=["a"], mechanism="nearest_rr", epsilon=1.5)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "sanitizer_unavailable")
    assert "fewer words" in refused.json()["detail"]
    with pytest.raises(ValueError, match="50"):
        Settings(sanitizer_words=49)


def test_no_text_is_logged(ask: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    done = ask(texts=["zebrafish"], epsilon=1)
    refused = ask(texts=["zebrafish " * 99], epsilon=25)
    assert (done.status_code, refused.status_code) == (200, 403)
    out, err = capfd.readouterr()
    said = out + err + caplog.text + refused.text
    assert "zebrafish" not in said
    assert done.json()["items"][0]["text"] not in refused.text


def test_a_service_without_sanitisers(tmp_path: Path) -> None:
    ask = asking(serving(tmp_path))
    for mechanism, setting in (("medoid_rr", "DPICL_SANITIZER_WORDS"), ("whole_rr", "DPICL_PUBLIC_TEXTS")):
        refused = ask(texts=["a"], mechanism=mechanism)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "sanitizer_unavailable")
        assert setting in refused.json()["detail"]


@pytest.mark.parametrize("content", [None, b"", b"one\ntwo\none\n\nthree", b"\xff\n" * 5])
def test_a_service_without_usable_public_texts_does_not_start(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "public.txt").write_bytes(content)
    with pytest.raises((OSError, ValueError), match=r"public\.txt|needed, not [03]|utf-8"):
        serving(tmp_path, public_texts=tmp_path / "public.txt")


def test_a_request_sent_again_under_its_name_has_the_same_response(services: Services) -> None:
    client = client_of(services)
    named = {"Idempotency-Key": "letter-1"}
    first = client.post("/v1/sanitize", headers=named, json={"texts": [TEXT], "epsilon": 4.3})
    again = client.post("/v1/sanitize", headers=named, json={"texts": [TEXT], "epsilon": 4.3})
    assert (first.status_code, again.json(), again.headers["idempotency-replayed"]) == (200, first.json(), "true")
    other = client.post("/v1/sanitize", headers=named, json={"texts": ["Who pays?"], "epsilon": 4.3})
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_conflict")
