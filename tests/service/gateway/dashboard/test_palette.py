"""Colours of marks stand out from the colours they touch, in light and dark, as WCAG 2.2, 1.4.11 requires.

The colours are those of the style sheet. :meth:`tests.e2e.browser.Window.check` checks their use on pages in a browser.
"""

import re
from pathlib import Path

import pytest

import service.gateway.dashboard

STATIC = Path(service.gateway.dashboard.__file__).parent / "static"
LEAST = 3.0
"""Least contrast of two marks that touch, or of a mark and its ground."""

GROUNDS = ("page", "card", "sunk", "wash")
NOTICES = ("sunk", "good-wash", "warn-wash", "bad-wash")
TOUCHING = [
    *[(line, "card") for line in ("c1", "c2", "c3", "c4", "c5", "c6", "edge")],  # of charts, which lie on cards
    # A bar has a frame; what it holds stands side by side in any order, and ends in what is empty.
    *[(part, "card") for part in ("used", "promised", "asked")],
    *[("used", "promised"), ("asked", "promised")],
    *[("accent", ground) for ground in (*GROUNDS, *NOTICES)],  # the ring around the focus, and the choice made
    *[("edge", ground) for ground in (*GROUNDS, *NOTICES)],  # the edges of fields and buttons
    *[(mood, f"{mood}-wash") for mood in ("good", "warn", "bad")],
    *[("bad", ground) for ground in GROUNDS],
]


def colours() -> dict[str, tuple[str, str]]:
    style = (STATIC / "app.css").read_text()
    return {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", style)}


def luminance(colour: str) -> float:
    """Relative luminance of a colour, from 0 to 1, as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_as_wcag_defines_it() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)  # W3C's own example of text that passes


@pytest.mark.parametrize("light", [0, 1], ids=["light", "dark"])
def test_marks_stand_out(light: int) -> None:
    palette = {name: pair[light] for name, pair in colours().items()}
    found = {pair: contrast(palette[pair[0]], palette[pair[1]]) for pair in TOUCHING}
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < LEAST} == {}


def test_the_icon_stands_out() -> None:
    ground, *marks = re.findall("(#[0-9a-f]{3,6})", (STATIC / "mark.svg").read_text())
    assert len(marks) == 2
    for mark in marks:
        assert contrast(ground, mark.replace("#fff", "#ffffff")) >= LEAST
