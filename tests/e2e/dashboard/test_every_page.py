"""Every page of a dashboard with eight weeks behind it, light and dark, on a desk and on a phone."""

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, PHONE, Service, shoot, sign_in

pytestmark = pytest.mark.slow

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
"""Pages in the docs; the plan studio in light is taken on the way through the first hour."""
NARROWEST = {"width": 360, "height": 740}
WIDTH = "document.documentElement.scrollWidth"
HEIGHT = "document.documentElement.scrollHeight"


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")])
def test_every_page_in_any_light_and_size(lived: Service, browser: Browser, viewport: dict, scheme: str) -> None:
    window = Window(browser, viewport=viewport, color_scheme=scheme, has_touch=viewport is PHONE)
    page, light = window.page, scheme == "light"
    page.goto(f"{lived.url}/admin/sign-in")
    window.check()
    sign_in(window, lived)
    seen, long = set(), {}
    waiting = ["/admin/", "/admin/nowhere"]
    while waiting:
        address = waiting.pop(0)
        path = address.partition("?")[0]
        if path in seen:
            continue
        seen.add(path)
        page.goto(lived.url + address)
        if path == "/admin/nowhere":
            expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
            window.complaints.clear()  # the browser notes a 404
        window.check()
        height = page.evaluate(HEIGHT)
        if height > 2 * viewport["height"] and not path.endswith("/plan"):  # which shows all lines of the plan
            long[path] = height
        if viewport is PHONE:
            page.set_viewport_size(NARROWEST)
            assert page.evaluate(WIDTH) <= NARROWEST["width"], path
            page.set_viewport_size(PHONE)
        if path in SHOWN and (SHOWN[path], viewport, light) != ("plan-studio", DESK, True):
            if path == "/admin/" and viewport is DESK:
                page.locator("#burn-support-over-time").click()
            ending = "-phone" if viewport is PHONE else "" if light else "-dark"
            shoot(window, f"{SHOWN[path]}{ending}")
        links = page.evaluate(
            "[...document.links].filter(a => !a.hasAttribute('download')).map(a => a.pathname + a.search)"
        )
        waiting += [link for link in links if link.startswith("/admin/")]
    assert long == {}, f"pages of more than two screens of {viewport['height']} pixels"
    assert {"/admin/", "/admin/new-knowledge-base", "/admin/knowledge-bases/support", "/admin/groups"} <= seen
    assert {"/admin/plans", "/admin/keys", "/admin/audit"} <= seen
    assert "/admin/knowledge-bases/support/cohorts" in seen
