"""The pages of docs/reference show the current code."""

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[1] / "docs"


def test_the_pages_of_reference_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    reference = importlib.import_module("_site.reference")
    assert {file.name for file in reference.FOLDER.iterdir()} == reference.PAGES.keys()
    stale = [name for name in reference.PAGES if (reference.FOLDER / name).read_text() != reference.content(name)]
    assert not stale, "run: make reference"
