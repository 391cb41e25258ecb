from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from structlog.testing import capture_logs

from accounting.ledger.budgets import SignedPlan, SignedTask
from service.services import Services
from service.telemetry.alerts import Alerts, mark_reached


def task(answers: int) -> SignedTask:
    granted = (("topic", answers),)
    plan = SignedPlan(1, "kb", 1, Decimal(1), Decimal(0), "pld", "{}", "", "", datetime.now(UTC), (1,), granted)
    return SignedTask(1, "topic", answers, plan)


@pytest.mark.parametrize(
    ("answers", "marks"),
    [
        (100, {75: 75, 90: 90, 100: 100}),
        (1000, {750: 75, 900: 90, 1000: 100}),
        (7, {6: 75, 7: 100}),  # 90 % of 7 is more than 6 answers
        (4, {3: 75, 4: 100}),
        (1, {1: 100}),
    ],
)
def test_each_mark_is_reached_by_one_charge(answers: int, marks: dict[int, int]):
    reached = {spent: mark_reached(answers, answers - spent) for spent in range(1, answers + 1)}
    assert {spent: mark for spent, mark in reached.items() if mark is not None} == marks


class Receiver(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.received: list[dict] = []


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        if status < 300:
            self.server.received.append(body)
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def charged(webhook: str | None, answers: int, *left: int) -> list[dict]:
    async def run() -> None:
        alerts = Alerts(webhook, pause_s=0.01)
        for one in left:
            alerts.charged(task(answers), one)
        await alerts.drain()

    with capture_logs() as logs:
        asyncio.run(run())
    return logs


def test_an_alert_is_logged_and_posted(receiver: Receiver):
    receiver.statuses = [503, 500]  # and then it is there again
    logs = charged(f"http://127.0.0.1:{receiver.server_port}/hook", 10, 3, 2, 1, 0)
    assert [(log["event"], log["percent"]) for log in logs] == [
        ("answers_nearly_spent", 75),
        ("answers_nearly_spent", 90),
        ("answers_spent", 100),
    ]
    assert sorted(alert["percent"] for alert in receiver.received) == [75, 90, 100]
    last = next(alert for alert in receiver.received if alert["percent"] == 100)
    assert (last["event"], last["task"], last["left"], last["answers"]) == ("budget.alert", "kb.topic@1", 0, 10)
    assert "0 of 10 are left" in last["text"]


def test_a_webhook_that_is_down_is_logged_without_its_address():
    logs = charged("http://127.0.0.1:9/secret-token", 1, 0)
    assert logs[-1]["event"] == "alert_not_posted"
    assert "secret-token" not in json.dumps(logs)


def test_without_a_webhook_it_is_logged():
    assert [log["event"] for log in charged(None, 1, 0)] == ["answers_spent"]


def test_the_pipeline_tells_of_the_answers_it_spends(services: Services):
    async def ask() -> None:
        for number in range(20):
            await services.answering.answer("toys.colour", f"toy {number}", key_id="ana")

    with capture_logs() as logs:
        asyncio.run(ask())
    told = [(log["percent"], log["left"]) for log in logs if log["event"].startswith("answers")]
    assert told == [(75, 5), (90, 2), (100, 0)]
