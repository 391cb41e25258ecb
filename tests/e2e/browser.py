"""Debian's Chromium, driven against the real service, with a list of its complaints."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
MARKS = (Path(__file__).parent / "marks.js").read_text()
SETTLED = """async () => {
    const frame = () => new Promise(requestAnimationFrame);
    const ending = () => document.getAnimations().filter(one =>
        one.playState === "running" && one.effect.getComputedTiming().endTime !== Infinity);
    await frame();
    await frame();
    while (ending().length) {
        await Promise.allSettled(ending().map(one => one.finished));
        await frame();
    }
}"""
"""Waits for the transitions and animations of a page that end."""
PATIENCE_MS = 180_000
"""Time in which a right page appears, even on a busy machine."""

expect.set_options(timeout=PATIENCE_MS)
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window. Playwright's own is not downloaded."""
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("the dashboard is tested in a real browser: apt-get install chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses to run as root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Window:
    """A page that remembers what went wrong on it.

    Attributes:
        page: Playwright's page.
        complaints: console errors, scripts' errors and breaches of the Content-Security-Policy.
    """

    def __init__(self, browser: Browser, **options: Any):
        shown = {"locale": "en-GB", "timezone_id": "UTC"} | options
        self.page: Page = browser.new_context(**shown).new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self._failed(request))
        self.page.on("console", lambda message: self._logged(message.type, message.text))

    def _logged(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # the page was left
            self.complaints.append(f"{request.url}: {request.failure}")

    def check(self) -> None:
        """Check the page as it is now: accessible by axe's rules, no wider than the window, and no complaint so far.

        Axe checks text. Other marks that must stand out, such as bars, lines and the edges of fields, are checked here.
        Colours are looked at when the page has stopped fading from one to the next.
        """
        self.page.wait_for_load_state("networkidle")
        self.page.evaluate(SETTLED)
        wide = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{self.page.url} is {wide[0]} wide in a window of {wide[1]}"
        self.page.evaluate(AXE)  # not bound by the page's policy
        found = self.page.evaluate("rules => axe.run({runOnly: rules})", _RULES)
        problems = [
            f"{one['id']}: {one['help']}: {node['html'][:200]} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"]
        ]
        problems += self.page.evaluate(MARKS)
        assert not problems, f"{self.page.url}\n" + "\n".join(problems)
        assert self.complaints == [], self.page.url

    def focused(self) -> str:
        """The text or id of the element that has the focus."""
        script = "e => e.matches('input, textarea, select') ? e.id : e.innerText?.trim().replace(/\\s+/g, ' ') || e.id"
        return str(self.page.evaluate(f"({script})(document.activeElement)"))

    def tab_to(self, text: str) -> None:
        """Press Tab until the element with this text or id has the focus."""
        for _ in range(80):
            if self.focused() == text:
                return
            self.page.keyboard.press("Tab")
        pytest.fail(f"no way to {text!r} by the Tab key on {self.page.url}")

    def follow(self, text: str) -> None:
        """Go to a link or a button by the Tab key, press Enter there, and wait for the page it leads to."""
        self.tab_to(text)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")
