"""Plans of every kind in the dashboard: previewed, tried, signed, and shown on every page afterwards."""

import re
from pathlib import Path

import pytest

from tests.service.answering.plans.kinds_of_plan import PLANS, open_shop, serve_shop
from tests.service.gateway.dashboard.dashboard_browser import HTMX, Browser, signed_in, words

STUDIO = "/knowledge-bases/shop/plan"
ROWS = "text,product,label\na kettle,kettle,glad\na lamp,lamp,sad\n"
AFTERWARDS = (
    "/",
    "/plans",
    "/knowledge-bases/shop",
    "/knowledge-bases/shop/plans",
    "/knowledge-bases/shop/usage",
    "/knowledge-bases/shop/cohorts",
    "/knowledge-bases/shop/settings",
    STUDIO,
    STUDIO + "?from=1",
    "/keys",
    "/audit",
)


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return signed_in(serve_shop(open_shop(tmp_path)))


@pytest.mark.parametrize("kind", PLANS)
def test_every_page_shows_every_kind_of_plan(browser: Browser, kind: str) -> None:
    text = PLANS[kind]
    asked = {"text": text, "trial_query": '{"text": "a kettle", "product": "kettle"}', "trial_rows": ROWS}
    if "by field" not in kind:
        asked["trial_query"] = "a kettle"
    for headers in ({}, HTMX):
        page = browser.post(STUDIO, {"text": text}, headers=headers)
        assert (page.status_code, "Needed for 95 % good releases" in words(page.text)) == (200, True)
        tried = browser.post(STUDIO + "/try", asked, headers=headers)
        if kind == "once":
            assert "is released once" in words(tried.text)
        else:
            assert (tried.status_code, "with the plan’s noise" in words(tried.text)) == (200, True)
    page = browser.post(STUDIO + "/confirm", {"text": text})
    assert "What you cannot take back" in words(page.text)
    hidden = dict(re.findall(r'type="hidden" name="(digest|after)" value="([^"]+)"', page.text))
    browser.done(STUDIO + "/sign", {"text": text, "name": "shop", "confirm": "worse_than_free", **hidden})
    for path in AFTERWARDS:
        assert browser.get(path).status_code == 200, path
    # As it was signed, it is a plan to start from, and is recognised.
    begun = browser.get(STUDIO + "?from=1").text
    written = re.search(r'<textarea id="text"[^>]*>\n(.*?)</textarea>', begun, re.DOTALL)
    assert written
    assert "Plan 1" in words(browser.post(STUDIO + "/confirm", {"text": text}).text)


@pytest.mark.lengthy
@pytest.mark.parametrize("kind", PLANS)
def test_every_kind_of_plan_is_varied(browser: Browser, kind: str) -> None:
    page = browser.post(STUDIO + "/curves", {"text": PLANS[kind]})
    assert (page.status_code, "alternatives at the same budget" in words(page.text)) == (200, True)
