"""Made-up people and the questions about them."""

import pytest

from accounting.plans.plan import load_plan
from research.leaks.canaries import ATTACKS, CONTEXT_LEAK, MEMBERSHIP, SECRET, canary
from service.answering.queries import check_query
from tests.service.conftest import PLAN, TEXT_PLAN

LABELS = load_plan(PLAN).tasks["colour"]
TEXTS = load_plan(TEXT_PLAN.format(mechanism="type: keyword_joint_em, k: 2", epsilon=4, answers=9)).tasks["story"]
USUAL, OTHER = {"text": "a ripe tomato", "label": "Red"}, {"text": "the deep sea", "label": "blue"}


@pytest.mark.parametrize("task", [LABELS, TEXTS], ids=["labels", "texts"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_questions_differ_and_rows_are_whole(task, attack: str) -> None:
    made = canary(attack, task, "text", USUAL, OTHER, rows=3, questions=7)
    assert len({row["text"] for row in made.rows}) == 3
    assert all(set(row) == {"text", "label"} for row in made.rows)
    assert len({check_query(task, dict(asked))["text"] for asked in made.questions}) == 7


def test_the_person_has_another_label_than_usual() -> None:
    made = canary(MEMBERSHIP, LABELS, "text", USUAL, OTHER, rows=1, questions=1)
    assert made.rows == [{"text": "a ripe tomato", "label": "blue"}]
    assert made.questions == [{"text": "a ripe tomato"}]


def test_the_secret_is_in_the_row_and_the_question_names_it_beside_another() -> None:
    """Released words may be those of the question only."""
    made = canary(CONTEXT_LEAK, TEXTS, "text", USUAL, OTHER, rows=1, questions=1)
    assert SECRET in made.rows[0]["label"]
    assert SECRET in made.questions[0]["text"]
