"""A service takes no more requests than it has places, none when it stops, and answers those that are inside."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from exemplar_store import Slot
from service.gateway.api.gate import Doors
from service.operations.services import open_services
from service.records.records import Records
from service.serving.web import create_app
from tests.service.conftest import EMBEDDER, MajorityEngine


class HeldEngine(MajorityEngine):
    """An engine that answers once a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.let = asyncio.Event()

    async def work(self, slots: Sequence[Slot]) -> None:
        self.begun.set()
        await self.let.wait()


@asynccontextmanager
async def opened(records: Records, engine: MajorityEngine, doors: Doors) -> AsyncIterator[httpx.AsyncClient]:
    """An analyst's client of a service behind these doors."""
    app = create_app(open_services(records, engine, EMBEDDER), doors=doors)
    headers = {"Authorization": f"Bearer {records.keys.create('ana', 'analyst')[1]}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers) as client:
        client.services = app.state.services
        yield client


def ask(client: httpx.AsyncClient, query: str, **options: Any) -> Coroutine[Any, Any, httpx.Response]:
    return client.post("/v1/tasks/toys.colour/answers", **{"json": {"query": query}} | options)


async def test_requests_inside_are_answered_and_no_more_come_in(records: Records) -> None:
    engine, doors = HeldEngine(), Doors()
    async with opened(records, engine, doors) as client:
        under_way = asyncio.create_task(ask(client, "toy"))
        await engine.begun.wait()
        closing = asyncio.create_task(doors.close())
        await asyncio.sleep(0)

        refused = await ask(client, "another")
        assert (refused.status_code, refused.json()["title"]) == (503, "Stopping")
        assert refused.headers["Retry-After"] == "5"
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        assert not closing.done()

        engine.let.set()
        assert (await under_way).status_code == 200
        await asyncio.wait_for(closing, 10)
    assert records.ledger.budgets.statuses()[0].tasks[0].charged == 1


async def test_a_request_without_a_place_is_refused_at_once_and_charged_nothing(records: Records) -> None:
    engine, doors = HeldEngine(), Doors(places=1)
    async with opened(records, engine, doors) as client:
        under_way = asyncio.create_task(ask(client, "toy"))
        await engine.begun.wait()

        # The service looks nothing up first: without a key, the answer is the same.
        busy = await ask(client, "?", headers={"Authorization": ""})
        assert (busy.status_code, busy.json()["title"]) == (429, "Busy")
        assert busy.headers["Retry-After"] in {"1", "2", "3", "4"}
        assert busy.json()["error"]["type"] == "rate_limit_error"
        assert (await client.get("/admin/")).status_code == 429
        await client.services.heartbeat.beat()
        for told in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(told)).status_code == 200

        engine.let.set()
        assert (await under_way).status_code == 200
        assert (await client.get("/v1/tasks/toys.colour")).status_code == 200
        assert doors.inside == 0
    assert records.ledger.budgets.statuses()[0].tasks[0].charged == 1


async def test_a_body_that_does_not_come_takes_no_place(records: Records) -> None:
    waited = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"query":'
        await waited.wait()
        yield b' "toy"}'

    async with opened(records, MajorityEngine(), Doors(places=1)) as client:
        as_json = {"Content-Type": "application/json"}
        slow = asyncio.create_task(ask(client, "", json=None, content=body(), headers=as_json))
        await asyncio.sleep(0.05)
        assert (await ask(client, "another")).status_code == 200
        waited.set()
        assert (await slow).status_code == 200
