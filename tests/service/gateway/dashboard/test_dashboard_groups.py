"""Groups in the dashboard: creating, joining and viewing them, by the rules of the ledger."""

import pytest

from tests.service.gateway.dashboard.dashboard_browser import Browser, words

CARE = {"name": "care", "epsilon": "5", "delta": "1.5e-4"}


def test_a_group_is_made_joined_and_seen(browser: Browser) -> None:
    assert browser.done("/groups", CARE) == "/groups"
    asked = words(browser.post("/groups/care/join", {"knowledge_base": "toys"}).text)
    assert "Nothing is done yet. toys joins group care, permanently" in asked
    assert "(ε = 5, δ = 0.00015) left of (ε = 5, δ = 0.00015)" in asked
    assert browser.done("/groups/care/join", {"knowledge_base": "toys"}) == "/groups"
    page = browser.get("/groups").text
    assert "Promised to plans ε 4 , δ 1e-4 Free for further plans ε 1 , δ 5e-5" in words(page)
    assert "/groups/care/join" not in page  # no knowledge base is left to join it
    assert "the group care , which has ε 1 , δ 5e-5 left" in browser.read("/knowledge-bases/toys")
    opened, joined = browser.services.records.audit.events(newest_first=True, limit=2)[::-1]
    assert {opened.particulars.by, joined.particulars.by} == {browser.key.id}


@pytest.mark.parametrize(("epsilon", "free"), [("5", "1 of 8 is free, limited by"), ("8", "4 of 8 is free, in")])
def test_the_overview_names_the_group_and_whether_it_limits(browser: Browser, epsilon: str, free: str) -> None:
    browser.done("/groups", CARE | {"epsilon": epsilon})
    assert "4 of 8 is free No questions" in browser.read("/")
    browser.done("/groups/care/join", {"knowledge_base": "toys"})
    assert f"4 promised; {free} group care" in browser.read("/").replace("  ", " ")


def test_a_refused_form_explains_why(browser: Browser) -> None:
    assert 'value="care"' in browser.refused("/groups", CARE | {"epsilon": "0"}, "epsilon")  # the entries are kept
    browser.done("/groups", CARE | {"epsilon": "1"})
    browser.refused("/groups", CARE, "name", 409)
    refused = browser.confirm(browser.post("/groups/care/join", {"knowledge_base": "toys"}))
    assert (refused.status_code, "Nothing was done:" in words(refused.text)) == (409, True)
    assert browser.post("/groups/car/join", {"knowledge_base": "toys"}).status_code == 404
    (care,) = browser.services.records.ledger.groups.statuses()
    assert care.knowledge_bases == ()
