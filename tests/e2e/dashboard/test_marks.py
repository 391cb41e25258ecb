"""The check of every page finds marks that do not stand out."""

import pytest
from playwright.sync_api import Browser

from tests.e2e.browser import MARKS, Window

pytestmark = pytest.mark.service

PAGE = """
<style>
  body { background: #fff; }
  .gauge, .area, .swatch { width: 200px; height: 20px; }
  .gauge { border: 1px solid #777; }
  input, button { background: #fff; border: 1px solid #777; }
  a[aria-current] { border-bottom: 3px solid #06c; }
  button[aria-pressed="true"] { border: 0; box-shadow: inset 0 0 0 1px #777; }
  .used { fill: #003a5c; } .promised { fill: #4a90c8; }
  .line { fill: none; stroke: #0072b2; } .bar { fill: #b34700; stroke: #fff; }
</style>
<svg class="gauge" viewBox="0 0 100 4" aria-label="budget">
  <rect class="promised" width="60" height="4"/><rect class="used" width="30" height="4"/></svg>
<svg class="area" viewBox="0 0 100 40" aria-label="chart">
  <path class="line" d="M0 0L90 30"/><path class="bar" d="M0 40h9V10h-9z"/></svg>
<svg class="swatch" viewBox="0 0 12 12"><rect class="used" width="12" height="12"/></svg>
<input id="name"><button>Save</button><a href="#" aria-current="page">Keys</a><button aria-pressed="true">Dark</button>
"""

FAULTS = {
    ".promised { fill: #0f4a6e }": "used of budget beside promised of budget",
    ".promised { fill: #cde }": "promised of budget has",
    ".gauge { border-color: #ccc }": "the frame of budget",
    ".line { stroke: #9cf }": "line of chart",
    ".line { opacity: 0.3 }": "line of chart",
    ".bar { stroke: #b34700 }": "bar of chart touches the next",
    ".swatch .used { fill: #eee }": "used of a legend",
    "input { border-color: #ccc }": "the edge of the field name",
    "input { border-width: 0 }": "the edge of the field name",
    "button { border-color: #eee }": "the edge of the button Save",
    "a[aria-current] { border-color: #cdf }": "the mark of the chosen Keys",
    "button[aria-pressed=true] { box-shadow: inset 0 0 0 1px #ddd }": "the mark of the chosen Dark",
}


def test_faint_marks_are_found(browser: Browser) -> None:
    page = Window(browser).page
    page.set_content(PAGE)
    assert page.evaluate(MARKS) == []
    for style, expected in FAULTS.items():
        added = page.add_style_tag(content=style)
        found = page.evaluate(MARKS)
        assert any(expected in one for one in found), (style, found)
        added.evaluate("style => style.remove()")
