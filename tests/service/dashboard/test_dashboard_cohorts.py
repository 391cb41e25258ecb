"""Cohorts in the dashboard: what is left of each, and opened and closed for good."""

import re

from tests.service.dashboard.dashboard_browser import Browser, words

HOME = "/knowledge-bases/toys/cohorts"
NEW = {"epsilon": "5", "delta": "1e-5", "public_size": "1,000"}


def cohorts(browser: Browser) -> list[tuple[float, bool]]:
    found = browser.services.records.ledger.budgets.status("toys").cohorts
    return [(float(one.epsilon), one.closed_at is not None) for one in found]


def test_cohorts_are_opened_listed_and_closed(browser: Browser) -> None:
    page = browser.get(HOME).text
    assert "Close cohort" not in page  # the newest stays open
    assert re.search(r'<form[^>]*/cohorts"[^>]*data-confirm="[^"]*cannot be taken back', page)
    assert browser.post(HOME, NEW).headers["location"] == f"/admin{HOME}"
    page = browser.get(HOME).text
    assert "Cohort 2 people arrive here Free for further plans ε 5 , δ 1e-5" in words(page)
    assert re.search(r'<form[^>]*/cohorts/1/close"[^>]*data-confirm="[^"]*cannot be taken back', page)
    assert browser.post(f"{HOME}/1/close").headers["location"] == f"/admin{HOME}"
    assert cohorts(browser) == [(8, True), (5, False)]
    opened, closed = browser.services.records.audit.events(newest_first=True, limit=2)[::-1]
    assert [one.kind for one in (opened, closed)] == ["cohort.opened", "cohort.closed"]
    assert {opened.particulars.by, closed.particulars.by} == {browser.key.id}


def test_what_cannot_be_says_why(browser: Browser) -> None:
    page = browser.post(HOME, NEW | {"public_size": "0"})
    assert page.status_code == 422
    assert re.search(r'id="public_size-problem">This must be at least 1.<', page.text)
    assert 'value="1e-5"' in page.text  # what was written stays
    page = browser.post(f"{HOME}/1/close")
    assert page.status_code == 409
    assert "is the newest" in words(page.text)
    assert cohorts(browser) == [(8, False)]


def test_a_weak_promise_is_asked_about(browser: Browser) -> None:
    weak = NEW | {"epsilon": "30"}
    asked = browser.post(HOME, weak)
    assert asked.status_code == 422
    assert "ε = 30 is weak" in asked.text
    assert cohorts(browser) == [(8, False)]
    assert browser.post(HOME, weak | {"confirm": "weak_promise"}).status_code == 303
    assert cohorts(browser) == [(8, False), (30, False)]
