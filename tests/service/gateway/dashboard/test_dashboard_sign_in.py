"""Signing in to the dashboard: sessions, forms from elsewhere, and the headers of responses."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from service.gateway.dashboard import sign_in
from service.operations.services import Services
from service.operations.sessions import LASTS, Sessions
from service.serving.web import create_app
from tests.service.conftest import make_records
from tests.service.gateway.dashboard.dashboard_browser import OURS, Browser


@pytest.fixture
def no_time_passes(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the rate limits: if a machine is busy for six seconds, one more attempt is let in."""
    now = time.time()
    monkeypatch.setattr(services.records.rates, "_clock", lambda: now)


def test_an_admin_signs_in_and_out(stranger: Browser) -> None:
    refused = stranger.get("/")
    assert (refused.status_code, refused.headers["location"]) == (303, "/admin/sign-in")
    response = stranger.sign_in()
    assert (response.status_code, response.headers["location"]) == (303, "/admin/")
    cookie = response.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/admin"))
    assert "Secure" not in cookie
    page = stranger.get("/")
    assert (page.status_code, "chief" in page.text, stranger.token in page.text) == (200, True, False)
    held = dict(stranger.client.cookies)
    assert stranger.done("/sign-out") == "/sign-in"
    noted = stranger.services.records.audit.events(by=[stranger.key.id])[1:]
    assert [event.kind for event in noted] == ["key.signed_in", "key.signed_out"]
    assert "signed out" in stranger.get("/sign-in").text
    stranger.client.cookies.update(held)  # the cookie is worthless now
    assert stranger.get("/").status_code == 303


def test_the_cookie_is_for_https_alone_where_https_is_used(stranger: Browser) -> None:
    stranger.client.base_url = "https://testserver"
    response = stranger.client.post("/admin/sign-in", data={"key": stranger.token})
    assert "Secure" in response.headers["set-cookie"]


def test_an_analyst_is_led_to_questions(stranger: Browser) -> None:
    _, token = stranger.services.records.keys.create("ana", "analyst")
    response = stranger.sign_in(token)
    assert (response.status_code, response.headers["location"]) == (303, "/admin/")
    assert stranger.get("/").headers["location"] == "/admin/ask"
    refused = stranger.get("/keys")
    assert (refused.status_code, "An analyst may not" in refused.text) == (403, True)


def test_a_wrong_key_is_refused_with_the_reason(stranger: Browser) -> None:
    response = stranger.sign_in("dpicl_wrong")
    assert response.status_code == 401
    assert "was revoked" in response.text
    assert "dpicl_wrong" not in response.text


def test_a_revoked_key_ends_its_sessions_at_once(browser: Browser) -> None:
    assert browser.get("/").status_code == 200
    browser.services.records.keys.revoke(browser.key.id)
    assert browser.get("/?page=2").headers["location"] == "/admin/sign-in?next=%2F%3Fpage%3D2"
    assert "session has ended" in browser.get("/sign-in").text


def test_a_session_ends_by_itself_and_leaves_nothing_readable(tmp_path: Path, database_url: str) -> None:
    records = make_records(tmp_path, database_url)
    database = records.database
    now = datetime.now(UTC)
    key, _ = records.keys.create("chief", "admin")
    token = Sessions(database, clock=lambda: now).start(key)
    soon, late = (Sessions(database, clock=lambda t=now + LASTS + d: t) for d in (-timedelta(seconds=1), timedelta(0)))
    found = soon.find(token)
    assert found is not None
    assert (found.actor.name, found.expires_at) == ("chief", now + LASTS)
    assert late.find(token) is None
    assert Sessions(database, clock=lambda: now - timedelta(seconds=30)).find(token) is not None
    assert Sessions(database, clock=lambda: now - timedelta(days=900)).find(token) is None  # a clock was far ahead
    assert soon.find(token + "x") is None
    with database.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM admin_sessions").all()
    assert token not in str(rows)
    assert token.encode() not in rows[0].token_sha256
    late.start(key)  # deletes sessions that have ended
    with database.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM admin_sessions").scalar_one() == 1
    database.dispose()


def test_signing_in_leads_back_and_never_elsewhere(stranger: Browser) -> None:
    assert stranger.sign_in(next="/keys?x=1").headers["location"] == "/admin/keys?x=1"
    for elsewhere in ("https://evil.example/", "//evil.example", "\\\\evil.example", "@evil.example", "javascript:x"):
        location = stranger.sign_in(next=elsewhere).headers["location"]
        assert location.startswith("/admin/"), elsewhere


def test_a_form_without_its_token_is_refused(browser: Browser) -> None:
    """For every form, :mod:`tests.service.gateway.api.test_authorisation` shows that nothing is done."""
    assert "open dashboard" in browser.post("/sign-out", {"csrf": ""}).text


def test_a_form_outlives_the_sign_in_of_another_tab(browser: Browser) -> None:
    made = {"csrf": browser.csrf(), "name": "ana", "role": "analyst"}
    assert browser.sign_in().status_code == 303
    assert browser.csrf() != made["csrf"]
    assert browser.post("/keys", made).status_code == 201
    other, token = browser.records.keys.create("other", "admin")
    assert browser.sign_in(token).status_code == 303
    assert browser.post("/keys", made).status_code == 403  # it would be done in the other's name
    assert browser.sign_in().status_code == 303
    assert browser.post("/keys", made).status_code == 201
    made["csrf"] = browser.csrf()
    browser.done("/sign-out")
    assert browser.sign_in().status_code == 303
    assert browser.post("/keys", made).status_code == 403  # its session has ended
    for never in ("", "\0", "x" * 64):
        assert browser.post("/keys", {**made, "csrf": never}).status_code == 403
    assert not browser.records.audit.events(kinds=["key.created"], by=[other.id])[1:]


