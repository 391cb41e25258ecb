from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from service.engines.task import Prompt, TaskSpec
from service.engines.vllm.balanced_reference import balanced, public_slots
from service.engines.vllm.label_scoring import calibrated

LABELS = tuple("ABCDE")
TEXTS = tuple({"text": f"text {number}"} for number in range(8))
PROMPT = Prompt("", "{text} {note} {label}", "{text}")


def task(labels=LABELS, texts=TEXTS, shots=4) -> TaskSpec:
    return TaskSpec("kb.t@1", labels, PROMPT, shots=shots, calibration=texts, own_reference=0.0)


@pytest.mark.parametrize("shots", [1, 2, 4, 50])
@pytest.mark.parametrize("labels", [LABELS, LABELS[:2], tuple(map(str, range(300)))])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:2]])
def test_every_label_is_shown_last_beside_the_same_texts(labels, texts, shots):
    made = public_slots(task(labels, texts, shots))
    assert len(made) % len(labels) == 0
    for first in range(0, len(made), len(labels)):
        pair = made[first : first + len(labels)]
        assert [one.label for one in pair] == [*range(len(labels))]
        for one in pair:
            *others, last = (exemplar.fields["label"] for exemplar in one.slot)
            assert last == labels[one.label]
            assert last not in others
            shown = [exemplar.fields["text"] for exemplar in one.slot]
            assert len(shown) == len({*shown}) == min(shots, len(texts) - 1)
            assert one.query["text"] not in shown
            assert shown == [exemplar.fields["text"] for exemplar in pair[0].slot]


def test_the_others_stand_under_all_other_labels_in_turn():
    counts = Counter(
        (one.label, exemplar.fields["label"]) for one in public_slots(task()) for exemplar in one.slot[:-1]
    )
    assert len(counts) == len(LABELS) * (len(LABELS) - 1)
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_a_task_asks_a_bounded_number_of_prompts():
    for labels in (2, 5, 16, 100, 1000):
        made = public_slots(task(tuple(map(str, range(labels)))))
        assert len(made) <= max(labels, 128)
        assert len(made) >= min(128 - labels, labels * 8 * 7)


def test_a_field_that_questions_lack_is_empty():
    assert all(one.slot[0].fields["note"] == "" for one in public_slots(task()))


def test_the_pull_of_a_shown_label_stays_and_the_favour_of_the_form_goes():
    """A model that favours A whatever it is shown, and triples the label that it is shown last."""
    favour = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
    slots = public_slots(task())

    def scores_beside(label: int) -> np.ndarray:
        scores = favour * np.where(np.arange(5) == label, 3.0, 1.0)
        return scores / scores.sum()

    made = balanced(slots, [scores_beside(one.label) for one in slots])
    assert made.scores / made.scores.sum() == pytest.approx(favour / favour.sum())
    assert made.repeats == pytest.approx(1 / 5)  # three times as much as B's is still less than A's
    assert calibrated(scores_beside(3), made.scores) == pytest.approx(np.array([1, 1, 1, 3, 1]) / 7)
    repeating = balanced(slots, [np.eye(5)[one.label] for one in slots])
    assert repeating.repeats == 1
