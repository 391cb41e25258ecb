"""A service that is about to stop finishes what it was asked, and takes nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import httpx
import numpy as np

from exemplar_store import Slot
from service.api.app import create_app
from service.api.doors import Doors
from service.engines import TaskSpec, ZeroShot
from service.services import Records, open_services
from tests.service.conftest import MajorityEngine, embed


class HeldEngine(MajorityEngine):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | None]:
        self.asked.set()
        await self.let.wait()
        return await super().contributions(task, query, slots, zero_shot)


def test_what_is_inside_is_answered_and_nothing_more_comes_in(records: Records) -> None:
    asyncio.run(_stop_while_answering(records))
    assert records.ledger.budgets()[0].tasks[0].charged == 1


async def _stop_while_answering(records: Records) -> None:
    engine, doors = HeldEngine(), Doors()
    app = create_app(open_services(records, engine, embed), doors=doors)
    _, token = records.keys.create("ana", "analyst")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        client.headers["Authorization"] = f"Bearer {token}"

        async def ask(query: str) -> httpx.Response:
            return await client.post("/v1/tasks/toys.colour/answers", json={"query": query})

        under_way = asyncio.create_task(ask("toy"))
        await engine.asked.wait()
        closing = asyncio.create_task(doors.close())
        await asyncio.sleep(0)

        refused = await ask("another")
        assert (refused.status_code, refused.json()["title"]) == (503, "Stopping")
        assert refused.headers["Retry-After"] == "5"
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        assert not closing.done()

        engine.let.set()
        assert (await under_way).status_code == 200
        await asyncio.wait_for(closing, 10)
