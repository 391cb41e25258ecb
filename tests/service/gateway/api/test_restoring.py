"""Redacted texts over HTTP, through the client that people use and the application that serves."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from sanitization.restore.bundle import BOOK, Bundle, folder_of
from sanitization.restore.client import RestoreClient
from service.answering.restoring import RedactedQuery, Restoring
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.engines.protocol import EngineInfo
from service.engines.task import TaskSpec, ZeroShot
from service.operations.services import Services, open_services
from tests.sanitization.restore.made_up import OPTIONS, published
from tests.service.conftest import EMBEDDER, MajorityEngine, client_of, serving

SIGNS = {"measles": ("fever", "rash"), "diabetes": ("thirst", "cramp"), "flu": ("cough", "vertigo")}


class Doctor(MajorityEngine):
    """An engine that answers with the illness whose signs are in the text, else the first, and keeps its questions."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.specs: list[TaskSpec] = []
        self.fails: Exception | None = None
        self.mute = False
        self.writes = True

    async def describe(self) -> EngineInfo:
        return replace(await super().describe(), is_llm=self.writes)

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        if self.fails is not None:
            raise self.fails
        self.texts.append(query["text"])
        self.specs.append(task)
        await asyncio.sleep(0.01)
        if task.kind == "generate":
            return ZeroShot(texts=tuple([f"Take rest: {query['text']}"][: 0 if self.mute else task.candidates]))
        found = [sum(sign in query["text"] for sign in SIGNS[name]) for name in task.labels]
        return ZeroShot(np.array(found, dtype=float))


@pytest.fixture
def doctor() -> Doctor:
    return Doctor()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return published(tmp_path / "bundles")


@pytest.fixture
def services(tmp_path: Path, doctor: Doctor, bundle: Bundle) -> Services:
    return serving(tmp_path, doctor, restore_bundles=tmp_path / "bundles", max_queries_in_flight=40)


def redacted(bundle: Bundle, **change: Any) -> dict[str, Any]:
    """The body of a client's request."""
    sent = {"bundle": bundle.address, "bundle_sha256": bundle.sha256, "query": "has ___", "profile": 1}
    return sent | change


def client(services: Services, tmp_path: Path, **other: Any) -> RestoreClient:
    settings = {"bundle": "clinic@1", "epsilon": 8.0, "ledger": tmp_path / "restore.db", "http": client_of(services)}
    return RestoreClient("", "", **settings | other)


def test_a_profile_restores_the_answer(services: Services, doctor: Doctor, tmp_path: Path) -> None:
    with client(services, tmp_path, epsilon=8.0, budget=1e9) as asking:
        for illness, signs in SIGNS.items():
            said = [asking.ask(f"case {number}: {signs[0]}, {signs[1]}", signs).text for number in range(8)]
            assert said.count(illness) >= 5  # each is right with 99.9 %
    assert all(text.startswith("case ") for text in doctor.texts)


@pytest.mark.parametrize("fails", [None, EngineUnavailableError("down")])
def test_an_answer_or_error_of_the_engine_leaves_on_a_grain(
    doctor: Doctor, bundle: Bundle, tmp_path: Path, fails: Exception | None
) -> None:
    """The engine may have waited for a model that samples of private questions kept busy."""
    doctor.fails = fails
    restoring = Restoring(tmp_path / "bundles", doctor, timeout_s=60, max_in_flight=4, grain_s=0.2)
    begun = time.monotonic()
    asked = RedactedQuery(bundle=bundle.address, bundle_sha256=bundle.sha256, query="has fever", profile=0)
    with contextlib.suppress(EngineUnavailableError):
        asyncio.run(restoring.answer(asked, "ann"))
    assert time.monotonic() - begun >= 0.2


def test_the_server_sees_the_medoid_and_not_the_spans(
    services: Services, doctor: Doctor, bundle: Bundle, tmp_path: Path
) -> None:
    asking = client(services, tmp_path, epsilon=8.0)
    answer = asking.ask("has strong fever now", ["strong fever"])
    assert doctor.texts == [f"has {', '.join(bundle.manifest.medoids[answer.profile]) or '___'} now"]
    (spec,) = doctor.specs
    assert spec.labels == tuple(OPTIONS)
    assert bundle.sha256 in spec.knowledge_base


