"""``dpicl sanitize audit`` and ``attack``."""

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app
from tests.sanitization.made_up import letter_words
from tests.service.cli.test_sanitize import printed


def call(*args: object) -> dict:
    said = "\n".join(printed(*args, "--json"))
    return json.loads(said, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_audit(glove: Path, cache: Path) -> None:
    found = call("audit", "--vectors", glove, "--cache", cache, "--nominal", 2, "--epsilon", 3)
    published = {row["mechanism"]: row for row in found["published"]}
    infinite = {name for name, row in published.items() if row["epsilon"] == "infinite"}
    assert infinite == {"santext_plus", "custext", "rantext", "dyntext"}
    rantext = published["rantext"]
    assert (rantext["claim"], rantext["by_class"]["known"] > 10) == ("2", True)
    assert {row["mechanism"] for row in found["corrected"]} == {*published, "nearest_rr", "medoid_rr"}
    for row in found["corrected"]:
        assert 1 < row["epsilon"] <= 3
        assert row["inputs"] == row["of"] == found["words"] == 60


def test_attack(glove: Path, cache: Path) -> None:
    options = ["--vectors", glove, "--cache", cache, "--mechanism", "medoid_rr", "--mechanism", "custext"]
    found = call("attack", *options, "--epsilon", 1, "--epsilon", 6)
    by = {(row["mechanism"], row["epsilon"]): row for row in found["attacks"]}
    assert len(by) == 4
    for row in by.values():
        assert row["true_epsilon"] <= row["epsilon"]
        assert row["prior"] <= row["bayes"] <= row["bayes_top"] <= 1
    for name, measure in itertools.product(("medoid_rr", "custext"), ("bayes", "cosine")):
        assert by[name, 1][measure] < by[name, 6][measure]
    assert by["medoid_rr", 6]["ten"] < by["custext", 6]["ten"], "words of one cell look alike"
    assert "needs --texts" in CliRunner().invoke(app, ["sanitize", "attack", "--mechanism", "whole_rr"]).output


@pytest.mark.slow
def test_attack_texts(glove: Path, cache: Path, tmp_path: Path) -> None:
    """Words follow each other in a circle, in texts of two lengths: context reveals them, and length survives."""
    words = letter_words(60).words
    rows = [
        {"text": " ".join(words[(start + step) % 60] for step in range(length)), "label": label}
        for start in range(0, 60, 3)
        for length, label in ((4, "short"), (40, "long"))
    ]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["attack", "--vectors", glove, "--cache", cache, "--texts", file, "--mechanism", "medoid_rr"]
    found = call(*options, "--epsilon", 2, "--epsilon", 20)
    assert (found["texts"], found["clean_accuracy"]["value"] > 0.9) == (20, True)
    low, high = found["attacks"]
    assert low["context"]["value"] > low["bayes"]["value"] + 0.2
    assert high["context"]["value"] == high["bayes"]["value"] == 1
    assert low["cosine"]["value"] < high["cosine"]["value"] == pytest.approx(1)
    assert high["cosine"]["error"] < 1e-6 < low["cosine"]["error"]
    assert high["accuracy"] == found["clean_accuracy"]
    (whole,) = call(*options[:-1], "whole_rr", "--epsilon", 20)["attacks"]
    assert whole["accuracy"]["value"] > 0.6 < whole["cosine"]["value"]
    assert whole["bayes"] is whole["context"] is None
    table = "\n".join(printed(*options, "--most-texts", 4, "--epsilon", 20))
    assert "4 sanitised texts" in table
    (sheet := tmp_path / "texts.csv").write_text("label,text\n" + "short,bcd bcf\n" * 4)
    assert call(*options, "--texts", sheet)["texts"] == 2
    for bad, says in (({"text": "x"}, "row 4: "), (["x"], "row 7: ")):
        file.write_text("\n\n".join(json.dumps(row) for row in [*rows[:3], bad]))
        with pytest.raises(ValueError, match=says):
            call(*options)
