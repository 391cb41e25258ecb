"""The table on the page about whether a task will work: its figures are those computed today."""

import math
import re
from pathlib import Path

import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from service.answering.mechanisms.adapter import adapter_of

PAGE = Path(__file__).parents[4] / "docs" / "fit.md"
PLAN = """
knowledge_base: people
budget: {{epsilon: {epsilon}, delta: {delta}}}
tasks:
  team:
    kind: classify
    labels: [a, b, c, d]
    prompt: {{exemplar: "{{text}} {{label}}", query: "{{text}}"}}
    shots: 1
    ensemble: 40
    answers: {answers}
    mechanism: {{type: rnm_gaussian, vote: hard}}
"""
ROWS = re.findall(
    r"^\| ([\d,]+) \| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.slow
@pytest.mark.parametrize(("people", "answers", "leads"), [(*row[:2], row[2:]) for row in ROWS])
def test_a_label_needs_the_lead_that_the_page_states(people: str, answers: str, leads: tuple[str, ...]) -> None:
    size = int(people.replace(",", ""))
    for epsilon, lead in zip((1, 3, 8), leads, strict=True):
        text = PLAN.format(epsilon=epsilon, delta=min(1e-5, 0.1 / size), answers=int(answers.replace(",", "")))
        calibrated = calibrate_plan(load_plan(text), public_size=size)
        outlook = adapter_of(calibrated.plan.tasks["team"], calibrated.noise["team"]).outlook()
        assert math.ceil(outlook.needed) == int(lead)


def test_the_page_has_the_table() -> None:
    assert len(ROWS) == 12
