"""The statement of a knowledge base in a real browser: reached by keyboard, read on a narrow screen, printed, kept."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, Service, sign_in

pytestmark = pytest.mark.browser

NARROW = {"width": 320, "height": 640}
A4_POINTS = (595, 842)


def printed(window: Window, file: Path) -> int:
    """Print the page as Chromium does, check that its sheets are A4 and tagged, and return their number."""
    window.page.pdf(path=file, prefer_css_page_size=True, tagged=True)
    content = file.read_bytes()
    sheets = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert {(round(float(width)), round(float(height))) for width, height in sheets} == {A4_POINTS}
    assert b"/StructTreeRoot" in content
    return len(sheets)


def test_the_statement_is_read_printed_and_kept(lived: Service, browser: Browser, tmp_path: Path) -> None:
    window = Window(browser, viewport=DESK, color_scheme="dark")
    page = window.page
    sign_in(window, lived)
    page.goto(f"{lived.url}/admin/knowledge-bases/claims")
    window.check()
    window.follow("Statement for data protection")
    expect(page.get_by_role("heading", level=1)).to_have_text("claims")
    expect(page.get_by_text("is in the group care, of claims, letters")).to_be_visible()
    for viewport in (DESK, NARROW):
        page.set_viewport_size(viewport)
        window.check()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"  # its style is applied, under its own policy
    back = page.get_by_role("link", name="Back to claims")
    page.emulate_media(media="print")
    expect(back).to_be_hidden()
    sheets = printed(window, tmp_path / "shown.pdf")
    assert 2 <= sheets <= 4
    page.emulate_media(media="null")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download this statement").click()
    assert download.value.suggested_filename == "statement-claims.html"
    kept = tmp_path / "kept.html"
    download.value.save_as(kept)
    back.click()
    expect(page.get_by_role("navigation", name="Pages of claims")).to_be_visible()
    page.goto(kept.as_uri())  # by itself: no server, and no dashboard to go back to
    expect(page.get_by_role("heading", name="How to check this statement")).to_be_visible()
    expect(page.get_by_role("link")).to_have_count(0)
    window.check()
    assert printed(window, tmp_path / "kept.pdf") == sheets
