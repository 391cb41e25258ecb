from __future__ import annotations

import pytest

from accounting.plans.plan import load_plan
from service.answering.mechanisms.rnm_gaussian import posterior_model
from tests.service.conftest import PLAN

NEAREST = "order: nearest\n    shots: 1\n    drawn: 2"
ONCE = """
  once:
    kind: classify
    release: once
    labels: [red, blue]
    prompt: {exemplar: "{text} {label}", query: "{text}"}
    mechanism: {type: prototypes}
"""


@pytest.mark.parametrize(
    ("slots", "calibration", "echo"),
    [
        ("model", "", 1.0),
        ("quote", "", 0.5),  # quotes know nothing of zero-shot
        ("quote\n    prior_from: once", "", 1.0),  # they do know the exemplars of a release
        ("quote", ", calibration: {echo: 0.9}", 0.9),
        ("model", ", calibration: {echo: 0}", 0.0),
    ],
)
def test_votes_repeat_zero_shot_as_far_as_slots_know_it(slots: str, calibration: str, echo: float) -> None:
    plan = PLAN.replace("shots: 2", f"{NEAREST}\n    slots: {slots}").replace(
        "type: rnm_gaussian", f"type: rnm_gaussian{calibration}"
    )
    task = load_plan(plan + ONCE).tasks["colour"]
    assert posterior_model(task.mechanism, task).echo == echo
