"""Admins see how the engine keeps slots apart where they decide: in plans and budgets."""

import time
from dataclasses import replace

import sqlalchemy as sa
import yaml

from service.answering.latency import UNPADDED
from service.engines.errors import EngineUnavailableError
from service.engines.protocol import EngineInfo
from service.operations.services import Services
from service.records.engine_record import last_engine, note_engine
from service.records.records import Records
from service.records.tables import engines
from tests.service.conftest import PLAN, client_of

STRICT = EngineInfo("vllm", "strict", True, "a model")


def test_a_row_for_each_change(records: Records) -> None:
    assert last_engine(records.database) is None
    loose = replace(STRICT, isolation="best effort")
    for info in (STRICT, STRICT, loose, STRICT):
        note_engine(records.database, info)
    assert last_engine(records.database).isolation == "strict"
    with records.database.connect() as connection:
        seen = connection.execute(sa.select(engines.c.isolation).order_by(engines.c.id)).scalars().all()
    assert seen == ["strict", "best effort", "strict"]


def test_a_started_service_shows_it(services: Services, monkeypatch) -> None:
    describe, late = services.engine.describe, iter([True, False])

    async def still_loading():
        if next(late, False):
            raise EngineUnavailableError("loading")
        return await describe()

    monkeypatch.setattr(services.engine, "describe", still_loading)
    monkeypatch.setattr("service.serving.web._ASK_ENGINE_EVERY_S", 0.01)
    with client_of(services, "admin") as client:
        while last_engine(services.records.database) is None:
            time.sleep(0.01)
        expected = {"name": "majority", "isolation": "each slot by itself", "is_llm": False}
        expected |= {"notice": f"{UNPADDED} for tests", "remote": False, "writes_together": False}
        expected |= {"writing_slots": 0, "cache_tokens": 0, "model_tokens": 0}
        assert client.get("/v1/budgets").json()["engine"] == expected
        plan = client.post("/v1/knowledge-bases/toys/plans?dry_run=true", content=yaml.safe_dump(yaml.safe_load(PLAN)))
        assert plan.json()["engine"] == expected
