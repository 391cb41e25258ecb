"""One service and one browser for all tests of the dashboard."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from service.records.records import Records, open_records
from tests.e2e.browser import Window, chromium
from tests.e2e.dashboard.lived import live, running
from tests.service.conftest import development

SHOTS = Path(__file__).parents[3] / "docs" / "screenshots"
"""Pictures in the docs, which are taken again if TAKE_SCREENSHOTS is set."""

WHOLE = ("overview", "overview-dark")
"""Pictures that show the whole page, not only the part in the window."""

DESK = {"width": 1200, "height": 860}
PHONE = {"width": 390, "height": 844}


@dataclass
class Service:
    url: str
    admin: str
    records: Records

    def ask(self, key: str, query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(
            f"{self.url}/v1/tasks/support.team/answers", json={"query": query}, headers=headers, timeout=60
        )


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A new service, without Ray: test_sanitised_questions.py tests pages and forms through Ray Serve."""
    records = open_records(development(tmp_path_factory.mktemp("dashboard")))
    _, admin = records.keys.create("Maria", "admin")
    with running(records) as url:
        yield Service(url, admin, records)


@pytest.fixture(scope="package")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that has been used for eight weeks."""
    records = open_records(development(tmp_path_factory.mktemp("lived")))
    admin = live(records)
    with running(records) as url:
        yield Service(url, admin, records)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def sign_in(window: Window, service: Service) -> None:
    window.page.goto(f"{service.url}/admin/")
    expect(window.page.get_by_label("Key", exact=True)).to_be_focused()
    window.page.keyboard.type(service.admin)
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("heading", name="Overview")).to_be_visible()


def shoot(window: Window, name: str) -> None:
    """Take a picture for the docs, in few colours so that it stays small."""
    if "TAKE_SCREENSHOTS" in os.environ:
        window.page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        SHOTS.mkdir(exist_ok=True)
        taken = Image.open(BytesIO(window.page.screenshot(full_page=name in WHOLE))).convert("RGB")
        taken.quantize(128, dither=Image.Dither.NONE).save(SHOTS / f"{name}.png", optimize=True)
        assert (SHOTS / f"{name}.png").stat().st_size < 80_000, name
