"""Alerts arrive at a real server: signed, again after a failure or a kill, and never on the way of a query."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from standardwebhooks import Webhook
from structlog.testing import capture_logs

from accounting.plan import CalibratedPlan
from service.api.app import create_app
from service.plans.signing import sign
from service.records.records import Records, open_records
from service.records.webhooks import LEASE
from service.services import Services
from service.settings import Settings
from service.telemetry import alerts as telemetry
from service.telemetry.alerts import Alerts
from tests.conftest import Clock
from tests.processes import FRESH
from tests.service.conftest import make_records
from tests.service.telemetry.webhook_receiver import SECRET_PATH, Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def clock() -> Clock:
    """Shows the time of day when it is made, as the library that checks signatures wants it."""
    clock = Clock()
    clock.advance(time.time() - clock.now.timestamp())
    return clock


def spend(records: Records, times: int) -> None:
    task = records.ledger.budgets.task("toys.colour")
    for _ in range(times):
        records.ledger.charge(task, b"%d" % records.ledger.answers_left(task), key_id="ana")


def test_an_alert_arrives_signed(records: Records, receiver: Receiver, clock: Clock):
    alerts = Alerts(records, clock=clock)
    _, secret = alerts.webhooks.add("on call", receiver.address, by="root")
    spend(records, 15)
    with capture_logs() as logs:
        asyncio.run(alerts.raise_due())
        asyncio.run(alerts.deliver())
    assert [log["event"] for log in logs] == ["answers_nearly_spent"]
    assert (logs[0]["task"], logs[0]["percent"], logs[0]["left"]) == ("toys.colour@1", 75, 5)
    ((headers, body),) = receiver.received
    assert Webhook(secret).verify(body, headers)["text"].endswith("5 of 20 are left")
    assert headers["content-type"] == "application/json"
    for changed in ({**headers, "webhook-id": "other"}, {**headers, "webhook-signature": f"v1,{'A' * 43}="}):
        with pytest.raises(Exception, match="No matching signature"):
            Webhook(secret).verify(body, changed)
    asyncio.run(alerts.deliver())
    assert len(receiver.received) == 1


def test_what_fails_is_sent_again_with_the_same_id(records: Records, receiver: Receiver, clock: Clock):
    receiver.statuses = [503, 302, 204]  # and then it is there again; it redirects to nowhere in particular
    alerts = Alerts(records, clock=clock)
    _, secret = alerts.webhooks.add("on call", receiver.address, by="root")
    spend(records, 20)
    with capture_logs() as logs:
        asyncio.run(alerts.raise_due())
        for pause in (10, 40, 160):
            asyncio.run(alerts.deliver())
            clock.advance(pause)
    assert [(log["event"], log.get("attempts"), log.get("error")) for log in logs] == [
        ("answers_spent", None, None),
        ("alert_not_posted", 1, "status 503"),
        ("alert_not_posted", 2, "status 302"),
    ]
    assert len(receiver.received) == 3
    assert len({(headers["webhook-id"], body) for headers, body in receiver.received}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in receiver.received}) == 3
    for headers, body in receiver.received:
        Webhook(secret).verify(body, headers)
    assert alerts.webhooks.all()[0].last.state == "delivered"


def test_the_webhook_of_the_settings_is_one_more(records: Records, receiver: Receiver, clock: Clock):
    alerts = Alerts(records, receiver.address, clock=clock)
    alerts.webhooks.add("on call", receiver.address, by="root")
    spend(records, 20)
    asyncio.run(alerts.raise_due())
    asyncio.run(alerts.deliver())
    assert len(receiver.received) == 2
    assert sorted("webhook-signature" in headers for headers, _ in receiver.received) == [False, True]
    for message in receiver.messages:
        assert (message["event"], message["task"], message["knowledge_base"]) == (
            "budget.alert",
            "toys.colour@1",
            "toys",
        )
        assert (message["percent"], message["answers"], message["left"]) == (100, 20, 0)


def test_one_that_is_down_keeps_nothing_from_the_others_and_is_given_up(
    records: Records, receiver: Receiver, clock: Clock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    alerts = Alerts(records, f"http://127.0.0.1:9{SECRET_PATH}", clock=clock)
    alerts.webhooks.add("on call", receiver.address, by="root")
    spend(records, 20)
    with capture_logs() as logs:
        asyncio.run(alerts.raise_due())
        for _ in range(20):
            asyncio.run(alerts.deliver())
            clock.advance(4 * 3600)
    assert len(receiver.received) == 1
    told = [log for log in logs if "webhook" in log]
    assert {(log["webhook"], log["error"]) for log in told} == {("DPICL_ALERT_WEBHOOK", "ConnectError")}
    assert [log["event"] for log in told] == ["alert_not_posted"] * (len(told) - 1) + ["alert_given_up"]
    assert "hidden-part" not in json.dumps(logs) + caplog.text


def send_and_wait(url: str) -> None:
    settings = Settings(database_url=url, witness_url="none", development=True, latency_unpadded=True)
    asyncio.run(Alerts(open_records(settings)).deliver())


@pytest.mark.slow
def test_a_message_outlives_the_replica_that_was_sending_it(
    tmp_path: Path, database_url: str, receiver: Receiver, clock: Clock, calibrated: CalibratedPlan
):
    settings = Settings(database_url=database_url, witness_url="none", development=True, latency_unpadded=True)
    records = make_records(tmp_path, settings=settings)
    sign(records, calibrated, "test")
    alerts = Alerts(records, clock=clock)
    alerts.webhooks.add("on call", receiver.address, by="root")
    spend(records, 20)
    asyncio.run(alerts.raise_due())
    receiver.held = threading.Event()
    replica = FRESH.Process(target=send_and_wait, args=(database_url,))
    replica.start()
    assert receiver.came.wait(60)
    os.kill(replica.pid, signal.SIGKILL)
    replica.join()
    receiver.held.set()
    receiver.held = None
    asyncio.run(alerts.deliver())
    assert len(receiver.received) == 1  # it may still be the other's
    clock.advance(LEASE.total_seconds() + 60)
    asyncio.run(alerts.deliver())
    assert len(receiver.received) == 2
    assert receiver.received[0][1] == receiver.received[1][1]
    assert alerts.webhooks.all()[0].last.state == "delivered"


def test_the_service_raises_and_delivers_by_itself(
    services: Services, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(telemetry, "_RAISE_EVERY_S", 0.05)
    monkeypatch.setattr(telemetry, "_DELIVER_EVERY_S", 0.05)
    services.alerts.webhooks.add("on call", receiver.address, by="root")
    _, token = services.records.keys.create("ana", "analyst")
    with TestClient(create_app(services), headers={"Authorization": f"Bearer {token}"}) as client:
        for number in range(15):
            body = {"query": f"toy {number}"}
            assert client.post("/v1/tasks/toys.colour/answers", json=body).status_code == 200
        assert receiver.came.wait(60)
    assert receiver.messages[0]["percent"] == 75
