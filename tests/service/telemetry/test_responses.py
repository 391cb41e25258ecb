"""Responses are counted by all replicas together, and none that could tell of exemplars."""

import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from service.records.database import open_database
from service.records.schema import migrate
from service.records.tables import http_responses
from service.services import Services
from service.telemetry.responses import Responses
from service.web import create_app
from tests.service.conftest import MajorityEngine, client_of


def test_replicas_add_up(database_url: str) -> None:
    migrate(open_database(database_url))
    replicas = [Responses(open_database(database_url)) for _ in range(4)]

    def count(replica: Responses, kinds: list[tuple[str, int, str]]) -> None:
        for _ in range(5):
            for kind in kinds:
                replica.note(kind)
            replica.store()

    kinds = [("api", status, "") for status in (200, 402, 503)]
    threads = [threading.Thread(target=count, args=(one, kinds[:: (-1) ** i])) for i, one in enumerate(replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {kind: times for kind, times in replicas[0].counts().items() if times} == dict.fromkeys(kinds, 20)


def test_counts_wait_for_a_database_that_is_away(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/late.sqlite")
    responses = Responses(database)
    responses.note(("api", 200, ""))
    with pytest.raises(sa.exc.OperationalError):
        responses.store()  # no table yet
    migrate(database)
    responses.note(("api", 200, ""))
    assert responses.counts()["api", 200, ""] == 2


def counted(services: Services) -> dict[tuple[str, int, str], int]:
    return {kind: times for kind, times in Responses(services.records.database).counts().items() if times}


def test_what_is_counted_and_what_is_not(services: Services, toy_engine: MajorityEngine) -> None:
    may, decide = ({"Authorization": f"Bearer {services.records.keys.create(r, r)[1]}"} for r in ("analyst", "admin"))
    ask, guess = "/v1/tasks/toys.colour/answers", {"Authorization": "Bearer dpicl_guess"}
    units = "/v1/knowledge-bases/toys/units"
    with TestClient(create_app(services)) as client:
        client.post(ask, json={"query": "a toy"}, headers=may)
        toy_engine.down = True
        client.post(ask, json={"query": "another toy"}, headers=may)
        client.post(ask, content=b"x" * 300_000, headers=may)  # refused by the gate
        client.get("/v1/budgets", headers=guess)
        client.get("/admin/sign-in")
        client.post("/admin/sign-in", data={"key": "a guess"}, headers={"Sec-Fetch-Site": "same-origin"})
        client.get("/v1/nowhere", headers=may)
        client.get("/healthz")
        client.get("/metrics", headers=may)
        # How these end depends on what is stored; the last, on the key alone.
        client.delete(f"{units}/u1", headers=decide)
        client.delete(f"{units}/nobody", headers=decide)
        client.delete(f"{units}/u1", headers=guess)
    # At its end the replica stores what it has counted, though nobody asked for metrics since.
    assert counted(services) == {
        ("api", 200, ""): 1,
        ("api", 401, "invalid-key"): 2,
        ("api", 404, "not-found"): 1,
        ("api", 413, "body-too-large"): 1,
        ("api", 503, "engine-unavailable"): 1,
        ("dashboard", 200, ""): 1,
        ("dashboard", 401, ""): 1,
    }


def test_a_replica_stores_by_itself(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.telemetry.responses._STORED_EVERY_S", 0.05)
    with TestClient(create_app(services)) as client:
        client.get("/v1/nowhere")
        deadline = time.monotonic() + 30
        while True:
            with services.records.database.connect() as connection:
                if connection.execute(sa.select(http_responses.c.times)).scalars().all() == [1]:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_the_application_did_not_expect_is_counted(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(services.records.ledger.budgets), "statuses", Mock(side_effect=RuntimeError("a bug")))
    with client_of(services, "admin") as client:
        client.get("/v1/budgets")
    assert counted(services) == {("api", 500, "internal-error"): 1}
