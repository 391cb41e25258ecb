"""Proposals can be pasted, cost no more, and are better; previews are read in a terminal of 80 columns."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from accounting.plans.plan import CalibratedPlan, Plan, TaskNoise, parse_plan
from service.answering.plans.calibrating import Variants, calibrate, least_noise
from service.answering.plans.preview import describe, preview
from service.answering.plans.proposals import Proposal, adopted, proposals
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


RELEASED: set[str] = set()
"""Keys of the lines of a proposal that is a whole task: one release in place of the task."""


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
        (LABELS, {}, [RELEASED, {"order", "drawn"}, {"prior_from"}]),
        (LABELS, {"answers": 200_000}, [RELEASED, {"answers"}]),
        (LABELS, {"answers": 10_000, "ensemble": 100}, [RELEASED, {"order", "shots", "drawn"}, {"prior_from"}]),
        (LABELS, {"shots": 40, "ensemble": 200}, [RELEASED, {"order", "shots", "drawn"}, {"prior_from"}]),
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


def several(*texts: str) -> CalibratedPlan:
    """One plan of these plans' tasks, each named and asked a little differently."""
    plan, tasks = yaml.safe_load(LABELS), {}
    for number, text in enumerate(texts):
        for name, task in yaml.safe_load(text)["tasks"].items():
            labels = {"labels": [f"{label}-{number}" for label in task["labels"]]} if "labels" in task else {}
            tasks[f"{name}-{number}"] = task | labels | {"answers": task["answers"] + number}
    return calibrate(parse_plan(plan | {"tasks": tasks}), SIZE)


class FullSearch:
    """Each change calibrated by itself, whether it is shown or not."""

    def __init__(self, calibrated: CalibratedPlan) -> None:
        self.public_size = calibrated.public_size

    def least_noise(self, plan: Plan) -> Mapping[str, TaskNoise]:
        return least_noise(plan, self.public_size)

    rough_noise = least_noise


