"""Keys on the dashboard: made and shown once, limited, and stopped without locking oneself out unawares."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from service.records.api_keys import ApiKey
from service.records.tables import api_keys
from service.services import Services
from tests.service.dashboard.dashboard_browser import Browser


def text(page: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page).split())


def key(browser: Browser, name: str) -> ApiKey:
    (found,) = (key for key in browser.services.records.keys.list() if key.name == name)
    return found


def ask(browser: Browser, token: str, query: str = "a toy"):
    return browser.client.post(
        "/v1/tasks/toys.colour/answers", json={"query": query}, headers={"Authorization": f"Bearer {token}"}
    )


def test_strangers_see_no_key_and_change_none(services: Services) -> None:
    stranger = Browser(services)
    for path in ("/keys", f"/keys/{stranger.key.id}"):
        assert stranger.get(path).headers["location"].startswith("/admin/sign-in")
    for path in ("/keys", f"/keys/{stranger.key.id}/limits", f"/keys/{stranger.key.id}/revoke"):
        assert stranger.post(path, {"name": "x", "sure": "yes"}).headers["location"].startswith("/admin/sign-in")
    assert stranger.sign_in().status_code == 303
    for path in ("/keys", f"/keys/{stranger.key.id}/limits", f"/keys/{stranger.key.id}/revoke"):
        forged = stranger.post(path, {"csrf": "guessed", "name": "chief", "sure": "yes"})
        elsewhere = stranger.post(path, {"name": "chief", "sure": "yes"}, headers={"Origin": "http://evil.example"})
        assert (forged.status_code, elsewhere.status_code) == (403, 403)
    assert [one.name for one in services.records.keys.list()] == ["chief"]
    assert services.records.keys.get(stranger.key.id).revoked_at is None


def test_a_token_is_shown_once_and_works(browser: Browser) -> None:
    made = browser.post("/keys", {"name": "ana", "role": "analyst", "quota": "1,000", "rate_per_minute": "60"})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    token = re.search(r'<code id="token">(dpicl_[\w-]+)</code>', made.text)[1]
    assert 'data-copy="token"' in made.text
    assert "/v1/tasks/toys.colour/answers" in made.text
    assert ask(browser, token).status_code == 200
    ana = key(browser, "ana")
    assert (ana.role, ana.quota, ana.rate_per_minute, ana.charged) == ("analyst", 1000, 60, 1)
    assert browser.services.records.audit.events(kinds=["key.created"])[-1].particulars.by == browser.key.id
    for path in ("/keys", f"/keys/{ana.id}", "/", "/audit", "/keys"):
        assert token not in browser.get(path).text
    page = text(browser.get("/keys").text)
    assert "999 of 1,000 left" in page
    assert "chief you" in page


def test_the_example_has_the_address_that_the_browser_has(browser: Browser) -> None:
    form = {"name": "ana", "role": "analyst"}
    assert "curl http://testserver/v1/tasks/" in browser.post("/keys", form).text
    made = browser.post("/keys", form, headers={"X-Forwarded-Proto": "https"})  # from a proxy that ends TLS
    assert "curl https://testserver/v1/tasks/" in made.text


def test_an_admin_key_shows_no_way_to_ask(browser: Browser) -> None:
    made = browser.post("/keys", {"name": "deputy", "role": "admin"})
    assert made.status_code == 201
    assert "/answers" not in made.text
    assert "cannot ask" in browser.get("/keys").text


@pytest.mark.parametrize(
    ("form", "field", "says"),
    [
        ({"role": "analyst"}, "name", "Fill this in."),
        ({"name": "ana", "role": "analyst", "quota": "many"}, "quota", "Enter a whole number, such as 500."),
        ({"name": "ana", "role": "analyst", "rate_per_minute": "0"}, "rate_per_minute", "This must be at least 1."),
        ({"name": "deputy", "role": "admin", "quota": "5"}, "quota", "An admin cannot ask questions"),
        ({"name": "ana", "role": "analyst", "expires_in_days": "9" * 5000}, "expires_in_days", "Enter a whole number"),
    ],
)
def test_what_cannot_be_made_is_said_beside_its_field(
    browser: Browser, form: dict[str, str], field: str, says: str
) -> None:
    refused = browser.post("/keys", form)
    assert refused.status_code == 422
    assert says in text(re.search(rf'id="{field}-problem">(.*?)</p>', refused.text)[1])
    assert "No key was created" in refused.text
    assert len(browser.services.records.keys.list()) == 1
    assert form.get("name", "") in refused.text  # nothing has to be typed again


def test_names_are_shown_as_text(browser: Browser) -> None:
    name = "<script>alert(1)</script>"
    made = browser.post("/keys", {"name": name, "role": "analyst"})
    pages = [made.text, browser.get("/keys").text, browser.get(f"/keys/{key(browser, name).id}").text]
    assert all(name not in page and "&lt;script&gt;alert" in page for page in pages)


def test_limits_change_from_the_next_request_on(browser: Browser) -> None:
    _, token = browser.services.records.keys.create("ana", "analyst", quota=5)
    ana = key(browser, "ana")
    assert ask(browser, token).status_code == 200
    page = browser.get(f"/keys/{ana.id}").text
    assert 'value="5"' in page
    changed = browser.post(f"/keys/{ana.id}/limits", {"quota": "1", "rate_per_minute": ""})
    assert changed.headers["location"] == "/admin/keys"
    page = text(browser.get("/keys").text)
    assert "The new limits of “ana” apply from now on" in page
    assert "0 of 1 left used up" in page
    assert ask(browser, token, "another").status_code == 402
    refused = browser.post(f"/keys/{ana.id}/limits", {"quota": "x", "rate_per_minute": "7"})
    assert refused.status_code == 422
    assert 'value="x"' in refused.text
    assert 'value="7"' in refused.text
    assert key(browser, "ana").rate_per_minute is None
    browser.post(f"/keys/{ana.id}/limits", {"quota": "", "rate_per_minute": "2000000"})
    assert key(browser, "ana").quota == 1
    assert browser.post("/keys/nobody/limits", {"quota": ""}).status_code == 404


def test_a_key_may_be_for_some_tasks_and_some_days(browser: Browser) -> None:
    form = {"name": "ana", "role": "analyst", "scope": "toys.shade, other", "expires_in_days": "30"}
    made = browser.post("/keys", form)
    ana = key(browser, "ana")
    assert ana.scope == ("toys.shade", "other")
    assert timedelta(days=29) < ana.expires_at - datetime.now(UTC) <= timedelta(days=30)
    assert "/v1/tasks/toys.colour/answers" not in made.text  # nothing to try that it is not for
    token = re.search(r'<code id="token">(dpicl_[\w-]+)</code>', made.text)[1]
    assert ask(browser, token).status_code == 403
    for page in ("/keys", f"/keys/{ana.id}"):
        assert "ask toys.shade, other" in text(browser.get(page).text)
    with browser.services.records.database.begin() as connection:
        connection.execute(sa.update(api_keys).values(expires_at=datetime.now(UTC)).where(api_keys.c.id == ana.id))
    listed = text(browser.get("/keys").text)
    assert "1 revoked or expired key" in listed
    assert "expired" in text(browser.get(f"/keys/{ana.id}").text)


def test_a_key_is_revoked_by_who_means_it(browser: Browser) -> None:
    _, token = browser.services.records.keys.create("ana", "analyst")
    ana = key(browser, "ana")
    unsure = browser.post(f"/keys/{ana.id}/revoke")
    assert unsure.status_code == 422
    assert "Tick the box to confirm" in unsure.text
    assert ask(browser, token).status_code == 200
    done = browser.post(f"/keys/{ana.id}/revoke", {"sure": "yes"})
    assert done.headers["location"] == "/admin/keys"
    assert ask(browser, token).status_code == 401
    page = text(browser.get("/keys").text)
    assert "“ana” is revoked" in page
    assert "1 revoked or expired key" in page
    again = browser.post(f"/keys/{ana.id}/revoke", {"sure": "yes"})
    assert again.status_code == 303
    assert len(browser.services.records.audit.events(kinds=["key.revoked"])) == 1
    assert "revoke" not in browser.get(f"/keys/{ana.id}").text.partition("<h1>")[2].replace("revoked", "")
    assert browser.post(f"/keys/{ana.id}/limits", {"quota": "3"}).status_code == 404
    assert browser.get("/keys/nobody").status_code == 404


def test_a_token_is_replaced_once_however_often_its_form_is_sent(browser: Browser) -> None:
    keys = browser.services.records.keys
    made, first = keys.create("bo", "analyst", quota=3)
    form = {"rotated_at": re.search(r'name="rotated_at" value="([^"]*)"', browser.get(f"/keys/{made.id}").text)[1]}
    for wrong in ("-1", "x", "8761", "9" * 5000):
        refused = browser.post(f"/keys/{made.id}/rotate", form | {"overlap_hours": wrong})
        assert refused.status_code == 422
        assert 'id="overlap_hours-problem"' in refused.text
    page = browser.post(f"/keys/{made.id}/rotate", form | {"overlap_hours": "1"})
    assert page.status_code == 200
    second = re.search(r'<code id="token">(dpicl_[\w-]{43})<', page.text)[1]
    assert keys.authenticate(first).id == keys.authenticate(second).id == made.id
    again = browser.post(f"/keys/{made.id}/rotate", form)
    assert again.status_code == 409
    assert "got another token after this page was shown" in again.text
    assert keys.authenticate(second) is not None
    shown = text(browser.get("/audit", params={"kind": "key.rotated"}).text)
    assert re.search(rf"chief.? \({browser.key.id}\) replaced the token of the key .?bo", shown)


def test_ones_own_token_is_replaced_and_one_signs_in_again(browser: Browser) -> None:
    page = browser.post(f"/keys/{browser.key.id}/rotate", {"rotated_at": "None"})
    assert browser.get("/").status_code == 303
    assert browser.sign_in().status_code == 401
    assert browser.sign_in(re.search(r'<code id="token">(dpicl_[\w-]{43})<', page.text)[1]).status_code == 303


def test_the_last_admin_key_is_not_revoked_unawares(browser: Browser) -> None:
    mine = browser.key.id
    assert "This is the only admin key" in browser.get(f"/keys/{mine}").text
    refused = browser.post(f"/keys/{mine}/revoke", {"sure": "yes"})
    assert refused.status_code == 422
    assert "Enter the key’s name, chief, exactly" in refused.text
    assert browser.get("/keys").status_code == 200
    done = browser.post(f"/keys/{mine}/revoke", {"sure": "yes", "name": "chief"})
    assert done.headers["location"] == "/admin/sign-in"
    assert "“chief” is revoked, and you are signed out" in browser.get("/sign-in").text
    assert browser.get("/keys").status_code == 303


def test_ones_own_key_is_not_revoked_unawares(browser: Browser) -> None:
    browser.services.records.keys.create("deputy", "admin")
    page = browser.get(f"/keys/{browser.key.id}").text
    assert "You are signed in with this key" in page
    assert browser.post(f"/keys/{browser.key.id}/revoke", {"sure": "yes"}).status_code == 422
    deputy = key(browser, "deputy")
    assert "You are signed in with this key" not in browser.get(f"/keys/{deputy.id}").text
    assert browser.post(f"/keys/{deputy.id}/revoke", {"sure": "yes"}).status_code == 303
    assert "This is the only admin key" in browser.get(f"/keys/{browser.key.id}").text
