"""``dpicl sanitize``, and its page of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.embedding.words import minilm_words
from tests.documented import DOCS, blocks, run
from tests.sanitization.made_up import vocabulary


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = vocabulary(60, 24)
    file = tmp_path_factory.mktemp("vectors") / "glove.txt"
    file.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(words.words, words.vectors, strict=True)))
    return file


def call(*args: object) -> dict:
    done = CliRunner().invoke(app, ["sanitize", *map(str, args), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_audit(glove: Path, cache: Path) -> None:
    found = call("audit", "--vectors", glove, "--cache", cache, "--nominal", 2, "--epsilon", 3)
    assert found["words"] == 60
    true = {row["mechanism"]: row["epsilon"] for row in found["published"]}
    infinite = {name for name, epsilon in true.items() if epsilon == "infinite"}
    assert infinite == {"santext_plus", "custext", "rantext", "dyntext"}
    rantext = next(row for row in found["published"] if row["mechanism"] == "rantext")
    assert (rantext["claim"], rantext["by_class"]["known"] > 10) == ("2", True)
    assert {row["mechanism"] for row in found["corrected"]} == {*true, "nearest_rr", "medoid_rr"}
    for row in found["corrected"]:
        assert 1 < row["epsilon"] <= 3
        assert row["inputs"] == row["of"] == 60


def test_attack(glove: Path, cache: Path) -> None:
    options = ["--vectors", glove, "--cache", cache, "--mechanism", "medoid_rr", "--mechanism", "custext"]
    found = call("attack", *options, "--epsilon", 1, "--epsilon", 6)
    by = {(row["mechanism"], row["epsilon"]): row for row in found["attacks"]}
    assert len(by) == 4
    for row in by.values():
        assert row["true_epsilon"] <= row["epsilon"]
        assert row["prior"] <= row["bayes"] <= row["bayes_top"] <= 1
    for name in ("medoid_rr", "custext"):
        assert by[name, 1]["bayes"] < by[name, 6]["bayes"]
        assert by[name, 1]["cosine"] < by[name, 6]["cosine"]
    assert by["medoid_rr", 6]["ten"] < by["custext", 6]["ten"], "words of one cell look alike"


def test_the_built_in_words_are_embedded_once(cache: Path) -> None:
    words = minilm_words(60, cache)
    assert words.words[:3] == ("the", "of", "and")
    np.testing.assert_allclose(np.linalg.norm(words.vectors, axis=1), 1, atol=1e-6)
    (file,) = cache.glob("words-*.npy")
    before = file.stat().st_mtime_ns
    assert minilm_words(60, cache).digest == words.digest
    assert file.stat().st_mtime_ns == before
    assert minilm_words(59, cache).words == words.words[:59]


def test_the_documentation_runs_as_written(tmp_path: Path) -> None:
    commands = "".join(blocks(DOCS / "sanitization.md", "sh"))
    assert "sanitize audit" in commands
    assert "sanitize attack" in commands
    printed = run(f"export COLUMNS=150 XDG_CACHE_HOME=$PWD/cache\n{commands}", tmp_path)
    assert re.search(r"rantext +│ 6 +│ 6 +│ infinite", printed)
    assert re.search(r"medoid_rr +│ \d+ medoids +│ 8\.00000", printed)
    assert "Bayes, 10 copies" in printed
