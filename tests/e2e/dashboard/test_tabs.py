"""Two tabs of one real browser sign in at the same time, at a provider of another site and with keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from pydantic import SecretStr

from service.records.records import Records, open_records
from tests.e2e.browser import Window
from tests.e2e.dashboard.lived import running
from tests.service.conftest import development
from tests.service.gateway.dashboard.oidc_provider import CLIENT, SECRET, Provider, provider

pytestmark = pytest.mark.browser


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider("") as idp:
        idp.person = {"sub": "1", "name": "Jane Doe", "groups": ["deciders"]}
        yield idp


@pytest.fixture
def records(tmp_path: Path, idp: Provider) -> Records:
    known = {"oidc_client_id": CLIENT, "oidc_client_secret": SecretStr(SECRET)}
    roles = {"groups": {"deciders": "admin"}}
    return open_records(development(tmp_path, oidc_issuer=idp.issuer, oidc_roles=roles, **known))


@pytest.fixture
def url(records: Records, idp: Provider) -> Iterator[str]:
    with running(records) as address:
        url = address.replace("127.0.0.1", "localhost")  # another site than the provider's
        idp._redirect_uri = f"{url}/admin/sign-in/callback"
        yield url


def make_key(page: Page, name: str) -> None:
    page.locator("#name").fill(name)
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#token")).to_be_visible()


def test_attempts_at_a_provider_are_finished_in_any_order(url: str, idp: Provider, browser: Browser) -> None:
    window = Window(browser)
    tabs = first, second = window.page, window.page.context.new_page()
    idp.described = {"authorization_endpoint": f"{idp.issuer}/end"}  # a page at which the person thinks it over
    for page, going in zip(tabs, ("/keys", "/audit"), strict=True):
        page.goto(f"{url}/admin/sign-in?next={going}")
        page.get_by_role("link", name="Sign in there").click()
        page.wait_for_url(f"{idp.issuer}/end?**")
    for page, heading in ((second, "Audit trail"), (first, "Keys")):
        page.evaluate("location.href = location.href.replace('/end?', '/authorize?')")  # the provider's page leads on
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    second.goto(f"{url}/admin/keys")
    make_key(first, "ana")
    make_key(second, "bo")


def test_a_page_stays_usable_when_its_key_signs_in_beside_it(url: str, records: Records, browser: Browser) -> None:
    _, token = records.keys.create("Maria", "admin")
    window = Window(browser)
    pages = [window.page, window.page.context.new_page()]
    for page in pages:
        page.goto(f"{url}/admin/sign-in?next=/keys")
    for page in pages:
        page.get_by_label("Key", exact=True).fill(token)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Keys")
    for page, name in zip(pages, ("ana", "bo"), strict=True):
        make_key(page, name)
    assert {"ana", "bo"} <= {key.name for key in records.keys.list()}
