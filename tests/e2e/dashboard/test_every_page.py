"""Every page of a dashboard after eight weeks of use, light and dark, on a desk and on a phone."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, PHONE, Service, shoot, sign_in

pytestmark = pytest.mark.browser

SHOWN = {
    "/admin/": "overview",
    "/admin/new-knowledge-base": "new-knowledge-base",
    "/admin/knowledge-bases/support": "knowledge-base",
    "/admin/knowledge-bases/support/plans": "plans",
    "/admin/knowledge-bases/support/usage": "usage",
    "/admin/knowledge-bases/support/plan": "plan-studio",
    "/admin/keys": "keys",
    "/admin/audit": "audit",
}
"""Pages pictured in the docs; test_first_hour.py takes the light picture of the plan studio."""
LOOKS = [(DESK, "light"), (DESK, "dark"), (PHONE, "light")]
NARROWEST = {"width": 320, "height": 740}
UNFOLD = "document.querySelectorAll('details').forEach(details => details.open = true)"
LINKS = "[...document.links].filter(a => !a.hasAttribute('download')).map(a => a.pathname + a.search)"


def look(window: Window, path: str) -> None:
    """Check a page in every light and size. A page has at most two screens, or a little more for the overview."""
    page = window.page
    for viewport, scheme in LOOKS:
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme)
        window.check()
        if not path.endswith(("/plan", "/statement")):  # which show all of the plan, and a whole paper
            screens = 2.4 if path == "/admin/" else 2
            assert page.evaluate("document.documentElement.scrollHeight") <= screens * viewport["height"], path
        name, unfolded = SHOWN.get(path), page.locator("#burn-support-over-time")
        if name and (name, viewport, scheme) != ("plan-studio", DESK, "light"):
            unfolds = path == "/admin/" and viewport is DESK
            if unfolds:
                unfolded.click()
            shoot(window, f"{name}{'-phone' if viewport is PHONE else '-dark' if scheme == 'dark' else ''}")
            if unfolds:
                unfolded.click()
    page.set_viewport_size(NARROWEST)
    page.evaluate(UNFOLD)
    window.check()


def test_times_are_in_the_zone_of_the_reader(lived: Service, browser: Browser) -> None:
    window = Window(browser, viewport=DESK, timezone_id="Asia/Tokyo")
    page = window.page
    sign_in(window, lived)
    page.goto(f"{lived.url}/admin/knowledge-bases/support/plans")
    signed = page.locator("time").first
    exact = datetime.fromisoformat(signed.get_attribute("datetime"))
    there = exact.astimezone(ZoneInfo("Asia/Tokyo"))
    expect(signed).to_have_text(f"{there.day} {there:%b %Y, %H:%M} GMT+9".replace("Sep ", "Sept "))
    page.goto(f"{lived.url}/admin/knowledge-bases/support")
    expect(page.get_by_text("time (Asia/Tokyo)").first).to_be_visible()
    page.locator("#burn-down-summary").click()
    expect(page.get_by_role("columnheader", name="time (Asia/Tokyo)")).to_be_visible()
    window.check()
    without = browser.new_context(java_script_enabled=False, timezone_id="Asia/Tokyo").new_page()
    without.goto(f"{lived.url}/admin/sign-in")
    without.get_by_label("Key", exact=True).fill(lived.admin)
    without.get_by_role("button", name="Sign in").click()
    without.goto(f"{lived.url}/admin/knowledge-bases/support/plans")
    expect(without.locator("time").first).to_have_text(f"{exact.day} {exact:%b %Y, %H:%M} UTC")


@pytest.mark.lengthy
def test_every_page_in_any_light_and_size(lived: Service, browser: Browser) -> None:
    window = Window(browser, has_touch=True, reduced_motion="reduce")
    page = window.page
    page.goto(f"{lived.url}/admin/sign-in")
    look(window, "/admin/sign-in")
    sign_in(window, lived)
    seen = {"/admin/nowhere", "/admin/docs"}  # Swagger UI draws most of the latter: test_reference.py checks it
    page.goto(f"{lived.url}/admin/nowhere")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    window.complaints.clear()  # the browser notes a 404
    look(window, "/admin/nowhere")
    waiting = ["/admin/", "/admin/knowledge-bases/support"]
    while waiting:
        address = waiting.pop(0)
        path = address.partition("?")[0]
        alike = re.sub("(?<=/knowledge-bases/)[^/]+", "support", path)  # other knowledge bases' pages look the same
        if alike in seen or not path.startswith("/admin/"):
            continue
        seen.add(alike)
        page.goto(lived.url + address)
        look(window, path)
        waiting += page.evaluate(LINKS)
    assert {"/admin/", "/admin/new-knowledge-base", "/admin/knowledge-bases/support", "/admin/groups"} <= seen
    assert {"/admin/plans", "/admin/keys", "/admin/audit"} <= seen
    assert "/admin/knowledge-bases/support/cohorts" in seen


def test_an_analyst_asks_and_reads_the_answer_again(lived: Service, browser: Browser) -> None:
    _, token = lived.records.keys.create("eve", "analyst")
    window = Window(browser, viewport=DESK, reduced_motion="reduce")
    page = window.page
    page.goto(f"{lived.url}/admin/")
    page.get_by_label("Key", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Ask")).to_be_visible()
    assert page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts() == ["Ask"]
    window.check()
    page.get_by_role("link", name="support.team", exact=True).click()
    page.get_by_label("Text", exact=True).fill("Where is my parcel?")
    page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.get_by_role("status")
    expect(answer.get_by_role("term")).to_have_text(["How sure", "Cost", "Task"])
    label = answer.locator(".answer").inner_text()
    page.locator("#more summary").click()
    for width in (1280, 768, NARROWEST["width"]):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            window.check()
    page.goto(f"{lived.url}/admin/ask")
    rows = page.get_by_role("table", name="Your answers").get_by_role("row")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text(label)
