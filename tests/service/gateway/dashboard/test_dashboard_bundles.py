"""Pages of bundles: their measurements, beside the controls."""

import re
from pathlib import Path
from typing import Any

import pytest

from service.operations.restoring import CONTROLS
from tests.sanitization.restore.made_up import published
from tests.service.conftest import serving
from tests.service.gateway.dashboard.dashboard_browser import Browser, signed_in

REPORT: dict[str, Any] = {
    "rows": {"train": 2800, "choose": 600, "test": 1600},
    "controls": {name: 0.011 + at / 10 for at, name in enumerate(CONTROLS)},
    "table": [
        {"mechanism": name, "epsilon": epsilon, "steered": share, "as_text": None, "attacker": share / 2}
        for name in ("4-RR", "d_chi")
        for epsilon, share in ((1.0, 0.25), (4.0, 0.75))
    ],
}


@pytest.fixture
def admin(tmp_path: Path) -> Browser:
    return signed_in(serving(tmp_path, restore_bundles=tmp_path / "bundles"))


def test_a_bundle_with_its_report(admin: Browser, tmp_path: Path) -> None:
    bundle = published(tmp_path / "bundles", report=REPORT)
    assert 'href="/admin/bundles/clinic@1"' in admin.get("/bundles").text
    page = admin.get("/bundles/clinic@1").text
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert (facts["Profiles, with that of no spans"], facts["Data"]) == ("4", "public, according to test")
    assert bundle.sha256[:12] in facts["SHA-256"]
    for at, said in enumerate(CONTROLS.values()):
        shown = re.search(re.escape(said.replace("'", "&#39;")) + r"</th><td class=\"number\">(.*?) %", page)
        assert shown[1] == f"{1.1 + 10 * at:.1f}"
    assert page.count('class="chart"') == 2
    assert len(re.findall(r'<th scope="row">d_chi</th>', page)) == 4  # two points in each chart's table


def test_a_bundle_without_a_report(admin: Browser, tmp_path: Path) -> None:
    published(tmp_path / "bundles")
    assert "gave no report" in admin.get("/bundles/clinic@1").text
    assert admin.get("/bundles/clinic@2").status_code == 404


def test_the_page_is_in_the_menu_where_there_are_bundles(admin: Browser, tmp_path: Path) -> None:
    assert 'href="/admin/bundles"' in admin.get("/").text
    assert 'href="/admin/bundles"' not in signed_in(serving(tmp_path / "other")).get("/").text
