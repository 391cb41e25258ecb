"""Groups in the dashboard: made, joined and seen, by the rules of the ledger."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from service.services import Services, open_services
from service.settings import Settings
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records
from tests.service.dashboard.dashboard_browser import Browser, words

CARE = {"name": "care", "epsilon": "5", "delta": "1.5e-4"}


def made(browser: Browser) -> dict[str, tuple[str, ...]]:
    return {one.name: one.knowledge_bases for one in browser.services.records.ledger.groups.statuses()}


def test_a_group_is_made_joined_and_seen(browser: Browser) -> None:
    assert "There is no group yet" in browser.get("/groups").text
    assert "shares the budget" not in browser.get("/knowledge-bases/toys").text
    assert browser.post("/groups", CARE).headers["location"] == "/admin/groups"
    page = browser.get("/groups").text
    assert "Group “care” has its budget." in words(page)
    assert "Free for further plans ε 5 , δ 1.5e-4 Promised to plans ε 0 , δ 0 Lifetime" in words(page)
    assert "Knowledge bases none yet" in words(page)
    assert re.search(r'<form[^>]*/groups/care/join"[^>]*data-confirm="[^"]*cannot be taken back', page)
    assert browser.post("/groups/care/join", {"knowledge_base": "toys"}).headers["location"] == "/admin/groups"
    page = browser.get("/groups").text
    assert "“toys” shares the budget of group “care” from now on." in words(page)
    assert "Free for further plans ε 1 , δ 5e-5 Promised to plans ε 4 , δ 1e-4" in words(page)
    assert "/groups/care/join" not in page  # there is none left to join
    home = words(browser.get("/knowledge-bases/toys").text)
    assert "It shares the budget of the group care , which has ε 1 , δ 5e-5 left: a plan must fit both." in home
    opened, joined = browser.services.records.audit.events(newest_first=True, limit=2)[::-1]
    assert [one.kind for one in (opened, joined)] == ["group.opened", "group.joined"]
    assert {opened.particulars.by, joined.particulars.by} == {browser.key.id}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "No Name"}, "Use small letters, digits, - and _"),
        ({"epsilon": "much"}, "Enter a number, such as 8."),
        ({"epsilon": "nan"}, "This must be"),
        ({"epsilon": "0"}, "This must be more than 0."),
        ({"delta": "0"}, "This must be at least 1e-12."),
        ({"delta": "1"}, "This must be less than 1."),
    ],
)
def test_a_group_that_cannot_be_says_why(browser: Browser, wrong: dict[str, str], says: str) -> None:
    page = browser.post("/groups", CARE | wrong)
    assert page.status_code == 422
    assert says in words(page.text)
    assert all(f'value="{value}"' in page.text for value in (CARE | wrong).values())  # what was written stays
    assert made(browser) == {}


def test_what_the_ledger_refuses_changes_nothing(browser: Browser) -> None:
    assert browser.post("/groups", CARE | {"epsilon": "1"}).status_code == 303
    again = browser.post("/groups", CARE)
    assert again.status_code == 409
    assert "There is a group 'care' already; its budget cannot be changed." in words(again.text)
    for name, says in (
        ("toys", "'care' has only (ε = 1, δ = 0.00015) left"),
        ("nothing", "knowledge base 'nothing'"),
        ("", "Nothing was done:"),
    ):
        refused = browser.post("/groups/care/join", {"knowledge_base": name})
        assert refused.status_code == 409
        assert says in words(refused.text)
    assert browser.post("/groups/car/join", {"knowledge_base": "toys"}).status_code == 404
    assert made(browser) == {"care": ()}
    assert browser.post("/groups", CARE | {"name": "wide"}).status_code == 303
    for status in (303, 409):
        assert browser.post("/groups/wide/join", {"knowledge_base": "toys"}).status_code == status
    refused = browser.post("/groups/care/join", {"knowledge_base": "toys"})
    assert "'toys' is in group 'wide', for ever" in words(refused.text)
    assert made(browser) == {"care": (), "wide": ("toys",)}


def test_postgresql_is_not_asked_for_a_name_that_it_cannot_hold(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    settings = Settings(database_url=new_postgres(), witness_url="none", development=True, latency_unpadded=True)
    records = make_records(tmp_path, settings=settings)
    browser = Browser(open_services(records, MajorityEngine(), EMBEDDER))
    browser.sign_in()
    records.ledger.groups.open("care", 9, 1e-3, by="test")
    refused = browser.post("/groups/care/join", {"knowledge_base": "to\0ys"})
    assert refused.status_code == 409
    assert r"Nothing was done: there is no knowledge base 'to\x00ys'." in words(refused.text)
    records.database.dispose()


def test_names_that_the_command_line_allows_are_shown_and_joined(browser: Browser) -> None:
    browser.services.records.ledger.groups.open("Kids & <Co>", 9, 1e-3, by="test")
    page = browser.get("/groups").text
    address = re.search(r'action="/admin(/groups/[^"]+/join)"', page)[1]
    assert browser.post(html.unescape(address), {"knowledge_base": "toys"}).status_code == 303
    assert made(browser) == {"Kids & <Co>": ("toys",)}
    assert "the group Kids & <Co> , which" in words(browser.get("/knowledge-bases/toys").text)


def test_strangers_and_viewers_make_and_join_nothing(services: Services) -> None:
    browser = Browser(services)
    services.records.ledger.groups.open("care", 9, 1e-3, by="test")
    for path in ("/groups", "/groups/care/join"):
        assert browser.post(path, CARE).headers["location"].startswith("/admin/sign-in")
    browser.sign_in(services.records.keys.create("vera", "viewer")[1])
    page = browser.get("/groups").text
    assert "care" in page
    assert 'action="/admin/groups' not in page
    for path in ("/groups", "/groups/care/join"):
        assert browser.post(path, CARE | {"name": "mine", "knowledge_base": "toys"}).status_code == 403
    assert made(browser) == {"care": ()}