def test_keys_and_bundles_share_no_cache(services: Services, doctor: Doctor, bundle: Bundle, tmp_path: Path) -> None:
    other = published(tmp_path / "bundles", report={"second": 2})
    for name, found in (("ann", bundle), ("bob", bundle), ("ann", other)):
        asking = client_of(services, name=f"{name} {found.address}")
        assert asking.post("/v1/restore/answers", json=redacted(found)).status_code == 200
    names = {spec.knowledge_base for spec in doctor.specs}
    assert len(names) == 3
    assert all(" " in name for name in names)  # unlike the name of any knowledge base


def test_answers_to_the_same_request_are_the_same_bytes(services: Services, bundle: Bundle, caplog, capfd) -> None:
    """The service has only the redacted text and the number of the profile, and logs neither."""
    caplog.set_level(logging.DEBUG)
    asking = client_of(services)
    body = redacted(bundle, query="zebrafish ___", profile=3)
    replies = [asking.post("/v1/restore/answers", json=body) for _ in range(3)]
    assert len({reply.content for reply in replies}) == 1
    assert set(replies[0].json()) == {"answer", "bundle", "mode"}
    out, err = capfd.readouterr()
    assert "zebrafish" not in out + err + caplog.text


def test_refusals(services: Services, doctor: Doctor, bundle: Bundle) -> None:
    body, asking = redacted(bundle, mode="text"), client_of(services)
    for change, status, code in (
        ({"bundle": "clinic@9"}, 422, "unknown_bundle"),
        ({"bundle": "../clinic@1"}, 422, "unknown_bundle"),
        ({"bundle_sha256": "f" * 64}, 409, "bundle_differs"),
        ({"profile": 4}, 422, "invalid_query"),
        ({"profile": -1}, 422, "invalid_request"),
        ({"profile": True}, 422, "invalid_request"),
        ({"profile": 1.0}, 422, "invalid_request"),
        ({"profile": "1"}, 422, "invalid_request"),
        ({"query": 401 * "x"}, 422, "invalid_query"),
        ({"epsilon": 4}, 422, "invalid_request"),
        ({"spans": ["fever"]}, 422, "invalid_request"),
        ({"mode": "steer"}, 422, "steering_not_served"),
        ({"mode": "other"}, 422, "invalid_request"),
    ):
        refused = asking.post("/v1/restore/answers", json=body | change)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code), change
    assert doctor.texts == []
    assert asking.post("/v1/restore/answers", json=body).status_code == 200  # other requests are not affected


def test_free_text_is_written_from_the_profile_and_the_redacted_text(
    services: Services, doctor: Doctor, bundle: Bundle, tmp_path: Path
) -> None:
    asking = client(services, tmp_path, free_text=True)
    answer = asking.ask("has strong fever now", ["strong fever"])
    filled = f"has {', '.join(bundle.manifest.medoids[answer.profile]) or '___'} now"
    assert (answer.text, doctor.texts) == (f"Take rest: {filled}", [filled])
    (spec,) = doctor.specs
    assert (spec.kind, spec.labels, spec.prompt.query) == ("generate", (), bundle.manifest.prompt)
    other = published(tmp_path / "bundles", name="ward", text_prompt="{text} Advice:")
    reply = client_of(services).post("/v1/restore/answers", json=redacted(other, free_text=True))
    assert reply.status_code == 200
    assert doctor.specs[1].prompt.query == "{text} Advice:"


