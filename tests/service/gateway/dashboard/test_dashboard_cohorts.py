"""Cohorts in the dashboard: their remaining budgets, and opening and closing them."""

from tests.service.gateway.dashboard.dashboard_browser import Browser, words

HOME = "/knowledge-bases/toys/cohorts"
NEW = {"epsilon": "5", "delta": "1e-5", "public_size": "1000"}


def cohorts(browser: Browser) -> list[tuple[float, bool]]:
    found = browser.services.records.ledger.budgets.status("toys").cohorts
    return [(float(one.epsilon), one.closed_at is not None) for one in found]


def test_cohorts_are_opened_listed_and_closed(browser: Browser) -> None:
    page = browser.get(HOME).text
    assert "Close cohort" not in page  # the newest stays open
    weak = browser.post(HOME, NEW | {"epsilon": "30"})
    assert (weak.status_code, "ε = 30 is weak" in words(weak.text)) == (422, True)
    asked = browser.post(HOME, NEW)
    assert "Cohort 2 of toys gets the lifetime budget (ε = 5, δ = 0.00001) and the public size 1000." in words(
        asked.text
    )
    assert cohorts(browser) == [(8, False)]
    assert browser.done(HOME, NEW) == HOME
    page = browser.get(HOME).text
    assert "Cohort 2 people arrive here Free for further plans ε 5 , δ 1e-5" in words(page)
    assert "(ε = 4, δ = 0.0001) of its budget stays unused" in words(browser.post(f"{HOME}/1/close").text)
    assert browser.done(f"{HOME}/1/close") == HOME
    assert cohorts(browser) == [(8, True), (5, False)]
    opened, closed = browser.services.records.audit.events(newest_first=True, limit=2)[::-1]
    assert {opened.particulars.by, closed.particulars.by} == {browser.key.id}


def test_a_refused_form_explains_why(browser: Browser) -> None:
    page = browser.refused(HOME, NEW | {"public_size": "0"}, "public_size")
    assert 'value="1e-5"' in page  # the entries are kept
    page = browser.confirm(browser.post(f"{HOME}/1/close"))
    assert (page.status_code, "is the newest" in words(page.text)) == (409, True)
    assert cohorts(browser) == [(8, False)]