@pytest.mark.lengthy
@pytest.mark.parametrize("language_model", [None, True])
@pytest.mark.parametrize("texts", [(LABELS, LABELS), (LABELS, WORDS), (LABELS, WORDS, LABELS)])
def test_plans_of_several_tasks_get_the_proposals_of_a_full_search(
    texts: Sequence[str], language_model: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated = several(*texts)
    found = proposals(calibrated, language_model=language_model)
    monkeypatch.setattr("service.answering.plans.proposals.Variants", FullSearch)
    assert found == proposals(calibrated, language_model=language_model)
    assert len(found) > len(texts)


def test_beside_other_tasks_what_is_shown_is_calibrated_and_what_is_screened_is_near() -> None:
    """Screening misses or tries in vain only a change that is within 5 % of being wanted, by its noise."""
    calibrated = several(LABELS, LABELS, LABELS)
    variants, shown = Variants(calibrated), proposals(calibrated)
    assert len(shown) == 9
    for proposal in shown:
        plan = adopted(calibrated.plan, proposal)
        full, noise, rough = least_noise(plan, SIZE), variants.least_noise(plan), variants.rough_noise(plan)
        seen = describe(plan.tasks[proposal.task], full[proposal.task], SIZE)
        if not proposal.lines:
            assert seen.gives in proposal.why
        elif "order" in proposal.lines:
            assert seen.slots_for_95_percent is not None
            assert f"{math.ceil(seen.slots_for_95_percent)} of {seen.ensemble} slots must agree" in proposal.why
        multipliers = [
            [each.mechanism.noise_multiplier for each in found.values()]  # type: ignore[union-attr]
            for found in (full, noise, rough)
        ]
        assert multipliers[1] == pytest.approx(multipliers[0], rel=3e-3)
        assert multipliers[2] == pytest.approx(multipliers[0], rel=0.05)


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
    made = proposals(planned(LABELS, **nearest), language_model=True)
    kinds = [set(yaml.safe_load(one.lines) or ()) for one in made]
    assert kinds == [RELEASED, {"prior_from"}]
    assert proposals(planned(LABELS), embeds=False) == []
    (sentences,) = proposals(planned(WORDS, **nearest, slots="quote"))
    assert "mechanism" in sentences.lines
    assert proposals(pasted(WORDS, sentences, **nearest, slots="quote")) == []


def test_quotes_are_not_proposed_to_an_engine_whose_slots_quote_already() -> None:
    kinds = [set(yaml.safe_load(one.lines)) for one in proposals(planned(WORDS), language_model=False)]
    assert kinds == [{"order", "drawn"}]


def test_sentences_are_proposed_to_slots_that_quote_and_need_what_is_stated() -> None:
    nearest = {"order": "nearest", "drawn": 16}
    (proposal,) = proposals(planned(WORDS, **nearest), language_model=False)
    assert proposal.lines == "mechanism: {type: common_sentences}"
    then = preview(pasted(WORDS, proposal, **nearest)).tasks["reply"]
    assert f"one that {then.slots_for_95_percent:.0f} of 200 slots share, word for word" in proposal.why
    assert not [one for one in proposals(planned(WORDS, **nearest), language_model=True) if "mechanism" in one.lines]
    drowned = proposals(planned(WORDS, **nearest, answers=20_000), language_model=False)
    assert not [one for one in drowned if "mechanism" in one.lines]


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


def test_labels_come_first_from_one_release_alone() -> None:
    for changes in ({}, {"answers": 200_000}, {"order": "nearest", "drawn": 16}):
        first = proposals(planned(LABELS, **changes))[0]
        assert first.lines == ""
        then = pasted(LABELS, first, **changes)
        (task,) = then.plan.tasks.values()
        assert (task.once, task.mechanism.type, task.share) == (True, "softmax_regression", 1)
        assert preview(then).tasks["team"].gives in first.why
        (measuring,) = proposals(then)
        assert measuring.lines == "mechanism: {type: softmax_regression, measured_on: 0.2}"
        measured = preview(calibrate(adopted(then.plan, measuring), then.public_size)).tasks["team"].measured
        assert measured is not None
        assert f"± {100 * measured.standard_error:.1f} points" in measuring.why
        assert proposals(calibrate(adopted(then.plan, measuring), then.public_size)) == []  # nothing is left to propose
    few = yaml.safe_load(LABELS) | {"budget": {"epsilon": 0.002, "delta": 1e-5}}
    assert not [one for one in proposals(calibrate(parse_plan(few), 160)) if one.tasks]  # noise leaves next to nothing


def test_a_release_that_the_plan_has_is_weighed_at_no_cost_and_not_proposed_again() -> None:
    plan = yaml.safe_load(LABELS)
    first = next(one for one in proposals(planned(LABELS)) if one.tasks and one.lines)
    plan["tasks"] |= yaml.safe_load(first.tasks)
    made = proposals(calibrate(parse_plan(plan), SIZE))
    (proposal,) = [one for one in made if "prior_from" in one.lines]
    assert (proposal.lines, proposal.tasks) == ("prior_from: team-weights", "")
    assert not [one for one in made if one.tasks]
    plan["tasks"]["team-weights"]["labels"] = ["red", "blue"]  # the release of other labels is not a prior
    assert not [one for one in proposals(calibrate(parse_plan(plan), SIZE)) if one.lines == proposal.lines]


ROOT = DOCS.parent
KEEP_LONG = {"plan-smollm2.yaml", "samsum-model.yaml", "sroie-model.yaml"}
"""Plans whose tokens take many seconds to calibrate."""


def every_plan() -> list[Any]:
    """All distinct plans of the repository that people read, and those that most tests use."""
    folders = ("examples", "service/serving/synthetic", "research/studies")
    files = {file: file.read_text() for folder in folders for file in sorted((ROOT / folder).rglob("*.yaml"))}
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    files |= {Path(f"{page.name}-{number}"): text for page in pages for number, text in enumerate(blocks(page, "yaml"))}
    mechanisms = ("embedding_mean", "keyword_joint_em, k: 3", "keyword_ptr, k_min: 1, k_max: 4", "common_sentences")
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
