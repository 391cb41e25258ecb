"""The table on the page about whether a task will work: its figures are those computed today."""

import math
import re
from pathlib import Path

import pytest

from research.studies.leads import SLOTS, measured_table, needed, read
from service.answering.plans.preview import TYPICAL_LEADS

PAGE = Path(__file__).parents[4] / "docs" / "fit.md"
LEADS = read(PAGE.parent / "evaluation" / "leads.csv")
ROWS = re.findall(
    r"^\| ([\d,]+) \| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.slow
@pytest.mark.parametrize(("people", "answers", "leads"), [(*row[:2], row[2:]) for row in ROWS])
def test_a_label_needs_the_lead_that_the_page_states(people: str, answers: str, leads: tuple[str, ...]) -> None:
    size, asked = (int(number.replace(",", "")) for number in (people, answers))
    assert [math.ceil(needed(size, asked, epsilon, drawn=1, labels=4)) for epsilon in (1, 3, 8)] == [*map(int, leads)]


def test_the_page_has_the_table() -> None:
    assert len(ROWS) == 12


DRAWING = re.findall(r"^\| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("people", "leads"), [(row[0], row[1:]) for row in DRAWING])
def test_slots_that_draw_more_need_the_lead_that_the_page_states(people: str, leads: tuple[str, ...]) -> None:
    size = int(people.replace(",", ""))
    assert [math.ceil(needed(size, 100, epsilon, drawn=16, labels=4)) for epsilon in (1, 3, 8)] == [*map(int, leads)]


def test_the_page_has_the_table_of_slots_that_draw_more() -> None:
    assert len(DRAWING) == 3


def test_the_page_has_the_measured_leads() -> None:
    assert "\n".join(measured_table(LEADS)) in PAGE.read_text(encoding="utf-8")
    assert {len(values) for values in LEADS.values()} == {300}


def test_the_preview_states_the_least_and_the_most_of_these() -> None:
    for drawn, stated in TYPICAL_LEADS.items():
        shares = [100 * values.mean() / SLOTS for (_, its), values in LEADS.items() if its == drawn]
        assert len(shares) == 4
        assert stated == (round(min(shares)), round(max(shares)))
