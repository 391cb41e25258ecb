"""The dashboard in a real browser, below a path of a site, behind an nginx that takes the path away or leaves it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, Service, sign_in
from tests.nginx import PREFIX, documented_location, nginx

pytestmark = pytest.mark.browser

ADDRESSES = """[...document.querySelectorAll("[href], [src], [action], [formaction], [hx-get], [hx-post]")].flatMap(
  element => ["href", "src", "action", "formaction", "hx-get", "hx-post"].map(name => element.getAttribute(name))
).filter(address => address?.startsWith("/"))"""


@pytest.fixture(params=[True, False], ids=["taken away", "left"])
def site(request: pytest.FixtureRequest, lived: Service, tmp_path: Path) -> Iterator[Service]:
    location = documented_location(lived.url, strips=request.param, reports=True)
    with nginx(tmp_path / "nginx", location) as proxy:
        yield Service(proxy + PREFIX, lived.admin, lived.records)


def test_every_page_links_below_the_path(site: Service, browser: Browser) -> None:
    window = Window(browser, viewport=DESK)
    page = window.page
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    sign_in(window, site)
    seen: set[str] = set()
    waiting = [f"{PREFIX}/admin/", f"{PREFIX}/admin/knowledge-bases/support"]
    while waiting:
        address = waiting.pop(0)
        alike = re.sub("(?<=/knowledge-bases/)[^/]+", "support", re.sub("(?<=/keys/)[^/]+", "key", address))
        if (path := alike.partition("?")[0]) in seen or not path.startswith(f"{PREFIX}/admin/"):
            continue
        seen.add(path)
        page.goto(site.url.removesuffix(PREFIX) + address)
        page.wait_for_load_state("networkidle")
        addresses = page.evaluate(ADDRESSES)
        assert [one for one in addresses if not one.startswith(f"{PREFIX}/")] == [], page.url
        waiting += page.evaluate(
            "[...document.links].filter(a => !a.hasAttribute('download')).map(a => a.pathname + a.search)"
        )
    assert len(seen) > 12
    assert {one for one in asked if not one.startswith((f"{site.url}/", "data:"))} == set()
    assert window.complaints == []


def test_forms_and_parts_of_pages_are_sent_below_the_path(site: Service, browser: Browser) -> None:
    window = Window(browser, viewport=DESK)
    page = window.page
    sign_in(window, site)
    page.get_by_role("button", name="Dark").click()
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    assert page.url == f"{site.url}/admin/"
    page.goto(f"{site.url}/admin/keys")
    page.locator("#new-summary").click()
    page.get_by_label("Whose key is it?").fill("robin")
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#token")).to_contain_text("dpicl_")
    page.goto(f"{site.url}/admin/audit")
    page.get_by_label("What").select_option("key.created")  # htmx sends it, and the address follows
    page.wait_for_url(f"{site.url}/admin/audit?*key.created*")
    page.goto(f"{site.url}/admin/knowledge-bases/support/plan?from=1")
    expect(page.locator("#preview")).to_contain_text("problems")  # which htmx brings: the plan has another's fields
    page.goto(f"{site.url}/docs")
    page.locator("#operations-tag-health").click()
    operation = page.locator("#operations-health-check_health")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".request-url")).to_contain_text(f"{site.url}/healthz")
    expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("status")).to_have_text("You are signed out.")
    assert page.url == f"{site.url}/admin/sign-in"
    assert {cookie["path"] for cookie in page.context.cookies()} == {f"{PREFIX}/admin"}
    assert window.complaints == []
