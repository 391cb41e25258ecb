"""REST's reference in the dashboard: Swagger UI's files are the service's own, and it draws all operations."""

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import Service, sign_in

pytestmark = pytest.mark.browser


def test_an_admin_reads_and_tries_requests(service: Service, browser: Browser) -> None:
    window = Window(browser)
    page = window.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{service.url}/docs")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(window, service)
    page.goto(f"{service.url}/docs")
    expect(page.locator("#reference .opblock-tag").first).to_be_visible()
    document = httpx.get(f"{service.url}/openapi.json").json()
    for tag in page.locator("#reference .opblock-tag").all():
        tag.click()
    expect(page.locator("#reference .opblock")).to_have_count(sum(map(len, document["paths"].values())))
    for width in (1280, 768, 320):
        page.set_viewport_size({"width": width, "height": 860})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.evaluate("dark => document.documentElement.classList.toggle('dark-mode', dark)", theme == "dark")
            window.check()
    page.emulate_media(color_scheme="light")
    page.evaluate("document.documentElement.classList.remove('dark-mode')")

    page.get_by_role("button", name="Authorize").first.click()
    window.check()
    page.get_by_label("auth-bearer-value").fill(service.admin)
    page.locator(".auth-container").get_by_role("button", name="Authorize").click()
    page.get_by_role("button", name="Close", exact=True).click()
    operation = page.locator("#operations-budgets-get_budgets")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    window.check()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    assert window.complaints == []
    assert {httpx.URL(url).host for url in asked} == {"127.0.0.1"}
    page.reload()
    expect(page.locator("#reference .authorize.unlocked")).to_be_visible()
