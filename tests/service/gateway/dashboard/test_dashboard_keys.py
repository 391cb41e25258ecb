"""Keys on the dashboard: creating, limiting, replacing and revoking them, without locking out admins by mistake."""

import re
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from accounting.plans.plan import load_plan
from service.answering.plans.signing import prepare, sign
from service.records.api_keys import StoredKey
from service.records.tables import api_keys
from tests.service.conftest import PLAN
from tests.service.gateway.dashboard.dashboard_browser import Browser, token_on, words


def key(browser: Browser, name: str) -> StoredKey:
    (found,) = (key for key in browser.records.keys.list() if key.name == name)
    return found


def test_a_token_is_shown_once_and_works(browser: Browser) -> None:
    made = browser.post("/keys", {"name": "ana", "role": "analyst", "quota": "1000", "rate_per_minute": "60"})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    token, ana = token_on(made.text), key(browser, "ana")
    assert "curl http://testserver/v1/tasks/toys.colour/answers" in made.text
    assert browser.ask(token).status_code == 200
    assert (ana.role, ana.quota, ana.rate_per_minute) == ("analyst", 1000, 60)
    assert browser.records.audit.events(kinds=["key.created"])[-1].particulars.by == browser.key.id
    for path in ("/keys", f"/keys/{ana.id}", "/", "/audit", "/keys"):
        assert token not in browser.get(path).text
    assert re.search("999 of 1,000 left .* chief you", browser.read("/keys"))
    browser.client.base_url = "https://testserver"
    assert "curl https://testserver/v1/tasks/" in browser.post("/keys", {"name": "bo", "role": "analyst"}).text
    assert "/answers" not in browser.post("/keys", {"name": "deputy", "role": "admin"}).text  # an admin cannot ask


def test_a_wrong_entry_is_explained_beside_its_field(browser: Browser) -> None:
    for form, field in (
        ({"name": "deputy", "role": "admin", "quota": "5"}, "quota"),
        ({"name": "ana", "role": "analyst", "expires_in_days": "9" * 5000}, "expires_in_days"),
    ):
        refused = browser.refused("/keys", form, field)
        for name in ("name", "quota", "rate_per_minute", "expires_in_days"):  # the entries are kept
            assert re.search(rf'name="{name}" type="text" value="{form.get(name, "")}"', refused)
    assert [listed.name for listed in browser.records.keys.list()] == ["chief"]


def test_names_are_shown_as_text(browser: Browser) -> None:
    name = "<script>alert(1)</script>"
    made = browser.post("/keys", {"name": name, "role": "analyst"})
    pages = [made.text, browser.get("/keys").text, browser.get(f"/keys/{key(browser, name).id}").text]
    assert all(name not in page and "&lt;script&gt;alert" in page for page in pages)


def test_limits_change_from_the_next_request_on(browser: Browser) -> None:
    ana, token = browser.records.keys.create("ana", "analyst", quota=5)
    limits = f"/keys/{ana.id}/limits"
    assert browser.ask(token).status_code == 200
    assert 'value="5"' in browser.get(f"/keys/{ana.id}").text
    assert browser.done(limits, {"quota": "1", "rate_per_minute": ""}) == "/keys"
    assert "0 of 1 left used up" in browser.read("/keys")
    assert browser.ask(token, "another").status_code == 402
    refused = browser.refused(limits, {"quota": "", "rate_per_minute": "x"}, "rate_per_minute")
    assert re.findall(r'name="(?:quota|rate_per_minute)" type="text" value="(.*?)"', refused) == ["", "x"]
    assert (key(browser, "ana").quota, key(browser, "ana").rate_per_minute) == (1, None)
    assert browser.done(limits, {"rate_per_minute": "7"}) == "/keys"
    assert (key(browser, "ana").quota, key(browser, "ana").rate_per_minute) == (1, 7), "a field that is not sent stays"
    assert browser.done(limits, {"quota": "", "rate_per_minute": "7"}) == "/keys"
    assert (key(browser, "ana").quota, key(browser, "ana").rate_per_minute) == (None, 7)
    assert browser.post("/keys/nobody/limits", {"quota": ""}).status_code == 404


