"""``dpicl eval`` with other numbers of slots, exemplars and candidates, and the figures of it."""

import csv
import json
from pathlib import Path

import pytest

from accounting.plans.plan import PlanError, load_plan
from research.evaluation.labels import LabelScores
from research.evaluation.sweeps import Curves, combinations, plot, varied
from tests.service.conftest import PLAN, TEXT_PLAN
from tests.service.shell import Shell


def test_every_combination_is_measured_once() -> None:
    assert combinations({"ensemble": [5, 10, 5], "shots": [1, 2], "drawn": []}) == [
        {"ensemble": 5, "shots": 1},
        {"ensemble": 5, "shots": 2},
        {"ensemble": 10, "shots": 1},
        {"ensemble": 10, "shots": 2},
    ]
    assert combinations({}) == [{}]


def test_a_plan_with_other_numbers_is_checked_as_any() -> None:
    plan = load_plan(PLAN)
    changed = varied(plan, "colour", {"ensemble": 30, "shots": 1}).tasks["colour"]
    assert (changed.ensemble, changed.shots, plan.tasks["colour"].ensemble) == (30, 1, 10)
    with pytest.raises(ValueError, match="has no candidates"):
        varied(plan, "colour", {"candidates": 3})
    with pytest.raises(PlanError, match="drawn"):
        varied(plan, "colour", {"drawn": 8})
    once = PLAN[: PLAN.index("    shots")] + "    release: once\n    mechanism: {type: prototypes}"
    with pytest.raises(ValueError, match="draws no slots"):
        varied(load_plan(once), "colour", {"ensemble": 3})
    texts = load_plan(TEXT_PLAN.format(mechanism="type: embedding_mean", epsilon=4, answers=9))
    assert varied(texts, "story", {"candidates": 9}).tasks["story"].candidates == 9


def _row(method: str, ensemble: int, accuracy: float, epsilon: float | None = None, answers: int = 5) -> LabelScores:
    answers = answers if epsilon else None
    return LabelScores(method, epsilon, answers, "", "", 0.0, accuracy, 1.0, ensemble=ensemble)


CURVES = Curves("accuracy", "standard_error", "accuracy, %", lambda row: row.method, lambda row: row.method == "free")


def test_a_figure_has_a_line_for_each_epsilon_and_a_level_for_what_is_free() -> None:
    rows = [
        _row(method, ensemble, 50.0 + ensemble, epsilon)
        for ensemble in (40, 10)
        for method, epsilon in (("free", None), ("no noise", None), ("private", 1.0), ("private", 3.0))
    ]
    (axes,) = plot(rows, "title", "ensemble", CURVES).axes
    _, labels = axes.get_legend_handles_labels()
    assert sorted(labels) == ["free", "no noise", "private, ε = 1", "private, ε = 3"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "40"]
    (line,) = (found.lines[0] for found in axes.containers if found.get_label() == "private, ε = 3")
    assert line.get_xydata().tolist() == [[10, 60], [40, 90]]


def test_what_also_varies_gets_lines_of_its_own() -> None:
    rows = [_row("private", n, 60.0, 1.0, answers) for n in (10, 40) for answers in (5, 50)]
    (axes,) = plot(rows, "title", "answers", CURVES).axes
    assert axes.get_xlabel() == "answers of the plan"
    assert sorted(axes.get_legend_handles_labels()[1]) == ["private, ε = 1, ensemble 10", "private, ε = 1, ensemble 40"]
    assert plot(rows, "title", "prompts", CURVES).axes[0].get_xlabel().startswith("prompts")
    with pytest.raises(ValueError, match="nothing varies"):
        plot(rows, "title", "shots", CURVES)


@pytest.mark.slow
@pytest.mark.model
def test_a_sweep_has_a_table_for_each_combination(dpicl: Shell, dataset: Path, plan_file: Path) -> None:
    table, picture = dataset / "table.csv", dataset / "picture.png"
    options = ["--epsilon", 8, "--answers", 5, "--draws", 2, "--queries", 6, "--ensemble", 4, "--ensemble", 10]
    command = ["eval", dataset, "--plan", plan_file, *options, "--shots", 1]
    rows = json.loads(dpicl.ok(*command, "--csv", table, "--png", picture, "--json"))
    assert [(row["ensemble"], row["shots"]) for row in rows] == [(4, 1)] * 10 + [(10, 1)] * 10
    noise = {row["ensemble"]: row["sigma"] for row in rows if row["epsilon"]}
    assert 0 < noise[4] < noise[10]  # more slots draw more exemplars
    assert picture.read_bytes().startswith(b"\x89PNG")
    with table.open() as stream:
        assert [row["ensemble"] for row in csv.DictReader(stream)] == ["4"] * 10 + ["10"] * 10
    said = dpicl.ok(*command)
    assert "ensemble 4, shots 1" in " ".join(said.split())
    assert "ensemble 10, shots 1" in " ".join(said.split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--ensemble", 3, "--fit"), "--fit fits one plan: leave --ensemble out"),
        (("--against", "answers"), "name the figure's file with --png"),
        (("--against", "answers", "--answers", 5, "--png", "x.png"), "repeat --answers with other values"),
        (("--candidates", 3), "colour answers with a label, and has no candidates"),
    ],
)
@pytest.mark.model
def test_a_sweep_that_does_not_fit_is_refused(
    options: tuple[object, ...], reason: str, dpicl: Shell, dataset: Path, plan_file: Path
) -> None:
    assert reason in dpicl.fails("eval", dataset, "--plan", plan_file, *options)
