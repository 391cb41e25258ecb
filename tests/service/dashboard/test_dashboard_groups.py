"""Groups in the dashboard: made, joined and seen, by the rules of the ledger."""

import re

from service.services import Services
from tests.service.dashboard.dashboard_browser import Browser, words

CARE = {"name": "care", "epsilon": "5", "delta": "1.5e-4"}


def made(browser: Browser) -> dict[str, tuple[str, ...]]:
    return {one.name: one.knowledge_bases for one in browser.services.records.ledger.groups.statuses()}


def test_a_group_is_made_joined_and_seen(browser: Browser) -> None:
    assert browser.post("/groups", CARE).headers["location"] == "/admin/groups"
    page = browser.get("/groups").text
    assert "Free for further plans ε 5 , δ 1.5e-4 Promised to plans ε 0 , δ 0 Lifetime" in words(page)
    assert re.search(r'<form[^>]*/groups/care/join"[^>]*data-confirm="[^"]*cannot be taken back', page)
    assert browser.post("/groups/care/join", {"knowledge_base": "toys"}).headers["location"] == "/admin/groups"
    page = browser.get("/groups").text
    assert "Free for further plans ε 1 , δ 5e-5 Promised to plans ε 4 , δ 1e-4" in words(page)
    assert "/groups/care/join" not in page  # there is none left to join
    home = words(browser.get("/knowledge-bases/toys").text)
    assert "It shares the budget of the group care , which has ε 1 , δ 5e-5 left: a plan must fit both." in home
    opened, joined = browser.services.records.audit.events(newest_first=True, limit=2)[::-1]
    assert [one.kind for one in (opened, joined)] == ["group.opened", "group.joined"]
    assert {opened.particulars.by, joined.particulars.by} == {browser.key.id}


def test_what_cannot_be_says_why(browser: Browser) -> None:
    wrong = browser.post("/groups", CARE | {"epsilon": "0"})
    assert wrong.status_code == 422
    assert 'id="epsilon-problem">This must be more than 0.<' in wrong.text
    assert 'value="care"' in wrong.text  # what was written stays
    assert browser.post("/groups", CARE | {"epsilon": "1"}).status_code == 303
    again = browser.post("/groups", CARE)
    assert again.status_code == 409
    assert 'id="name-problem">There is a group' in again.text
    refused = browser.post("/groups/care/join", {"knowledge_base": "toys"})
    assert refused.status_code == 409
    assert "Nothing was done:" in words(refused.text)
    assert browser.post("/groups/car/join", {"knowledge_base": "toys"}).status_code == 404
    assert made(browser) == {"care": ()}


def test_a_viewer_is_shown_no_form(services: Services) -> None:
    browser = Browser(services)
    services.records.ledger.groups.open("care", 9, 1e-3, by="test")
    browser.sign_in(services.records.keys.create("vera", "viewer")[1])
    page = browser.get("/groups").text
    assert "care" in page
    assert 'action="/admin/groups' not in page
