"""Drafts of plans: their text, the lines of their problems, and their curves."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from accounting.plans.plan import CalibratedPlan, PlanError, PlanProblem, calibrate_plan, load_plan
from service.operations import plan_drafts
from service.operations.plan_curves import over_epsilon
from service.operations.plan_drafts import located
from service.operations.roles import Actor
from service.operations.signed_plans import as_text
from tests.service.answering import topic_shop
from tests.service.conftest import PLAN, TEXT_PLAN


def test_texts_of_several_lines_keep_their_lines(calibrated: CalibratedPlan) -> None:
    text = TEXT_PLAN.format(epsilon=2, answers=5, mechanism="type: embedding_mean").replace(
        'query: "{text}:"', 'query: "Toy: {text}\\nStory:", instruction: "Write.\\nBriefly."'
    )
    plan = load_plan(text)
    document = calibrated.model_copy(update={"plan": plan}).model_dump_json()
    assert "query: |-" in as_text(document)
    assert load_plan(as_text(document)) == plan


@pytest.mark.model
def test_topics_are_embedded_by_the_packaged_model_unless_another_is_given(tmp_path: Path) -> None:
    records, admin = topic_shop.opened(tmp_path, topics=None), Actor("a", "a", "account", "admin")
    text = topic_shop.PLAN.replace("TOPICS", topic_shop.BY_SIMILARITY)
    draft = plan_drafts.open_(admin, records, topic_shop.NAME, text)
    assert [problem.key for problem in draft.work_out()] == ["tasks.mood.topics"]  # uploaded with another model
    assert {len(centres) for centres in draft.work_out(topic_shop.embed).calibrated.centres.values()} == {2}
    empty = topic_shop.opened(tmp_path / "empty", topics=None, some=())
    draft = plan_drafts.open_(admin, empty, topic_shop.NAME, text)
    assert {len(centres) for centres in draft.work_out().calibrated.centres.values()} == {2}


def test_a_plan_without_a_similar_one_has_no_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = Mock(side_effect=PlanError(("", "no noise is enough")))
    monkeypatch.setattr("service.operations.plan_curves.least_noise", refuse)
    assert over_epsilon(calibrate_plan(load_plan(PLAN), 60)) is None


@pytest.mark.parametrize(
    ("key", "line"), [("tasks.a.labels.1", 5), ("tasks.a.labels.9", 3), ("tasks.b", 2), ("budget", None), ("", None)]
)
def test_problems_are_located(key: str, line: int | None) -> None:
    text = "knowledge_base: x\ntasks:\n  a: {labels:\n    [one,\n    two]}\n"
    assert located([PlanProblem(key, "wrong")], text) == [PlanProblem(key, "wrong", line)]
    assert located([PlanProblem(key, "wrong", 9)], "a: [")[0].line == 9
