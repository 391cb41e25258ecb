"""Previews over REST: free, marked, and without the private exemplars."""

import asyncio
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest
import sqlalchemy as sa

from accounting.replay.books import violations
from exemplar_store.tables import exemplars, units
from service.operations.services import Services, open_services
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine
from tests.service.gateway.api.test_api import Api, problem

RED = [{"text": f"toy {i}", "label": "red"} for i in range(8)]
PREVIEW = "/v1/tasks/toys.colour/preview"


def preview(api: Api, role: str = "analyst", path: str = PREVIEW, **changes):
    return api(role, "POST", path, json={"query": "a toy", "exemplars": RED, **changes})


def accounts(services: Services) -> dict[str, list]:
    """The whole database, without the rates and the times when keys were last used."""
    metadata = sa.MetaData()
    metadata.reflect(services.records.database)
    kept = [table for name, table in metadata.tables.items() if name not in ("api_keys", "rate_limits")]
    with services.records.database.connect() as connection:
        assert violations(connection) == []
        return {table.name: connection.execute(sa.select(table)).all() for table in kept}


@pytest.mark.parametrize("role", ["analyst", "admin"])
def test_a_preview_is_marked_and_leaves_no_trace(api: Api, role: str) -> None:
    before = accounts(api.services)
    response = preview(api, role)
    assert response.status_code == 200, response.text
    shown = response.json()
    assert shown["preview"] is True
    assert shown["task"] == "toys.colour@1"
    assert shown["label"] in ("red", "blue")
    assert (shown["noiseless"], shown["support"]["blue"]) == ({"label": "red"}, 0)
    assert (shown["repeats"], shown["slots"]) == (20, 10)
    assert 0 < shown["agreeing"] <= 1
    assert "falling_back" not in shown
    assert (shown["exemplars"]["supplied"], shown["exemplars"]["public_size"]) == (8, 60)
    assert (shown["exemplars"]["expected_per_answer"], shown["engine"]["name"]) == (20, "majority")
    assert accounts(api.services) == before


def test_no_private_exemplar_is_read(api: Api) -> None:
    """The service previews even if the tables with private exemplars do not exist."""
    with api.services.records.database.begin() as connection:
        exemplars.drop(connection)
        units.drop(connection)
    assert preview(api).json()["noiseless"] == {"label": "red"}


def test_a_remote_engine_may_see_public_exemplars(records, monkeypatch) -> None:
    """Only the knowledge base's own exemplars may not leave. The answer names the engine that got the public ones."""
    engine = MajorityEngine()
    info = replace(asyncio.run(engine.describe()), remote=True)
    monkeypatch.setattr(engine, "describe", AsyncMock(return_value=info))
    api = Api(open_services(records, engine, EMBEDDER))
    problem(api.ask(), 403, "remote-engine-forbidden")
    assert preview(api).json()["engine"]["remote"] is True


def test_problems_are_reported(api: Api, toy_engine: MajorityEngine) -> None:
    problem(preview(api, path="/v1/tasks/toys.nothing/preview"), 404, "unknown-task")
    problem(preview(api, query=""), 422, "invalid-query")
    bad = problem(preview(api, exemplars=[*RED, {"text": "x"}]), 422, "bad-row")
    assert "9" in bad["detail"]
    assert "label" in bad["detail"]
    problem(preview(api, exemplars=RED * 50), 422, "invalid-request")
    problem(preview(api, exemplars=[{"text": "x" * 300_000, "label": "red"}]), 413, "body-too-large")
    toy_engine.down = True
    problem(preview(api), 503, "engine-unavailable")
    api.services.trials._in_flight = 2
    problem(preview(api), 429, "busy")


def test_a_preview_counts_toward_the_keys_rate_and_not_its_quota(api: Api) -> None:
    key, token = api.services.records.keys.create("slow", "analyst", quota=1, rate_per_minute=2)
    api.tokens["slow"] = token
    assert [preview(api, "slow").status_code for _ in range(3)] == [200, 200, 429]
    (found,) = [one for one in api.services.records.keys.list() if one.id == key.id]
    assert found.charged == 0


LABELLED = [{"unit_id": f"u{i}", "text": f"{c} toy {i}", "label": c} for i in range(50) for c in ("red", "blue")]
MEASURE = "/v1/knowledge-bases/toys/plans/measure"


def test_a_plan_is_measured_on_rows_that_leave_no_trace(api: Api) -> None:
    plan = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "2.0e-5")
    before = accounts(api.services)
    response = api("admin", "POST", MEASURE, json={"plan": plan, "rows": LABELLED})
    assert response.status_code == 200, response.text
    found = response.json()
    planned = found["measured"][0]
    assert (planned["task"], planned["rows"], "change" in planned) == ("colour", 20, False)
    assert 0 <= planned["accuracy"] <= 100
    assert planned["standard_error"] >= 0
    changes = [one["change"] for one in found["measured"][1:]]
    assert changes == list(range(len(found["proposals"])))
    assert accounts(api.services) == before


def test_rows_that_cannot_be_measured_are_reported(api: Api, toy_engine: MajorityEngine) -> None:
    def measure(**sent):
        return api("admin", "POST", MEASURE, json={"plan": PLAN, "rows": LABELLED, **sent})

    problem(measure(rows=[]), 422, "invalid-request")
    for broken in (b"", b"{", b"\xff", b'{"plan": "\\ud800", "rows": [{}]}'):
        sent = problem(api("admin", "POST", MEASURE, content=broken), 422, "invalid-request")
        assert "the body is not JSON" in sent["detail"]
    for broken, says in (
        (b'{"plan": "x", "plan": "y", "rows": [{}]}', "an object gives 'plan' twice"),
        (b'{"plan": "x", "rows": [{"text": "a", "text": "b"}]}', "an object gives 'text' twice"),
        (b'{"plan": {"x": NaN}, "rows": [{}]}', "NaN is not a number"),
        (b"[" * 2000, "it has too many levels"),
    ):
        assert says in problem(api("admin", "POST", MEASURE, content=broken), 422, "invalid-request")["detail"]
    problem(measure(other=1), 422, "invalid-request")
    problem(measure(plan="x"), 422, "invalid-plan")
    assert "person" in problem(measure(unit_id="person"), 422, "bad-row")["detail"]
    few = measure(rows=LABELLED[:4]).json()["measured"]
    assert "fewer than 20 units" in few[0]["not_measured"]
    assert "accuracy" not in few[0]
    toy_engine.down = True
    problem(measure(), 503, "engine-unavailable")
