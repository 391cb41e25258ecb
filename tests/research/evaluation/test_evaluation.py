"""``dpicl eval`` on a small data set with the real embedder and engine."""

import asyncio
import csv
import itertools
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from scipy import stats

import accounting.plans.mechanisms
from accounting.plans.mechanisms import Calibration, RnmGaussianMechanism
from accounting.plans.plan import load_plan, parse_plan
from aggregation.softmax_regression import SoftmaxRegression
from research.evaluation.dataset import NAME, Dataset
from research.evaluation.labels import LabelEvaluator, LabelScores, Votes, plot, score, sureness
from research.evaluation.tables import Grid, read_csv
from service.sources.reading import Reading
from tests.service.conftest import PLAN, embed
from tests.service.shell import Shell


@pytest.mark.slow
def test_the_table_the_file_and_the_picture(dpicl: Shell, dataset: Path, plan_file: Path) -> None:
    table, picture = dataset / "table.csv", dataset / "picture.png"
    options = ["--epsilon", 8, "--answers", 5, "--draws", 4, "--csv", table, "--png", picture, "--json"]
    results = json.loads(dpicl.ok("eval", dataset, "--plan", plan_file, *options))
    assert [(r["method"], r["vote"], r["decide"]) for r in results] == [
        ("zero-shot", "", ""),
        ("one slot of 2", "hard", ""),
        ("aggregate, no noise", "hard", ""),
        ("aggregate, no noise", "soft", ""),
        *itertools.product(["private"], ["hard", "soft"], ["argmax", "argmax, prior", "posterior"]),
    ]
    assert results[0]["accuracy"] >= 70  # nothing is drawn: the words themselves point to kitchen or workshop
    assert all(r["epsilon"] == 8 and r["answers"] == 5 and r["sigma"] > 0 for r in results[4:])
    with table.open() as stream:
        assert [float(row["accuracy"]) for row in csv.DictReader(stream)] == [
            pytest.approx(r["accuracy"], abs=0.01) for r in results
        ]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [asdict(row) for row in read_csv(table, LabelScores)] == [
        {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()} for row in results
    ]
    once = replace(read_csv(table, LabelScores)[0], method="prototypes", epsilon=0.5)
    drawn = plot([*read_csv(table, LabelScores), once], "both")
    assert [axes.get_title() for axes in drawn.axes] == ["5 answers", "any number of answers"]
    assert "aggregate, no noise" in dpicl.ok("eval", dataset, "--plan", plan_file, "--epsilon", 8, "--answers", 5)


@pytest.mark.slow
def test_too_few_training_rows_for_the_slots_are_refused(dpicl: Shell, dataset: Path, plan_file: Path) -> None:
    train = dataset / "train.jsonl"
    train.write_text("".join(train.read_text().splitlines(keepends=True)[:3]))
    said = " ".join(dpicl.fails("eval", dataset, "--plan", plan_file).split())
    assert "3 training rows" in said
    assert "need 20" in said
    assert "lower `ensemble` or `shots`" in said


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["prototypes", "softmax_regression"])
def test_a_one_time_release_is_measured(mechanism: str, dpicl: Shell, dataset: Path, plan_file: Path) -> None:
    plan = plan_file.read_text()
    plan_file.write_text(f"{plan[: plan.index('    shots')]}    release: once\n    mechanism: {{type: {mechanism}}}")
    picture = dataset / "picture.png"
    options = ["--epsilon", 0.01, "--epsilon", 20, "--draws", 10, "--png", picture]
    results = json.loads(dpicl.ok("eval", dataset, "--plan", plan_file, *options, "--json"))
    assert [(r["method"], r["epsilon"], r["answers"]) for r in results] == [
        ("zero-shot", None, None),
        (f"{mechanism}, no noise", None, None),
        (mechanism, 0.01, None),
        (mechanism, 20, None),
    ]
    assert results[1]["accuracy"] >= 95  # the same words, for another use
    assert results[3]["accuracy"] > 70
    assert results[2]["sigma"] > 100 * results[3]["sigma"]
    assert all(0 <= r["calibration_error"] <= 100 for r in results[1:])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "any number" in dpicl.ok("eval", dataset, "--plan", plan_file, "--epsilon", 8, "--draws", 2)


