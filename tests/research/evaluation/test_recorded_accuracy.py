"""``dpicl eval --record``: the accuracy of a signed task on public rows, for the overview."""

import json
import os
from pathlib import Path

import pytest

from accounting.ledger.events import AccuracyRecorded
from aggregation.rnm_gaussian import RnmGaussian
from service.engines.protocol import EngineInfo
from service.operations.accuracies import newest, record
from service.operations.roles import Actor
from service.records.engine_record import note_engine
from service.records.records import Records, open_records
from service.settings import Settings
from tests.service.shell import Shell, create

OTHER = """
  reply:
    kind: generate
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    response_field: label
    shots: 2
    ensemble: 10
    answers: 2
    mechanism: {type: keyword_ptr, k_min: 1, k_max: 3}
  second:
    kind: classify
    labels: [kitchen, workshop]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 2
    ensemble: 10
    answers: 2
    mechanism: {type: rnm_gaussian, vote: hard, prior_weight: 3}
"""


@pytest.fixture
def signed(dpicl: Shell, plan_file: Path) -> Records:
    create(dpicl)
    plan_file.write_text(plan_file.read_text().rstrip() + OTHER)
    dpicl.ok("plan", "sign", plan_file, "--yes")
    return open_records(Settings(database_url=os.environ["DPICL_DATABASE_URL"]))


@pytest.mark.slow
def test_the_service_s_own_rule_is_recorded(dpicl: Shell, dataset: Path, signed: Records) -> None:
    options = ["--draws", 4, "--yes", "--json"]
    rows = {}
    for task, rule in (("toys.colour", "posterior"), ("toys.second@1", "argmax, prior")):
        found = json.loads(dpicl.ok("eval", dataset, "--record", task, *options))
        rows[task.partition("@")[0]] = {
            "zero-shot": found[0]["accuracy"],
            "private": next(row["accuracy"] for row in found if (row["vote"], row["decide"]) == ("hard", rule)),
            "error": next(row["standard_error"] for row in found if (row["vote"], row["decide"]) == ("hard", rule)),
            "answers": {row["answers"] for row in found if row["epsilon"]},
            "sigma": {row["sigma"] for row in found if row["epsilon"]},
        }
    recorded = newest(signed)
    assert recorded.keys() == {"toys.colour@1", "toys.second@1"}
    noise = json.loads(signed.ledger.budgets.task("toys.colour").document)["noise"]
    for name, measured in rows.items():
        accuracy = recorded[f"{name}@1"].accuracy
        assert (accuracy.zero_shot, accuracy.accuracy) == (
            pytest.approx(measured["zero-shot"], abs=0.05),
            pytest.approx(measured["private"], abs=0.05),
        )
        assert accuracy.standard_error == pytest.approx(measured["error"], abs=0.05)
        assert (accuracy.rows, accuracy.engine) == (20, "nearest_exemplar")
        assert accuracy.by
        # As signed for 60 exemplars, whatever the number of training rows.
        multiplier = noise[name.partition(".")[2]]["mechanism"]["noise_multiplier"]
        assert measured["sigma"] >= {RnmGaussian(multiplier, 2, "hard").sigma}
    assert (rows["toys.colour"]["answers"], rows["toys.second"]["answers"]) == ({20}, {2})
    assert dpicl.ok("audit", "verify").count("nothing wrong") == 1
    assert "right answers of toys.colour@1, and" in " ".join(
        event.particulars.sentence(str) for event in signed.audit.events(kinds=[AccuracyRecorded.kind])
    )


@pytest.mark.slow
def test_an_accuracy_is_replaced_after_a_question(
    dpicl: Shell, dataset: Path, signed: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(
        Actor("root", "root", "account", "admin"),
        signed,
        signed.ledger.budgets.task("toys.colour"),
        accuracy=81.5,
        standard_error=1.6,
        zero_shot=60,
        zero_shot_error=2.1,
        rows=563,
        engine="nearest_exemplar",
    )
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question: bool(asked.append(question)) or "public" in question)
    dpicl.fails("eval", dataset, "--record", "toys.colour", "--queries", 2)
    assert "81.5 ± 1.6 % right on 563 rows" in asked[-1]
    assert "a measurement on 2 rows?" in asked[-1]
    assert newest(signed)["toys.colour@1"].accuracy.rows == 563
    dpicl.ok("eval", dataset, "--record", "toys.colour", "--queries", 2, "--draws", 2, "--yes")
    assert newest(signed)["toys.colour@1"].accuracy.rows == 2


@pytest.mark.slow
def test_nothing_is_recorded_unless_the_rows_are_declared_public(
    dpicl: Shell, dataset: Path, signed: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question: bool(asked.append(question)))
    dpicl.fails("eval", dataset, "--record", "toys.colour")
    (question,) = asked
    assert "public" in question
    for options, message in (
        (("toys.colour", "--plan", dataset / "plan.yaml"), "either a plan"),
        (("toys.colour", "--epsilon", 3), "leave --epsilon out"),
        (("toys.colour", "--task", "colour"), "leave --task out"),
        (("toys.shape",), "toys.shape"),
        (("toys.reply",), "no accuracy"),
    ):
        assert message in dpicl.fails("eval", dataset, "--yes", "--record", *options)
    assert "either a plan" in dpicl.fails("eval", dataset)
    assert newest(signed) == {}


@pytest.mark.slow
def test_too_few_rows_for_what_is_signed_need_more_rows(dpicl: Shell, dataset: Path, signed: Records) -> None:
    train = dataset / "train.jsonl"
    train.write_text("".join(train.read_text().splitlines(keepends=True)[:19]))
    refused = " ".join(dpicl.fails("eval", dataset, "--record", "toys.colour", "--yes").split())
    assert refused.endswith("which need 20. Add rows"), "a signed plan cannot be changed"
    assert newest(signed) == {}


@pytest.mark.slow
def test_another_engine_than_the_service_s_is_not_recorded(dpicl: Shell, dataset: Path, signed: Records) -> None:
    note_engine(signed.database, EngineInfo("vllm", "each slot by itself", True, "for tests"))
    assert "not nearest_exemplar" in dpicl.fails("eval", dataset, "--record", "toys.colour", "--yes")
    assert newest(signed) == {}
