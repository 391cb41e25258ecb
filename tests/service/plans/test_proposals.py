"""What is proposed can be pasted, costs no more, and is better."""

from typing import Any

import pytest
import yaml

from accounting.plan import CalibratedPlan, parse_plan
from service.plans.calibrating import calibrate
from service.plans.preview import preview
from service.plans.proposals import Proposal, proposals

SIZE = 9000
LABELS = """
knowledge_base: support
budget: {epsilon: 4, delta: 1.0e-5}
tasks:
  team:
    kind: classify
    labels: [red, blue, green]
    prompt: {exemplar: "{text} {label}", query: "{text}"}
    shots: 4
    ensemble: 40
    answers: 100
    mechanism: {type: rnm_gaussian, vote: soft}
"""
WORDS = """
knowledge_base: support
budget: {epsilon: 4, delta: 1.0e-5}
tasks:
  reply:
    kind: generate
    prompt: {exemplar: "{text} {response}", query: "{text}"}
    shots: 4
    ensemble: 200
    answers: 3
    mechanism: {type: keyword_ptr, k_min: 1, k_max: 4}
"""


def planned(text: str, **changes: Any) -> CalibratedPlan:
    """A plan whose only task has other settings."""
    plan = yaml.safe_load(text)
    for task in plan["tasks"].values():
        task.update(changes)
    return calibrate(parse_plan(plan), SIZE)


def pasted(text: str, proposal: Proposal, **changes: Any) -> CalibratedPlan:
    """The same with the lines that are proposed."""
    plan = yaml.safe_load(text)
    for task in plan["tasks"].values():
        task.update(changes)
    plan["tasks"][proposal.task].update(yaml.safe_load(proposal.lines))
    plan["tasks"].update(yaml.safe_load(proposal.tasks or "{}"))
    return calibrate(parse_plan(plan), SIZE)


@pytest.mark.parametrize(
    ("text", "changes", "found"),
    [
        (LABELS, {}, [{"order", "drawn"}, {"prior_from"}]),
        (LABELS, {"answers": 200_000}, [{"answers"}]),
        (LABELS, {"shots": 40, "ensemble": 200}, [{"order", "shots", "drawn"}, {"prior_from"}]),
        (WORDS, {}, [{"order", "drawn"}, {"order", "drawn", "slots"}]),
    ],
)
def test_what_is_proposed_can_be_pasted(text: str, changes: dict[str, Any], found: list[set[str]]) -> None:
    now = planned(text, **changes)
    made = proposals(now)
    assert [set(yaml.safe_load(proposal.lines)) for proposal in made] == found
    for proposal in made:
        then = pasted(text, proposal, **changes)
        assert then.plan.budget == now.plan.budget
        assert all(task.warning is None for task in preview(then).tasks.values())
        assert then.epsilon[then.plan.accountant].upper <= now.plan.budget.epsilon


def test_blocks_are_proposed_to_language_models_alone_and_need_less_noise() -> None:
    now = planned(LABELS, ensemble=10)
    assert not [one for one in proposals(now) if "sampling" in one.lines]
    assert not [one for one in proposals(now, language_model=False) if "sampling" in one.lines]
    (proposal,) = [one for one in proposals(now, language_model=True) if "sampling" in one.lines]
    then = pasted(LABELS, proposal, ensemble=10)
    noise, less = (of.noise["team"].mechanism.noise_multiplier for of in (now, then))  # type: ignore[union-attr]
    assert less < noise


def test_what_a_task_has_or_cannot_have_is_not_proposed() -> None:
    nearest = {"order": "nearest", "drawn": 16}
    kinds = [set(yaml.safe_load(one.lines)) for one in proposals(planned(LABELS, **nearest), language_model=True)]
    assert kinds == [{"prior_from"}]
    assert proposals(planned(LABELS), embeds=False) == []
    assert proposals(planned(WORDS, **nearest, slots="quote")) == []