@pytest.mark.slow
def test_a_release_that_measures_itself_is_made_of_the_rest(
    dpicl: Shell, dataset: Path, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its accuracy on test rows is that of a release which has not learnt from all training rows."""
    pack, packed = SoftmaxRegression.pack, []
    monkeypatch.setattr(
        SoftmaxRegression, "pack", lambda self, units: (packed.append(rows := [*units]), pack(self, rows))[1]
    )
    plan = plan_file.read_text()
    for mechanism in ("{type: softmax_regression}", "{type: softmax_regression, measured_on: 0.5}"):
        plan_file.write_text(f"{plan[: plan.index('    shots')]}    release: once\n    mechanism: {mechanism}")
        dpicl.ok("eval", dataset, "--plan", plan_file, "--epsilon", 8, "--draws", 2)
    every, rest = map(len, packed)
    assert 0 < rest < every


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "unsure"), [("prototypes", 0.5), ("softmax_regression", 50)])
def test_a_fitted_temperature_makes_scores_probabilities(
    mechanism: str, unsure: float, dpicl: Shell, dataset: Path, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are right, but the plan's temperature makes them unsure."""
    monkeypatch.setattr(accounting.plans.mechanisms, "FEWEST_ROWS", 10)
    plan = plan_file.read_text()
    once = f"release: once\n    mechanism: {{type: {mechanism}, temperature: {unsure}}}"
    plan_file.write_text(f"{plan[: plan.index('    shots')]}    {once}")
    options = ["--epsilon", 20, "--draws", 4, "--fit"]
    found = json.loads(dpicl.ok("eval", dataset, "--plan", plan_file, *options, "--json"))
    unfitted, fitted = found["rows"][-2:]
    assert (unfitted["decide"], fitted["decide"]) == ("", "fitted")
    assert unfitted["accuracy"] == fitted["accuracy"]
    assert fitted["calibration_error"] < unfitted["calibration_error"] / 2
    assert found["temperature"] < unsure / 2
    printed = dpicl.ok("eval", dataset, "--plan", plan_file, *options)
    written = yaml.safe_load(printed[printed.index("temperature:") :])
    assert written.keys() == {"temperature", "fitted_to"}
    document = yaml.safe_load(plan_file.read_text())
    document["tasks"]["colour"]["mechanism"] = {"type": mechanism, **written, "fitted_to": 200}
    assert parse_plan(document).tasks["colour"].mechanism.fitted == 200


@pytest.mark.slow
def test_synthetic_exemplars_are_chosen_once_and_measured(dpicl: Shell, dataset: Path, plan_file: Path) -> None:
    """One candidate of each label is nearer to the units than the other."""
    plan = plan_file.read_text()
    candidates = [("noodles", "kitchen"), ("a cloud", "kitchen"), ("a saw", "workshop"), ("a poem", "workshop")]
    listed = "".join(f"\n      - {{text: I bought {what}., label: {label}}}" for what, label in candidates)
    once = f"type: synthetic_exemplars\n      per_label: 1\n      candidates:{listed}"
    plan_file.write_text(f"{plan[: plan.index('    shots')]}    release: once\n    mechanism:\n      {once}\n")
    options = ["--epsilon", 0.01, "--epsilon", 20, "--draws", 20, "--json"]
    results = json.loads(dpicl.ok("eval", dataset, "--plan", plan_file, *options))
    assert [(r["method"], r["epsilon"]) for r in results] == [
        ("zero-shot", None),
        ("synthetic_exemplars, no noise", None),
        ("synthetic_exemplars", 0.01),
        ("synthetic_exemplars", 20),
    ]
    assert results[2]["calibration_error"] != results[3]["calibration_error"]  # where noise chooses, others are shown
    assert results[3]["accuracy"] == results[1]["accuracy"]  # the votes are clear
    assert results[2]["sigma"] > 100 * results[3]["sigma"]
    assert "nothing to fit" in dpicl.fails("eval", dataset, "--plan", plan_file, "--fit")


def test_a_missing_plotting_library_is_explained(dpicl: Shell, dataset: Path, plan_file: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = ["--epsilon", 8, "--answers", 5, "--draws", 4, "--png", dataset / "picture.png"]
    assert "pip install 'dp-icl[research]'" in dpicl.fails("eval", dataset, "--plan", plan_file, *options)


@pytest.mark.slow
def test_a_fitted_calibration_is_measured_and_printed(
    dpicl: Shell, dataset: Path, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--epsilon", 8, "--answers", 5, "--draws", 2, "--fit"]
    found = json.loads(dpicl.ok("eval", dataset, "--plan", plan_file, *options, "--json"))
    assert [row["vote"] for row in found["rows"] if row["decide"] == "posterior, fitted"] == ["hard", "soft"]
    # What is printed can be pasted: the same block, and a plan that has it is read.
    printed = dpicl.ok("eval", dataset, "--plan", plan_file, *options)
    written = yaml.safe_load(printed[printed.index("calibration:") :])["calibration"]
    assert written.keys() == {"prior", "decisiveness", "lead", "echo", "label_weights"}
    document = yaml.safe_load(plan_file.read_text())
    document["tasks"]["colour"]["mechanism"] = {"type": "rnm_gaussian", "calibration": found["calibration"]}
    assert parse_plan(document).tasks["colour"].mechanism.calibration is not None
    # Few rows do not make a probability of a score.
    assert parse_plan(document).tasks["colour"].mechanism.fitted is None
    monkeypatch.setattr(accounting.plans.mechanisms, "FEWEST_ROWS", 10)
    again = json.loads(dpicl.ok("eval", dataset, "--plan", plan_file, *options, "--json"))["calibration"]
    assert again.pop("fitted_to") == len((dataset / "test.jsonl").read_text().splitlines())
    assert again.keys() == found["calibration"].keys()


@pytest.mark.parametrize("sampling", ["units", "blocks"])
def test_slots_are_drawn_as_the_plan_states(dataset: Path, sampling: str, toy_engine) -> None:
    """Exemplars that once shared a slot share it whenever they are drawn if, and only if, the plan draws blocks."""
    drawn = []

    class Seeing:
        zero_shot = toy_engine.zero_shot

        async def contributions(self, task, query, slots, zero_shot):
            drawn.extend(frozenset(exemplar.fields["text"] for exemplar in slot) for slot in slots if slot)
            return await toy_engine.contributions(task, query, slots, zero_shot)

    plan = load_plan(
        PLAN.replace("[red, blue]", "[kitchen, workshop]").replace("shots: 2", f"shots: 2\n    sampling: {sampling}")
    )
    assert plan.tasks["colour"].sampling == sampling
    data = Dataset(dataset, plan, "colour", "text")
    with data.filled(embed) as store:
        asyncio.run(data.ask(store, Seeing(), embed))
    together = {frozenset(pair) for slot in drawn for pair in itertools.combinations(slot, 2)}
    apart = {pair for pair in together for slot in drawn if len(pair & slot) == 1}
    assert len(drawn) > 20
    assert together
    assert bool(apart) == (sampling == "units")


def test_accuracies_and_their_errors_are_right(tmp_path: Path) -> None:
    """Votes that leave no doubt, votes that are always wrong, and a prior that is always right."""
    sure = np.tile([1000.0, 0.0], (4, 1))
    public, bare = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], float), np.array([[0, 1]] * 4, float)
    votes = Votes(
        truth=np.array([0, 0, 0, 1]),
        zero_shot=public,
        single=np.array([1.0, 0.5, 0.5, 0.0]),
        hard=sure,
        soft=sure[:, ::-1],
        without_private={"zero-shot": bare, "public exemplars only": public},
    )
    plan = load_plan(PLAN)
    grid = Grid([8.0], [5], draws=5, prior_in_sigmas=0.0)
    calibrated = RnmGaussianMechanism(type="rnm_gaussian", calibration=Calibration(decisiveness=50))
    task = plan.tasks["colour"].model_copy(update={"ensemble": 1000, "mechanism": calibrated})
    plan = plan.model_copy(update={"tasks": {"colour": task}})
    (tmp_path / "train.jsonl").write_text("{}\n" * 6000)
    evaluator = LabelEvaluator(Dataset(tmp_path, plan, "colour", "text"))
    rows = evaluator.scores(votes, grid)
    argmax = [row for row in rows if row.decide in ("", "argmax")]
    found = {(row.method, row.vote): (row.accuracy, row.standard_error) for row in argmax}
    error = 100 * np.std([1, 1, 1, 0], ddof=1) / 2
    assert found["zero-shot", ""] == (25, pytest.approx(error))
    assert found["public exemplars only", ""] == (75, pytest.approx(error))
    assert found["one slot of 2", "hard"] == (50, pytest.approx(100 * np.std([1, 0.5, 0.5, 0], ddof=1) / 2))
    assert found["private", "hard"] == (75, pytest.approx(error))
    assert found["private", "soft"] == (25, pytest.approx(error))
    all_or_some = [score("all", np.ones(50)), score("none", np.zeros(50)), score("half", np.arange(50) % 2)]
    assert [row[6] for row in evaluator.table(all_or_some, "").rows] == ["100.0", "0.0", "50.0 ± 7.1"]
    # Where the votes leave no doubt, the posterior follows them, and is as sure as it is decisive.
    sure, wrong = [row for row in rows if row.decide == "posterior"]
    assert (sure.accuracy, wrong.accuracy) == (75, 25)
    assert sure.calibration_error == pytest.approx(25, abs=0.5)
    assert wrong.calibration_error == pytest.approx(75, abs=5)
    assert {row.accuracy_of_80 is None for row in argmax} == {True}


def test_sureness_against_a_count_by_hand() -> None:
    right = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 1, 1]], float)
    probability = np.array([[0.95, 0.91, 0.93, 0.85, 0.85], [0.65, 0.62, 0.35, 0.31, 1.0]])
    found = sureness(right, probability)
    # Right answers and what was expected, bin by bin: .3, .6, .8, .9.
    gaps = abs(1 - 0.66) + abs(1 - 1.27) + abs(1 - 1.7) + abs(3 - 3.79)
    assert found["calibration_error"] == pytest.approx(10 * gaps)
    assert (found["accuracy_of_80"], found["accuracy_of_50"]) == (pytest.approx(100 * 5 / 8), pytest.approx(80))


