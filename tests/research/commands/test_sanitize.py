"""``dpicl sanitize audit`` and ``attack``."""

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from research.sanitization.as_published import PUBLISHED
from sanitization.mechanisms import CORRECTED
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
    dyntext = {"dyntext", "dyntext_global", "dyntext_fixed"}
    assert infinite == {"santext_plus", "custext", "rantext", "fbdd_spans", *dyntext}
    assert published["fbdd"]["upper_bound"] is True
    assert published["dp_prompt"]["epsilon"] == pytest.approx(2, abs=1e-3)
    rantext = published["rantext"]
    assert (rantext["claim"], rantext["by_class"]["known"] > 10) == ("2", True)
    assert {row["mechanism"] for row in found["corrected"]} == {*CORRECTED, "nearest_rr", "medoid_rr"}
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


def test_attack_as_published(glove: Path, cache: Path) -> None:
    """Closed forms of 60 words: SANTEXT+ keeps a frequent word with a chance of 80 %, so an attacker has it."""
    options = ["--vectors", glove, "--cache", cache, "--nominal", 6, "--nominal", 20, "--epsilon", 1]
    by = {(row["mechanism"], row["nominal"]): row for row in call("attack", *options)["published"]}
    assert {name for name, _ in by} == {name for name, one in PUBLISHED.items() if one.on_words}
    frequent = letter_words(60).shares[:30].sum()
    assert 0.8 * frequent < by["santext_plus", 6]["kept"] < 0.8 * frequent + 0.8 * (1 - frequent)
    assert by["rantext", 6]["epsilon"] == by["custext", 6]["epsilon"] == "infinite"
    for row in by.values():
        assert row["kept"] <= row["inversion"] + 1e-9
        assert row["bayes"] <= row["bayes_top"] <= 1 + 1e-9
    for name, _ in by:
        assert by[name, 6]["kept"] <= by[name, 20]["kept"] + 1e-9
    found = call("attack", *options, "--mechanism", "rantext")
    assert {row["mechanism"] for row in found["attacks"] + found["published"]} == {"rantext"}
    assert "As published" in "\n".join(printed("attack", *options, "--mechanism", "custext"))
    done = CliRunner().invoke(app, ["sanitize", "attack", *map(str, options), "--mechanism", "rantext_fitted"])
    assert "'happy'" in str(done.exception)


def test_attack_in_context(glove: Path, cache: Path, llama: Path, tmp_path: Path) -> None:
    """λ_L = 0 leaves the context out, and so eight contexts are one; each ε holds whatever the model."""
    options = ["--vectors", glove, "--cache", cache, "--context-model", llama, "--mechanism", "cape", "--epsilon", 5]
    powers = ["--logit-power", 0, "--logit-power", 1.5, "--buckets", 20, "--buckets", 50]
    rows = call("attack", *options, *powers)["attacks"]
    named = [f"cape λ_L {power}, {buckets} buckets" for power in ("0", "1.5") for buckets in (20, 50)]
    assert [row["mechanism"] for row in rows] == ["cape", *named]
    assert all(4.99 < row["true_epsilon"] <= 5 for row in rows)
    assert rows[2]["kept"] > rows[4]["kept"]
    words = letter_words(60).words
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": f"{a} {b}, {a}"}) + "\n" for a, b in itertools.pairwise(words)))
    found = call("attack", *options, "--texts", file, "--most-texts", 10)
    assert [row["mechanism"] for row in found["attacks"]] == ["cape", named[1].replace("λ_L 0", "λ_L 0.5")]
    assert 0 < found["attacks"][1]["bayes"]["value"] <= 1
    done = CliRunner().invoke(app, ["sanitize", "attack", "--logit-power", "1"])
    assert (done.exit_code, "need --context-model" in done.output) == (2, True)


def test_fit(tmp_path: Path, cache: Path) -> None:
    words = letter_words(60)
    file = tmp_path / "glove.txt"
    names = ["happy", *words.words[1:]]
    file.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(names, words.vectors, strict=True)))
    found = call("fit", "--vectors", file, "--cache", cache, "--nominal", 6)
    printed_row, fitted = found["rows"]
    assert found["constants"]["as printed"]["d"] == pytest.approx(9.311, abs=0.001)
    assert (printed_row["rate"], fitted["rate"]) == (pytest.approx(9.383, abs=0.001), pytest.approx(fitted["rate"]))
    # At a nominal 6 the list has more than 5 % with a probability of 91 %.
    assert fitted["list"] > 0.05
    assert printed_row["inversion"] != fitted["inversion"]
    assert all(row["true_epsilon"] > 6 for row in found["rows"])
    table = "\n".join(printed("fit", "--vectors", file, "--cache", cache, "--token", names[3], "--nominal", 6))
    assert "as printed" in table
    done = CliRunner().invoke(app, ["sanitize", "fit", "--vectors", str(file), "--token", "unheard"])
    assert "does not know 'unheard'" in str(done.exception)


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
