"""Proposals can be pasted, cost no more, and are better; previews are read in a terminal of 80 columns."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, parse_plan
from service.answering.plans.calibrating import calibrate, least_noise
from service.answering.plans.preview import preview
from service.answering.plans.proposals import Proposal, proposals
from tests.documented import DOCS, blocks
from tests.service.conftest import PLAN, TEXT_PLAN
from tests.service.shell import Shell

pytestmark = pytest.mark.slow

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
    """A plan with these settings changed in each of its tasks."""
    plan = yaml.safe_load(text)
    for task in plan["tasks"].values():
        task.update(changes)
    return calibrate(parse_plan(plan), SIZE)


def pasted(text: str, proposal: Proposal, **changes: Any) -> CalibratedPlan:
    """The same plan with the proposed lines pasted in."""
    plan = yaml.safe_load(text)
    for task in plan["tasks"].values():
        task.update(changes)
    return calibrate(parse_plan(with_pasted(plan, proposal)), SIZE)


def with_pasted(plan: Any, proposal: Proposal) -> Any:
    """A plan as in an editor, after the proposed lines were pasted below the keys that the proposal names."""
    plan["tasks"][proposal.task].update(yaml.safe_load(proposal.lines or "{}"))
    plan["tasks"].update(yaml.safe_load(proposal.tasks or "{}"))
    return plan


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("text", "changes", "found"),
    [
        (LABELS, {}, [{"order", "drawn"}, {"prior_from"}]),
        (LABELS, {"answers": 200_000}, [set(), {"answers"}]),  # prototypes in its place
        (LABELS, {"answers": 10_000, "ensemble": 100}, [{"order", "shots", "drawn"}, {"prior_from"}]),
        (LABELS, {"shots": 40, "ensemble": 200}, [{"order", "shots", "drawn"}, {"prior_from"}]),
        (WORDS, {}, [{"order", "drawn"}, {"order", "drawn", "slots"}]),
    ],
)
def test_what_is_proposed_can_be_pasted(text: str, changes: dict[str, Any], found: list[set[str]]) -> None:
    now = planned(text, **changes)
    made = proposals(now)
    assert [set(yaml.safe_load(proposal.lines) or ()) for proposal in made] == found
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


def test_a_need_that_grows_is_named_as_the_price_of_a_stated_gain() -> None:
    now = planned(LABELS)
    (nearest,) = [one for one in proposals(now) if "order" in one.lines]
    before, after = (preview(plan).tasks["team"].slots_for_95_percent for plan in (now, pasted(LABELS, nearest)))
    assert before is not None
    assert after is not None
    assert before < after
    gain = "which are more often about it, so that more slots should agree."
    price = f"{math.ceil(after)} of 40 slots must agree, where {math.ceil(before)} must as planned."
    assert nearest.why.endswith(f"{gain} The price is noise: {price}")
    assert not [
        one.why for one in proposals(now, language_model=True) if "Needed" in one.why and "blocks" not in one.why
    ]


def test_what_a_task_has_or_cannot_have_is_not_proposed() -> None:
    nearest = {"order": "nearest", "drawn": 16}
    kinds = [set(yaml.safe_load(one.lines)) for one in proposals(planned(LABELS, **nearest), language_model=True)]
    assert kinds == [{"prior_from"}]
    assert proposals(planned(LABELS), embeds=False) == []
    assert proposals(planned(WORDS, **nearest, slots="quote")) == []


def test_quotes_are_not_proposed_to_an_engine_whose_slots_quote_already() -> None:
    kinds = [set(yaml.safe_load(one.lines)) for one in proposals(planned(WORDS), language_model=False)]
    assert kinds == [{"order", "drawn"}]


def test_topics_multiply_answers_where_slots_draw_more_than_they_show() -> None:
    texts = {"public_texts": [f"a question about {number}" for number in range(16)]}
    drawing = {"order": "nearest", "drawn": 16, **texts}
    (proposal,) = [one for one in proposals(planned(LABELS, **drawing)) if "topics" in one.lines]
    assert "100 answers of its own, 400" in proposal.why
    then = pasted(LABELS, proposal, **drawing)
    assert (len(then.plan.counters()), then.plan.tasks["team"].drawn) == (4, 4)
    assert "100 answers on each of 4 topics" in preview(then).tasks["team"].gives
    assert not [one for one in proposals(then) if "topics" in one.lines]
    assert not [one for one in proposals(planned(LABELS, **drawing), embeds=False) if "topics" in one.lines]


def test_prototypes_that_the_plan_has_are_weighed_at_no_cost() -> None:
    plan = yaml.safe_load(LABELS)
    first = next(one for one in proposals(planned(LABELS)) if one.tasks)
    plan["tasks"] |= yaml.safe_load(first.tasks)
    (proposal,) = [one for one in proposals(calibrate(parse_plan(plan), SIZE)) if "prior_from" in one.lines]
    assert (proposal.lines, proposal.tasks) == ("prior_from: team-prototypes", "")
    plan["tasks"]["team-prototypes"]["labels"] = ["red", "blue"]  # prototypes of other labels are not a prior
    assert not [one for one in proposals(calibrate(parse_plan(plan), SIZE)) if "prior_from" in one.lines]


ROOT = DOCS.parent
KEEP_LONG = {"plan-smollm2.yaml", "samsum-model.yaml", "sroie-model.yaml"}
"""Plans whose tokens take many seconds to calibrate."""


def every_plan() -> list[Any]:
    """All distinct plans of the repository that people read, and those that most tests use."""
    folders = ("examples", "service/serving/synthetic", "research/studies")
    files = {file: file.read_text() for folder in folders for file in sorted((ROOT / folder).rglob("*.yaml"))}
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    files |= {Path(f"{page.name}-{number}"): text for page in pages for number, text in enumerate(blocks(page, "yaml"))}
    mechanisms = ("embedding_mean", "keyword_joint_em, k: 3", "keyword_ptr, k_min: 1, k_max: 4")
    files |= {Path(name): TEXT_PLAN.format(epsilon=2, answers=5, mechanism=f"type: {name}") for name in mechanisms}
    files |= {Path("PLAN"): PLAN, Path("LABELS"): LABELS, Path("WORDS"): WORDS}
    plans = {text: file for file, text in files.items() if {"knowledge_base", "tasks"} <= set(yaml.safe_load(text))}
    return [
        pytest.param(text, marks=[pytest.mark.lengthy] if file.name in KEEP_LONG else [], id=f"{file.name}")
        for text, file in plans.items()
    ]


def test_plans_are_found() -> None:
    assert len(every_plan()) > 25


@pytest.mark.slow
@pytest.mark.parametrize("text", every_plan())
def test_every_plans_preview_is_80_columns_wide_and_its_proposals_can_be_pasted(
    text: str, dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "plan.yaml").write_text(text)
    shown = dpicl.ok("plan", "preview", tmp_path / "plan.yaml", "--public-size", 20_000)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    plan = yaml.safe_load(text)
    assert len([line for line in shown.splitlines() if line.startswith("│")]) == len(plan["tasks"])
    assert shown.count("Out of reach") <= shown.count("What helps")
    for proposal in proposals(calibrate(parse_plan(plan), 20_000), language_model=True):
        changed = parse_plan(with_pasted(yaml.safe_load(text), proposal))
        assert changed.budget == parse_plan(plan).budget
        assert changed != parse_plan(plan)
        least_noise(changed, 20_000)
