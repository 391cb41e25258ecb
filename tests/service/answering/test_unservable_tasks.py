"""A task that the engine cannot answer in time, or not at all: it is refused, free, and the others are answered."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from exemplar_store import Slot
from service.answering.plans.signing import sign
from service.engines.task import TaskSpec, ZeroShot
from service.operations import plans
from service.operations.command import Confirmation
from service.operations.roles import Actor
from service.operations.services import Services, open_services
from tests.service.conftest import (
    EMBEDDER,
    PLAN,
    TEXT_PLAN,
    MajorityEngine,
    client_of,
    development,
    make_records,
    states,
)

ROOT = Actor("root", "root", "account", "admin")
WRITTEN = "type: token_ensemble, tokens: 5"
SLOW = PLAN.replace("colour:", "slow:")


class SlowForOne(MajorityEngine):
    """An engine that takes longer than the grain hides for the task ``slow``."""

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[Any]:
        if ".slow" in task.name:
            await asyncio.sleep(0.5)
        return await super().contributions(task, query, slots, zero_shot)


@pytest.fixture(params=["too slow", "writes nothing together"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Services:
    """Two plans of which the engine can answer one."""
    settings = development(tmp_path, latency_unpadded=False, latency_grain_ms=600)
    records = make_records(tmp_path, epsilon=200, settings=settings)
    other = SLOW if request.param == "too slow" else TEXT_PLAN.format(epsilon=4, answers=5, mechanism=WRITTEN)
    for text in (PLAN, other):
        sign(records, calibrate_plan(load_plan(text), 60), "test")
    return open_services(records, SlowForOne(), EMBEDDER)


def test_one_task_is_refused_with_the_reason_and_the_others_are_answered(services: Services) -> None:
    report = {one.task: one.problem for one in asyncio.run(services.grains.all())}
    refused = next(task for task in report if not task.startswith("toys.colour"))
    assert report["toys.colour@1"] == ""
    assert refused in report[refused]
    asyncio.run(services.heartbeat.beat())
    client = client_of(services)
    assert client.get("/readyz").status_code == 200
    assert client.post("/v1/tasks/toys.colour/answers", json={"query": "a toy"}).status_code == 200
    name = refused.partition("@")[0]
    answer = client.post(f"/v1/tasks/{name}/answers", json={"query": "a toy"})
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] in ("latency_grain_too_small", "engine_unavailable")
    chat = {"model": name, "messages": [{"role": "user", "content": "a toy"}]}
    assert client.post("/v1/chat/completions", json=chat).status_code == 503
    assert client.post("/v1/responses", json={"model": name, "input": "a toy"}).status_code == 503
    assert states(services, name.partition(".")[2]) == {}

    plans.retire(ROOT, services.records, "toys", 2, {Confirmation.PERMANENT})
    assert [one.task for one in asyncio.run(services.grains.all())] == ["toys.colour@1"]
    assert client.post(f"/v1/tasks/{name}/answers", json={"query": "a toy"}).status_code == 410
