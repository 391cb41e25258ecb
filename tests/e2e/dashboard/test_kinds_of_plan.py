"""Plans of every kind in the studio, in a real browser; and what a page shows when its own request fails."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from service.records.records import Records
from service.serving.web import create_app
from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, Service, sign_in
from tests.processes import listening
from tests.service.answering.plans.kinds_of_plan import PLANS, open_shop, serve_shop

pytestmark = [pytest.mark.browser]

STUDIO = "/admin/knowledge-bases/shop/plan?kind=labels"
EXAMPLES = "text,product,label\na kettle,kettle,glad\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    records: Records = open_shop(tmp_path_factory.mktemp("shop"))
    _, admin = records.keys.create("Maria", "admin")
    with listening(create_app(serve_shop(records))) as url:
        yield Service(url, admin, records)
    records.database.dispose()


@pytest.fixture
def window(shop: Service, browser: Browser) -> Window:
    opened = Window(browser, viewport=DESK, color_scheme="light")
    sign_in(opened, shop)
    return opened


@pytest.mark.lengthy
def test_the_studio_shows_and_signs_every_kind_of_plan(shop: Service, window: Window) -> None:
    page = window.page
    # The engine that answers here is no language model: the pages of this kind are tested in process.
    shown = {kind: text for kind, text in PLANS.items() if kind != "labels, conversations"}
    for version, (kind, text) in enumerate(shown.items(), 1):
        page.goto(shop.url + STUDIO)
        page.get_by_label("The plan (YAML)").fill(text)
        expect(page.locator("#gives-mood")).to_be_visible()
        for unfolded in ("#accountants-summary", "#more-mood-summary", "#topics-mood-summary"):
            if page.locator(unfolded).count():
                page.locator(unfolded).press("Enter")
        page.locator("#otherwise-summary").press("Enter")
        expect(page.get_by_role("heading", name="mood: alternatives")).to_be_visible()
        window.check()
        if kind != "once":
            page.locator("#try-summary").press("Enter")
            page.get_by_label("Examples", exact=True).fill(EXAMPLES)
            query = '{"text": "a kettle", "product": "kettle"}' if "by field" in kind else "a kettle"
            page.get_by_label("Question", exact=True).fill(query)
            page.get_by_role("button", name="Try it").click()
            expect(page.get_by_text("with the plan’s noise", exact=False)).to_be_visible()
        page.locator("#to-sign").click()
        expect(page.get_by_role("heading", name=f"Sign plan {version} of shop?")).to_be_visible()
        window.check()
        page.get_by_label("To sign, write", exact=False).fill("shop")
        for box in page.get_by_role("checkbox").all():
            box.check()
        page.get_by_role("button", name="for good and sign", exact=False).click()
        expect(page.get_by_role("status")).to_contain_text(f"Plan {version} is signed")
        window.check()


def broken(page: Page, how: object) -> None:
    """Let the studio's own requests fail from now on."""

    def fail(route: Route) -> None:
        if isinstance(how, int):
            route.fulfill(status=how, content_type="text/html", body="<main><h1>Something failed</h1></main>")
        else:
            route.abort(str(how))

    page.route("**/plan*", fail)
    page.route("**/plan/**", fail)


@pytest.mark.parametrize("how", [500, 503, 403, 413, "connectionrefused", "internetdisconnected"])
def test_a_part_of_the_page_shows_that_its_request_failed(shop: Service, window: Window, how: object) -> None:
    page, reason = window.page, "Something failed" if isinstance(how, int) else "The service does not answer"
    page.goto(shop.url + STUDIO)
    expect(page.get_by_role("heading", name="What it takes")).to_be_visible()
    broken(page, how)
    page.get_by_label("The plan (YAML)").fill(PLANS["labels"])
    alert = page.locator("#preview > .failed")
    expect(alert).to_contain_text(reason)
    assert page.get_by_text("being computed").count() == 0
    page.locator("#try-summary").press("Enter")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator("#trial > .failed")).to_contain_text(reason)
    expect(page.get_by_role("button", name="Try it")).to_be_enabled()
    page.unroute_all()
    alert.get_by_role("button", name="Try again").click()
    expect(page.locator("#gives-mood")).to_be_visible()
    expect(alert).to_have_count(0)
    assert window.complaints, "the browser notes failed requests"
