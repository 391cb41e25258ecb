"""Plans of every kind on the command line, over REST and in the dashboard: each signs the same document."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.operations.services import Services
from tests.e2e.serving import embedder
from tests.service.answering.plans.kinds_of_plan import PLANS, open_shop, serve_shop
from tests.service.conftest import client_of
from tests.service.gateway.dashboard.dashboard_browser import signed_in
from tests.service.shell import Shell

STUDIO = "/knowledge-bases/shop/plan"
REST = "/v1/knowledge-bases/shop/plans"
ROWS = "text,product,label\na kettle,kettle,glad\na lamp,lamp,sad\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dpicl: Shell) -> Iterator[Services]:
    records = open_shop(tmp_path, embedder().embed)
    monkeypatch.setenv("DPICL_DATABASE_URL", records.settings.database_url)
    yield serve_shop(records, embedder().embed)
    records.database.dispose()


def by_command_line(services: Services, text: str, dpicl: Shell, folder: Path) -> None:
    file = folder / "plan.yaml"
    file.write_text(text)
    dpicl.ok("plan", "sign", file, "--yes")


def by_rest(services: Services, text: str, *_: object) -> None:
    answer = client_of(services, "admin").post(
        REST + "?confirm=worse_than_free&again=1", content=text, headers={"Content-Type": "application/yaml"}
    )
    assert answer.status_code == 201, answer.text


def by_dashboard(services: Services, text: str, *_: object) -> None:
    browser = signed_in(services)
    page = browser.post(STUDIO + "/confirm", {"text": text}).text
    hidden = dict(re.findall(r'type="hidden" name="(digest|after)" value="([^"]+)"', page))
    again = {"again": "2", "confirm": "worse_than_free"}
    browser.done(STUDIO + "/sign", {"text": text, "name": "shop", **again, **hidden})


FACES: list[Callable[..., None]] = [by_command_line, by_rest, by_dashboard]


@pytest.mark.parametrize("kind", PLANS)
def test_every_face_signs_the_same_document(shop: Services, kind: str, dpicl: Shell, tmp_path: Path) -> None:
    for sign in FACES:
        sign(shop, PLANS[kind], dpicl, tmp_path)
    signed = shop.records.ledger.budgets.plans("shop")
    assert [plan.version for plan in signed] == [1, 2, 3]
    assert len({plan.document for plan in signed}) == 1


@pytest.mark.parametrize("kind", [kind for kind in PLANS if "topics" in kind])
def test_a_plan_with_topics_is_tried_before_there_is_a_knowledge_base(kind: str, dpicl: Shell, tmp_path: Path) -> None:
    file, rows = tmp_path / "plan.yaml", tmp_path / "rows.csv"
    file.write_text(PLANS[kind])
    rows.write_text(ROWS)
    query = '{"text": "a kettle", "product": "kettle"}' if "by field" in kind else "a kettle"
    how = ("--exemplars", rows, "--query", query, "--public-size", 300, "--repeats", 2, "--embedded-field", "text")
    assert "nothing was charged" in dpicl.ok("plan", "try", file, *how)
    assert "each of 2" in dpicl.ok("plan", "preview", file, "--public-size", 300)
