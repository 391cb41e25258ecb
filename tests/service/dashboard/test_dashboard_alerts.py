"""The page of alerts: thresholds, webhooks whose addresses nobody sees again, and what was raised."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from html import unescape

import pytest
import standardwebhooks

from service.plans.alerts import Thresholds, thresholds
from service.records.records import Records
from service.services import Services
from tests.service.dashboard.dashboard_browser import Browser
from tests.service.telemetry.webhook_receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def admin(services: Services) -> Browser:
    browser = Browser(services)
    assert browser.sign_in().status_code == 303
    return browser


def shown(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def add(browser: Browser, address: str, name: str = "on call") -> str:
    """Its id."""
    page = browser.post("/alerts/webhooks", {"name": name, "address": address})
    assert page.status_code == 201
    return browser.services.alerts.webhooks.all()[0].id


def test_thresholds_are_set(admin: Browser, records: Records) -> None:
    page = admin.get("/alerts").text
    assert 'value="75, 90, 100"' in page
    assert 'value="14"' in page
    sent = admin.post("/alerts", {"percents": "95,  50 %", "days": "30"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/admin/alerts")
    assert thresholds(records.database) == Thresholds((50, 95), 30)
    assert 'value="50, 95"' in admin.get("/alerts").text
    admin.post("/alerts", {"percents": "", "days": ""})
    assert thresholds(records.database) == Thresholds((), None)
    assert "set alerts at no percentage, without a forecast" in shown(admin.get("/audit").text)


@pytest.mark.parametrize(
    ("percents", "days", "says"),
    [
        ("many", "14", "Enter whole numbers from 1 to 100"),
        ("0", "14", "At most 10 whole numbers from 1 to 100"),
        ("75, 101", "14", "At most 10 whole numbers from 1 to 100"),
        ("75", "soon", "Enter a whole number, such as 14"),
        ("75", "0", "A whole number from 1 to 365"),
        ("75", "-3", "Enter a whole number, such as 14"),
    ],
)
def test_thresholds_that_cannot_be_change_nothing(
    admin: Browser, records: Records, percents: str, days: str, says: str
) -> None:
    page = admin.post("/alerts", {"percents": percents, "days": days})
    assert page.status_code == 422
    assert says in shown(page.text)
    assert f'value="{percents}"' in page.text
    assert thresholds(records.database) == Thresholds()


def test_a_webhook_is_added_tested_and_removed(admin: Browser, receiver: Receiver) -> None:
    page = admin.post("/alerts/webhooks", {"name": "on call", "address": receiver.address})
    assert page.status_code == 201
    secret = re.search(r"whsec_[^<]+", page.text)[0]
    assert "others can read alerts, and the address, on the way" in shown(page.text)
    (one,) = admin.services.alerts.webhooks.all()

    admin.post(f"/alerts/webhooks/{one.id}/test")
    assert "The test arrived at “on call”" in shown(admin.get("/alerts").text)
    ((headers, body),) = receiver.received
    assert standardwebhooks.Webhook(secret).verify(body, headers)["event"] == "test"

    receiver.statuses = [410]
    admin.post(f"/alerts/webhooks/{one.id}/test")
    page = admin.get("/alerts").text
    assert "The test did not arrive at “on call” (status 410). It is tried again for a day." in shown(page)
    assert "being retried" in shown(page)
    assert "127.0.0.1 not encrypted" in shown(page)
    assert "hidden-part" not in page
    assert secret not in page

    admin.post(f"/alerts/webhooks/{one.id}/remove")
    page = shown(admin.get("/alerts").text)
    assert "“on call” is removed" in page
    assert admin.services.alerts.webhooks.all() == []
    assert admin.post(f"/alerts/webhooks/{one.id}/test").status_code == 404
    trail = admin.get("/audit").text
    assert "added the webhook “on call”" in shown(trail)
    assert "127.0.0.1" not in trail


def test_an_address_that_cannot_be_used_is_told_where_it_was_entered(admin: Browser) -> None:
    page = admin.post("/alerts/webhooks", {"name": "on call", "address": "https://me:pw@example.org/"})
    assert page.status_code == 422
    assert "Leave out user name and password; messages are signed instead." in shown(page.text)
    assert 'value="on call"' in page.text
    page = admin.post("/alerts/webhooks", {"name": "", "address": "https://example.org/"})
    assert "Give it one of at most 100 printable characters" in shown(page.text)
    assert admin.services.alerts.webhooks.all() == []


def test_https_needs_no_warning(admin: Browser) -> None:
    page = admin.post("/alerts/webhooks", {"name": "on call", "address": "https://example.org/hidden-part"})
    assert "on the way" not in shown(page.text)
    assert "not encrypted" not in admin.get("/alerts").text


def test_what_was_raised_is_shown(admin: Browser, records: Records) -> None:
    assert "None yet" in shown(admin.get("/alerts").text)
    task = records.ledger.budgets.task("toys.colour")
    for number in range(18):
        records.ledger.charge(task, b"%d" % number, key_id="ana")
    asyncio.run(admin.services.alerts.raise_due())
    assert "toys.colour@1 has given 90 % of its answers: 2 of 20 are left" in shown(admin.get("/alerts").text)


def test_a_viewer_sees_no_host_and_changes_nothing(admin: Browser, services: Services) -> None:
    add(admin, "https://example.org/hidden-part")
    _, token = services.records.keys.create("vera", "viewer")
    viewer = Browser(services)
    assert viewer.sign_in(token).status_code == 303
    page = viewer.get("/alerts").text
    assert "on call" in shown(page)
    assert "75, 90, 100" in shown(page)
    assert "example.org" not in page
    assert 'action="/admin/alerts' not in page