def test_refusals_of_free_text(services: Services, doctor: Doctor, bundle: Bundle) -> None:
    asking, body = client_of(services), redacted(bundle, free_text=True)
    doctor.mute = True
    refused = asking.post("/v1/restore/answers", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unusable_reply")
    doctor.writes, before = False, list(doctor.texts)
    refused = asking.post("/v1/restore/answers", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_query")
    refused = asking.post("/v1/restore/answers", json=redacted(bundle, free_text="yes"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert doctor.texts == before


def test_a_failing_engine(services: Services, doctor: Doctor, bundle: Bundle) -> None:
    asking = client_of(services)
    for doctor.fails, status, code in (
        (EngineBusyError("busy"), 429, "busy"),
        (EngineUnavailableError("down"), 503, "engine_unavailable"),
        (UnusableReplyError("it thinks"), 503, "unusable_reply"),
        (UnanswerableQueryError("too many tokens"), 422, "invalid_query"),
    ):
        refused = asking.post("/v1/restore/answers", json=redacted(bundle))
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


class Neurologist:
    """A model that answers with the option of the profile's number, and keeps its questions."""

    def __init__(self, bundle: Bundle):
        self.bundle, self.asked, self.down = bundle, [], False

    async def bundles(self) -> frozenset[str]:
        return frozenset({self.bundle.sha256})

    async def health(self) -> None:
        if self.down:
            raise EngineUnavailableError("loading")

    async def restore(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> np.ndarray:
        self.asked.append((text, profile))
        return np.eye(len(task.labels))[(profile or 0) % 3]

    async def restore_text(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> str:
        self.asked.append((text, profile))
        return f"{task.kind} {profile}"


def test_a_model_that_can_be_steered_answers_its_bundles(
    services: Services, doctor: Doctor, bundle: Bundle, tmp_path: Path
) -> None:
    other = published(tmp_path / "bundles", name="ward")
    steerer = Neurologist(bundle)
    both = open_services(services.records, doctor, EMBEDDER, steerer=steerer)
    asking = client_of(both)

    def ask(found: Bundle, **change: Any) -> httpx.Response:
        sent = {"profile": 2, "mode": "steer", **change}
        return asking.post("/v1/restore/answers", json=redacted(found, **sent))

    assert ask(bundle).json() == {"answer": OPTIONS[2], "bundle": "clinic@1", "mode": "steer"}
    assert ask(bundle, query="has all").json()["answer"] == OPTIONS[0]  # nothing is redacted in it
    ask(bundle, mode="text")
    filled = f"has {', '.join(bundle.manifest.medoids[2])}"
    assert steerer.asked == [("has ___", 2), ("has all", 0), (filled, None)]
    for change, said in (({}, "generate 2"), ({"mode": "text"}, "generate None"), ({"query": "has all"}, "generate 0")):
        assert ask(bundle, free_text=True, **change).json()["answer"] == said
    assert steerer.asked[3:] == [("has ___", 2), (filled, None), ("has all", 0)]
    assert ask(other).json()["error"]["code"] == "steering_not_served"
    assert ask(bundle, profile=4).json()["error"]["code"] == "invalid_query"
    assert ask(bundle, bundle_sha256=other.sha256).json()["error"]["code"] == "bundle_differs"
    assert len(steerer.asked) == 6  # refusals do not reach it
    assert ask(other, mode="text").status_code == 200
    assert doctor.texts == [f"has {', '.join(other.manifest.medoids[2])}"]


def test_ready_means_that_it_can_steer(services: Services, doctor: Doctor, bundle: Bundle) -> None:
    steerer = Neurologist(bundle)
    both = open_services(services.records, doctor, EMBEDDER, steerer=steerer)
    for steerer.down in (True, False, True):
        asyncio.run(both.heartbeat.beat())
        ready = client_of(both).get("/readyz")
        if steerer.down:
            assert (ready.status_code, "restore engine" in ready.json()["detail"]) == (503, True)
        else:
            assert ready.status_code == 200


@pytest.mark.slow
def test_a_model_that_loads_does_not_delay_health_checks_of_others(
    services: Services, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.records.telemetry.heartbeat._MISSED_S", 3600)
    looks, enough = [], asyncio.Event()

    class Loading(Neurologist):
        async def health(self) -> None:
            await asyncio.Event().wait()

    class Looked(MajorityEngine):
        async def health(self) -> None:
            looks.append(1)
            if len(looks) == 2:
                enough.set()

    heartbeat = open_services(services.records, Looked(), EMBEDDER, steerer=Loading(bundle)).heartbeat

    async def watch() -> None:
        beating = asyncio.create_task(heartbeat.keep_beating())
        await enough.wait()
        beating.cancel()

    asyncio.run(asyncio.wait_for(watch(), 60))
    assert heartbeat.missing() == "restore engine"


def test_a_damaged_bundle_is_not_served(services: Services, bundle: Bundle, tmp_path: Path) -> None:
    file = folder_of(tmp_path / "bundles", "clinic@1") / BOOK
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    asking = client_of(services)
    assert asking.get("/v1/restore/bundles/clinic@1").status_code == 404
    refused = asking.post("/v1/restore/answers", json=redacted(bundle))
    assert refused.json()["error"]["code"] == "unknown_bundle"


def test_bundles_are_listed_as_they_are_published(services: Services, tmp_path: Path) -> None:
    asking = client_of(services)
    assert asking.get("/v1/restore/bundles").json() == {"items": ["clinic@1"]}
    published(tmp_path / "bundles", name="ward")
    assert asking.get("/v1/restore/bundles").json() == {"items": ["clinic@1", "ward@1"]}
    assert json.loads(asking.get("/v1/restore/bundles/ward@1").json()["manifest"])["name"] == "ward"


def test_too_many_at_once_are_refused(services: Services, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services.restoring, "max_in_flight", 0)
    refused = client_of(services).post("/v1/restore/answers", json=redacted(bundle))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
    assert refused.headers["retry-after"] == "1"
