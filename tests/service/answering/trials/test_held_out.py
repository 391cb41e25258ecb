"""Accuracies on rows that were held out: who is asked, what is drawn, and the standard error."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import Exemplar, Row
from service.answering.stages import Stages
from service.answering.trials.held_out import (
    FEWEST_UNITS,
    Accuracy,
    HeldOut,
    HeldOutAccuracy,
    Split,
    UnmeasurableError,
    draw_from,
)
from tests.service.conftest import PLAN, TEXT_PLAN, Embedding, MajorityEngine, nearly_noiseless

QUOTES = PLAN.replace("shots: 2", "shots: 1\n    drawn: 6\n    order: nearest\n    slots: quote")
QUOTES = QUOTES.replace("vote: hard", "vote: hard, decide: argmax").replace("epsilon: 4", "epsilon: 80")
ONCE = f"{PLAN[: PLAN.index('    shots')]}    release: once\n    mechanism: {{type: softmax_regression}}"


def scattered(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors: equal texts are equal, different ones hardly alike, and red and blue ones are apart."""
    vectors = []
    for text in texts:
        noise = np.random.default_rng(list(text.encode())).normal(size=16) / 4
        vectors.append(noise + ("red" in text) * 2 * np.eye(16)[0] + ("blue" in text) * 2 * np.eye(16)[1])
    array = np.array(vectors, np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def rows(units: int, each: int = 1, *, random: bool = False) -> list[Row]:
    drawn = np.random.default_rng(1).random(units) < 0.5
    made = []
    for unit in range(units):
        label = "red" if drawn[unit] else "blue"
        text = f"thing {unit}" if random else f"{label} thing {unit}"
        made += [Row(len(made), f"u{unit}", {"text": text, "label": label}) for _ in range(each)]
    return made


def measure(
    plan: str | CalibratedPlan, labelled: Sequence[Row], engine: MajorityEngine | None = None
) -> HeldOutAccuracy:
    calibrated = nearly_noiseless(load_plan(plan)) if isinstance(plan, str) else plan
    held_out = HeldOut(Stages(MajorityEngine(), Embedding(scattered), 60.0), labelled, "text")
    return asyncio.run(held_out.measure(calibrated, next(iter(calibrated.plan.tasks))))


@pytest.mark.parametrize("plan", [QUOTES, ONCE])
def test_labels_that_texts_name_are_right(plan: str) -> None:
    found = measure(plan, rows(100))
    assert found.accuracy.share > 85
    assert found.accuracy.rows == 20
    assert (found.used, found.planned) == (60, 60)
    assert found.zero_shot.share < 80  # the engine knows no colours


def test_no_unit_is_both_asked_and_drawn() -> None:
    """Each unit has the same text twice, and a label at random: an answer that drew its own unit would know it."""
    found = measure(QUOTES, rows(300, each=2, random=True))
    assert 35 < found.accuracy.share < 65


def test_units_are_held_out_whole_and_the_same_every_time() -> None:
    labelled = rows(50, each=3)
    split = Split.of(labelled)
    held = {row.unit_id for row in split.held}
    kept = {row.unit_id for unit in split.kept for row in unit}
    assert (len(held), len(kept), len(split.held)) == (10, 40, 30)
    assert not held & kept
    assert {row.unit_id for row in Split.of(labelled[::-1]).held} == held
    assert len(Split.of(labelled, 7).held) == 7
    assert {len(unit) for unit in split.kept} == {3}


def test_too_few_units_are_not_measured() -> None:
    with pytest.raises(UnmeasurableError, match="fewer than 20 units"):
        measure(QUOTES, rows(FEWEST_UNITS - 1, each=9))


def test_answers_in_words_are_not_measured() -> None:
    plan = TEXT_PLAN.format(mechanism="type: keyword_joint_em, k: 2", epsilon=80, answers=2)
    with pytest.raises(UnmeasurableError, match="neither right nor wrong"):
        measure(plan, rows(100))


def test_a_label_that_the_plan_lacks_is_never_right() -> None:
    labelled = [Row(row.number, row.unit_id, {**row.fields, "label": "green"}) for row in rows(100)]
    found = measure(QUOTES, [*labelled[:50], *rows(100)[50:]])
    others = sum(row.fields["label"] == "green" for row in Split.of([*labelled[:50], *rows(100)[50:]]).held)
    assert 0 < found.accuracy.share <= 100 * (20 - others) / 20
    assert others > 0


@pytest.mark.parametrize(
    ("plan", "units", "said"),
    [
        (QUOTES, 100, ""),
        (QUOTES, 50, "An answer draws 60 exemplars and the rows have 40"),
        (ONCE, 50, "Made of 40 exemplars and not of 60, with as much less noise"),
        (PLAN, 50, ""),  # slots draw 20 of the 40 that there are
    ],
)
def test_too_few_exemplars_are_noted(plan: str, units: int, said: str) -> None:
    caution = measure(plan, rows(units)).caution
    assert caution.startswith(said)
    assert bool(caution) == bool(said)


def test_more_exemplars_than_planned_are_left_out() -> None:
    assert measure(QUOTES, rows(400)).used == 60


@pytest.mark.parametrize("sampling", ["units", "blocks"])
def test_slots_draw_as_many_exemplars_as_planned(sampling: str) -> None:
    """Of 40 exemplars that stand in for 600, an answer draws the ten that ten slots of one expect."""
    plan = PLAN.replace("shots: 2", f"shots: 1\n    max_exemplars: 40\n    sampling: {sampling}")
    calibrated = calibrate_plan(load_plan(plan), 600)
    task, noise = calibrated.plan.tasks["colour"], calibrated.noise["colour"]
    units = [(Exemplar({"text": str(i), "label": "red"}),) for i in range(40)]
    drawn = [sum(map(len, draw_from(units, task, noise, 600, None))) for _ in range(600)]
    assert np.mean(drawn) == pytest.approx(10, abs=0.5)


def test_noise_is_the_plan_s() -> None:
    """The same rows at a large and at a small ε: only the noise that was planned makes the difference."""
    figures = [
        measure(calibrate_plan(load_plan(QUOTES.replace("epsilon: 80", f"epsilon: {e}")), 60), rows(100)).accuracy.share
        for e in (20, 0.05)
    ]
    assert figures[0] > 90
    assert figures[1] < 75


def test_noise_of_a_release_is_the_plan_s_beside_the_exemplars_there_are() -> None:
    """The same rows and the same noise: planned for a hundred times as many exemplars, it hides a hundredth as much."""
    other = {"red": "blue", "blue": "red"}  # which only exemplars know
    swapped = [Row(row.number, row.unit_id, {**row.fields, "label": other[row.fields["label"]]}) for row in rows(100)]
    plan = load_plan(ONCE.replace("epsilon: 4", "epsilon: 0.2"))
    sizes = 80, 8000, 8_000_000  # beside the last, no mechanism would draw so little
    alone, *less = (measure(calibrate_plan(plan, size), swapped).accuracy.share for size in sizes)
    assert alone < 50
    assert min(less) > 90


def test_the_standard_error_is_that_of_independent_units() -> None:
    right = np.random.default_rng(3).random((1, 400)) < 0.7
    apart = Accuracy.of(right, [str(i) for i in range(400)])
    assert apart.error == pytest.approx(100 * right.std(ddof=1) / 20)
    assert apart.share == pytest.approx(100 * right.mean())
    # Each person's ten rows are alike: they are worth one.
    alike = np.repeat(right[:, :40], 10, axis=1)
    together = Accuracy.of(alike, [str(i // 10) for i in range(400)])
    assert together.error == pytest.approx(100 * right[:, :40].std(ddof=1) / np.sqrt(40))


def test_what_differs_between_releases_is_part_of_the_error() -> None:
    rng = np.random.default_rng(4)
    right = rng.random((3, 300)) < np.array([[0.6], [0.7], [0.8]])
    one = Accuracy.of(right.mean(axis=0, keepdims=True), [str(i) for i in range(300)])
    several = Accuracy.of(right, [str(i) for i in range(300)])
    assert several.error**2 == pytest.approx(one.error**2 + (100 * right.mean(axis=1).std(ddof=1)) ** 2)
