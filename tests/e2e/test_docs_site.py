"""The documentation as a site: it builds without a warning and without a network, and hangs together."""

import os
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

from tests.deploy import promql
from tests.e2e.browser import Window, chromium

pytestmark = pytest.mark.lengthy

ROOT = Path(__file__).parents[2]
PROOFS = sorted([ROOT / "docs" / "privacy.md", *(ROOT / "docs" / "privacy").glob("*.md")])
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
OFFLINE = (
    "import socket, sys; from mkdocs.__main__ import cli; socket.socket.connect = None; sys.exit(cli(sys.argv[1:]))"
)


class Page(HTMLParser):
    """A page's anchors, links, and what a browser loads for it."""

    def __init__(self, html: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.loaded += [
            value for name, value in given.items() if (tag, name) in LOADED and given.get("rel") != "canonical"
        ]
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", OFFLINE, "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text()) for file in site.rglob("*.html")}


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 40
    for file, page in pages.items():
        if file.name == "404.html":  # its links are absolute, as it is shown at any address
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{file.relative_to(site)}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{file.relative_to(site)}: {link}"


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for file, page in pages.items():
        assert "Content-Security-Policy" in file.read_text()
        for address in page.loaded:
            assert not urlsplit(address).netloc, f"{file.relative_to(site)}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text())


def test_a_browser_has_no_complaints(site: Path) -> None:
    """The site is served like any static site, under its pages' own policy, and its search finds something."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    with server, chromium() as browser:
        window = Window(browser)
        asked: list[str] = []
        window.page.on("request", lambda request: asked.append(request.url))
        for page in ("index.html", "tutorial.html", "privacy/mechanisms.html", "reference/rest.html"):
            window.page.goto(url + page, wait_until="networkidle")
        window.page.locator(".md-search__input").press_sequentially("bounded range")
        window.page.locator(".md-search-result__item").first.wait_for()
        server.shutdown()
    assert window.complaints == []
    assert all(address.startswith((url, "data:", "blob:")) for address in asked)


def test_references_are_complete(site: Path) -> None:
    def shown(page: str) -> str:
        return (site / "reference" / page).read_text()

    from accounting.plans.tasks import ClassifyTask, GenerateTask
    from service.settings import Settings

    assert all(f"DPICL_{name.upper()}" in shown("settings.html") for name in [*Settings.model_fields, "remote_api_key"])
    metrics = {one.metric for query in promql.all_queries() for one in promql.selected(query)}
    assert all(f">{metric}<" in shown("metrics.html") for metric in metrics if metric.startswith("dpicl_"))
    assert all(f">{name}<" in shown("plan.html") for task in (ClassifyTask, GenerateTask) for name in task.model_fields)
    assert ">dpicl plan sign<" in shown("cli.html")
    assert "/v1/tasks/{task}/answers" in shown("rest.html")
    assert "/v1/tasks/{task}/answers" in shown("openapi.json")


@pytest.mark.parametrize("page", PROOFS, ids=lambda page: page.name)
def test_what_proofs_name_exists(page: Path) -> None:
    """The names after a link to a file (`like this`, `and this`) are defined in that file."""
    evidence = re.findall(r"\[`[^`]+`\]\(([^)]+\.py)\)((?:,?\s*(?:>\s*)?`\w+`)*)", page.read_text())
    for target, names in evidence:
        text = (page.parent / target).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"(?:def|class) {name}\b|^{name}\b", text, re.MULTILINE), f"{target}: {name}"
    assert page.name == "privacy.md" or len(evidence) >= 4


def test_every_theorem_has_its_code_and_tests() -> None:
    sections = [part for page in PROOFS for part in re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE)]
    stated = [section for section in sections if re.search(r"> \*\*(?:Theorem|Lemma) \d+\.", section)]
    numbers = [int(n) for section in stated for n in re.findall(r"> \*\*(?:Theorem|Lemma) (\d+)\.", section)]
    assert sorted(numbers) == list(range(1, 27))
    for section in stated:
        if "Lemma 3" not in section:  # about slots' contributions: the tests stand below its assumption
            assert "**Tests**" in section, section[:80]
            assert "**Code**" in section, section[:80]