def test_a_key_may_be_for_some_tasks_and_some_days(browser: Browser) -> None:
    form = {"name": "ana", "role": "analyst", "scope": "toys.shade, other", "expires_in_days": "30"}
    assert "toys.shade" in browser.refused("/keys", form, "scope")
    sign(browser.records, prepare(browser.records, load_plan(PLAN.replace("colour:", "shade:"))), "test")
    browser.records.create_knowledge_base(
        "other", epsilon=1, delta=1e-5, public_size=60, fields=["text"], embedded_field="text"
    )
    made, ana = browser.post("/keys", form), key(browser, "ana")
    assert ana.scope == ("toys.shade", "other")
    assert timedelta(days=29) < ana.expires_at - datetime.now(UTC) <= timedelta(days=30)
    assert "/v1/tasks/toys.colour/answers" not in made.text  # the example is not outside its scope
    for page in ("/keys", f"/keys/{ana.id}"):
        assert "ask toys.shade, other" in browser.read(page)
    with browser.records.database.begin() as connection:
        connection.execute(sa.update(api_keys).values(expires_at=datetime.now(UTC)).where(api_keys.c.id == ana.id))
    assert "1 revoked or expired key" in browser.read("/keys")
    assert "expired" in browser.read(f"/keys/{ana.id}")


def test_a_key_is_revoked_only_on_confirmation(browser: Browser) -> None:
    ana, token = browser.records.keys.create("ana", "analyst")
    home = f"/keys/{ana.id}"
    browser.refused(f"{home}/revoke", None, "sure")
    assert browser.ask(token).status_code == 200
    for _ in range(2):
        assert browser.done(f"{home}/revoke", {"sure": "yes"}) == "/keys"
    assert browser.ask(token).status_code == 401
    assert len(browser.records.audit.events(kinds=["key.revoked"])) == 1
    assert '/revoke"' not in browser.get(home).text
    assert browser.post(f"{home}/limits", {"quota": "3"}).status_code == 404


def test_a_token_is_replaced_once_however_often_its_form_is_sent(browser: Browser) -> None:
    keys = browser.records.keys
    made, first = keys.create("bo", "analyst", quota=3)
    form = {"rotated_at": re.search(r'name="rotated_at" value="([^"]*)"', browser.get(f"/keys/{made.id}").text)[1]}
    for wrong in ("-1", "x", "8761", "9" * 5000):
        browser.refused(f"/keys/{made.id}/rotate", form | {"overlap_hours": wrong}, "overlap_hours")
    asked = browser.post(f"/keys/{made.id}/rotate", form | {"overlap_hours": "1"})
    assert f"The present token of bo ({made.id}) will be refused 1 hour from now on" in words(asked.text)
    second = token_on(browser.confirm(asked).text)
    assert keys.authenticate(first).id == keys.authenticate(second).id == made.id
    browser.refused(f"/keys/{made.id}/rotate", form, "overlap_hours", 409)
    assert keys.authenticate(second) is not None


def test_an_admin_who_replaces_their_own_token_signs_in_again(browser: Browser) -> None:
    page = browser.confirm(browser.post(f"/keys/{browser.key.id}/rotate", {"rotated_at": "None"}))
    assert (browser.get("/").status_code, browser.sign_in().status_code) == (303, 401)
    assert browser.sign_in(token_on(page.text)).status_code == 303


@pytest.mark.parametrize("last", [True, False])
def test_a_revocation_that_locks_out_an_admin_must_be_confirmed(browser: Browser, last: bool) -> None:
    """The key is the admin's own; in one case it is also the last admin key."""
    home = f"/keys/{browser.key.id}"
    if not last:
        deputy, _ = browser.records.keys.create("deputy", "admin")
        assert 'id="lock-out"' not in browser.get(f"/keys/{deputy.id}").text
    warning = re.search('id="lock-out">(.*?)</p>', browser.get(home).text)[1]
    assert ("only admin key" in words(warning)) == last
    browser.refused(f"{home}/revoke", {"sure": "yes"}, "revoke_name")
    assert browser.get("/keys").status_code == 200
    assert browser.done(f"{home}/revoke", {"sure": "yes", "name": "chief"}) == "/sign-in"
    assert browser.get("/keys").status_code == 303