def test_the_error_by_chance_is_that_of_exact_probabilities() -> None:
    """All rows in one bin: the mean distance of a share from its expectation, whatever the number of draws."""
    probability = np.full((7, 400), 0.75)
    found = sureness(np.ones((7, 400)), probability)
    assert found["calibration_error"] == pytest.approx(25)
    share = np.arange(401)
    expected = 100 * stats.binom.pmf(share, 400, 0.75) @ abs(share / 400 - 0.75)
    assert found["error_by_chance"] == pytest.approx(expected, rel=0.25)  # 200 lots: 4.5 standard errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: (d / "test.jsonl").unlink(), "holds no test rows"),
        (lambda d: (d / "test.jsonl").write_text("{"), "test.jsonl: row 1: "),
        (
            lambda d: (d / "test.jsonl").write_text('{"text": "x", "label": "garden"}'),
            "test.jsonl: row 1, field 'label': is not among the task's labels",
        ),
        (lambda d: (d / "test.jsonl").write_text('{"text": 1, "label": "kitchen"}'), "field 'text': must be a string"),
        (lambda d: (d / "test.csv").touch(), "test.csv and"),
        pytest.param(
            lambda d: (d / "train.jsonl").write_text('{"id": "a", "text": "x", "label": "kitchen"}\n' * 20),
            "'unit_id': is not in this row, which has 'id', 'text', 'label'",
            marks=pytest.mark.model,
        ),
    ],
)
def test_bad_data_is_explained(dpicl: Shell, dataset: Path, plan_file: Path, change, message: str) -> None:
    change(dataset)
    assert message in dpicl.fails("eval", dataset, "--plan", plan_file)