def test_a_form_sent_too_late_leads_back_to_its_page(browser: Browser) -> None:
    browser.services.records.keys.revoke(browser.key.id)
    response = browser.post("/sign-out", headers={"Referer": "http://testserver/admin/keys"})
    assert response.headers["location"] == "/admin/sign-in?next=%2Fkeys"
    assert "nothing was done" in browser.get("/sign-in").text
    part = browser.get("/", headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/admin/keys"})
    assert (part.status_code, part.headers["HX-Redirect"]) == (204, "/admin/sign-in?next=%2Fkeys")


def test_every_answer_is_guarded_and_never_cached(browser: Browser) -> None:
    pages = [browser.get(path) for path in ("/", "/sign-in", "/nowhere", "/static/x/y")]
    pages.append(browser.post("/sign-out", {"csrf": ""}))
    pages.append(browser.client.put("/admin/sign-in"))
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["cache-control"] == "no-store"


def test_errors_are_pages_for_people(browser: Browser) -> None:
    missing = browser.get("/nowhere")
    assert missing.status_code == 404
    assert "no page at" in missing.text
    assert "To the overview" in missing.text
    assert browser.client.put("/admin/sign-in").status_code == 405
    large = browser.client.post("/admin/sign-in", data={"key": "x" * 5000})
    assert large.status_code == 413
    assert "larger than 4,096 bytes" in large.text
    odd = browser.client.post("/admin/sign-in", content=b"{}", headers={"Content-Type": "application/json"})
    assert odd.status_code == 413
    assert "only takes forms" in odd.text


def test_the_page_of_an_unexpected_error_shows_no_details(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mock(side_effect=RuntimeError("canary-19c0 in an exemplar"))
    monkeypatch.setattr("service.operations.overview.summarise", broken)
    page = browser.get("/")
    assert page.status_code == 500
    assert "log names" in page.text
    assert "canary" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


def test_static_files_are_ours_and_kept_for_long(browser: Browser) -> None:
    page = browser.get("/sign-in").text
    addresses = re.findall(r'(?:href|src)="(/admin/static/[^"]+)"', page)
    assert len(addresses) >= 5
    for address in addresses:
        response = browser.client.get(address)
        assert response.status_code == 200
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert browser.client.get("/admin/static/older/app.css").headers["cache-control"] == "no-store"
    assert browser.client.get("/admin/static/older/README.md").status_code == 404
    assert not re.search(r"(?:href|src|action)=\"(?:https?:)?//", page)


def test_no_page_has_inline_script_or_style(browser: Browser) -> None:
    for path in ("/", "/sign-in", "/nowhere"):
        page = browser.get(path).text
        assert not re.search(r"<style|style=|<script(?! src=)|\son\w+=|javascript:", page), path


def test_the_look_is_chosen_without_script(stranger: Browser) -> None:
    assert 'data-theme="auto"' in stranger.get("/sign-in").text
    response = stranger.post("/theme", {"theme": "dark", "back": "/admin/sign-in?next=%2Fkeys"})
    assert response.headers["location"] == "/admin/sign-in?next=%2Fkeys"
    assert 'data-theme="dark"' in stranger.get("/sign-in").text
    stranger.post("/theme", {"theme": '"><script>', "back": "//evil.example"})
    assert 'data-theme="auto"' in stranger.get("/sign-in").text


@pytest.mark.usefixtures("no_time_passes")
def test_a_network_of_ipv6_counts_as_one_address(services: Services) -> None:
    def attempt(address: str) -> int:
        client = TestClient(create_app(services), headers=OURS, client=(address, 50000))
        return client.post("/admin/sign-in", data={"key": "dpicl_guess"}).status_code

    assert [attempt(f"2001:db8::{last}") for last in range(11)] == [401] * 10 + [429]
    assert [attempt(address) for address in ("2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.2")] == [401] * 3
    rates = services.records.rates
    assert rates.take("sign-in 2001:db8::", 10, 10).wait_s
    # Signing in deletes rates that are full again, which this one is not.
    assert Browser(services).sign_in().status_code == 303
    assert rates.take("sign-in 2001:db8::", 10, 10).wait_s


@pytest.mark.usefixtures("no_time_passes")
def test_attempts_are_throttled_by_address_and_in_all(stranger: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        assert stranger.sign_in("dpicl_guess").status_code == 401
    refused = stranger.sign_in()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "6")
    assert "Too many attempts" in refused.text
    assert stranger.get("/").status_code == 303
    elsewhere = Browser(stranger.services)  # the database keeps count, so another replica refuses too
    assert elsewhere.sign_in().status_code == 429
    rates = stranger.services.records.rates
    while rates.take("sign-in", 120, 60).wait_s is None:
        pass
    monkeypatch.setitem(sign_in._PER_ADDRESS, "burst", 1000)
    assert elsewhere.sign_in().status_code == 429
