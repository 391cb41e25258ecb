"""The page of modules shows the current docstrings."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "docs" / "_site" / "modules.py"


def test_the_page_of_modules_is_current() -> None:
    made = runpy.run_path(str(SCRIPT))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), f"run: python {SCRIPT}"