def test_the_formats_of_an_upload_are_read(dataset: Path, plan_file: Path) -> None:
    plan = load_plan(plan_file.read_text())
    expected = Dataset(dataset, plan, "colour", "text")
    table = pa.Table.from_pylist([json.loads(line) for line in (dataset / "train.jsonl").read_text().splitlines()])
    (dataset / "train.jsonl").unlink()
    (dataset / "train").mkdir()
    pyarrow.parquet.write_table(table, dataset / "train" / "part-0.parquet")
    rows = "".join(f"{row['unit_id']};{row['text']};{row['label']};Größe\n" for row in expected.questions)
    (dataset / "test.jsonl").unlink()
    (dataset / "test.csv").write_bytes(f"unit_id;text;label;note\n{rows}".encode("cp1252"))
    given = Dataset(dataset, plan, "colour", "text", reading=Reading(encoding="cp1252", delimiter=";"))
    assert given.questions == [{**row, "note": "Größe"} for row in expected.questions]
    with given.filled(embed) as store:
        assert given.public_size == 40 == sum(len(unit) for unit in store.every_unit(NAME))


def test_an_unknown_task_is_explained(dpicl: Shell, dataset: Path, plan_file: Path) -> None:
    assert "has no task 'shape'; it has colour" in dpicl.fails("eval", dataset, "--plan", plan_file, "--task", "shape")


def test_questions_labels_are_read_as_the_plan_spells_them(dataset: Path, plan_file: Path) -> None:
    questions = (dataset / "test.jsonl").read_text()
    (dataset / "test.jsonl").write_text(questions.replace('"kitchen"', '"Kitchen "'))
    plan = load_plan(plan_file.read_text())
    data = Dataset(dataset, plan, "colour", "text")
    assert {row["label"] for row in data.questions} == {"kitchen", "workshop"}
    (dataset / "test.jsonl").write_text(questions.replace('"kitchen"', '"kitchenette"'))
    with pytest.raises(ValueError, match="row 1, field 'label': is not among"):
        _ = Dataset(dataset, plan, "colour", "text").questions
