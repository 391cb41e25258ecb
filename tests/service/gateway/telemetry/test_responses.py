"""Each replica counts its responses, without those that could reveal something of exemplars."""

from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from service.operations.services import Services
from service.serving.web import create_app
from tests.service.conftest import MajorityEngine, client_of


def counted(client: TestClient, services: Services) -> dict[tuple[str, int, str], int]:
    """Counts of responses in the replica's metrics, without zeros."""
    monitor = {"Authorization": f"Bearer {services.records.keys.create('monitor', 'viewer')[1]}"}
    shown = text_string_to_metric_families(client.get("/metrics", headers=monitor).text)
    samples = [sample for family in shown if family.name == "dpicl_http_responses" for sample in family.samples]
    assert len({sample.labels["replica"] for sample in samples}) == 1
    return {
        (sample.labels["surface"], int(sample.labels["status"]), sample.labels["problem"]): int(sample.value)
        for sample in samples
        if sample.value
    }


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
        # The results of these depend on the stored exemplars; that of the last, on the key alone.
        client.delete(f"{units}/u1", headers=decide)
        client.delete(f"{units}/nobody", headers=decide)
        client.delete(f"{units}/u1", headers=guess)
        shown = counted(client, services)
    assert shown == {
        ("api", 200, ""): 1,
        ("api", 401, "invalid-key"): 2,
        ("api", 404, "not-found"): 1,
        ("api", 413, "body-too-large"): 1,
        ("api", 503, "engine-unavailable"): 1,
        ("dashboard", 200, ""): 1,
        ("dashboard", 401, ""): 1,
    }


def test_an_unexpected_error_is_counted(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(services.records.ledger.budgets), "statuses", Mock(side_effect=RuntimeError("a bug")))
    with client_of(services, "admin") as client:
        client.get("/v1/budgets")
        monkeypatch.undo()
        assert counted(client, services) == {("api", 500, "internal-error"): 1}
