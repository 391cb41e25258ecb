"""The paper's data become a configuration that ``dpicl restore train`` reads, for SmolLM2 by its name."""

import json
from pathlib import Path

import pytest

from research.restore.data import TrainConfig, read
from research.studies.prepare import DIAGNOSES, ddxplus_spans

pytestmark = pytest.mark.model


def test_rows_with_spans_and_a_configuration(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"row-{number}",
            "question": f"A {20 + number}-year-old has jaw pain and nausea. What is the likely diagnosis?",
            "privacy_spans": ["jaw pain"],
            "answer": f"illness {number % 8 if number < 40 else number % DIAGNOSES}",
        }
        for number in range(100)
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ddxplus_spans(tmp_path, tmp_path / "out")
    config = TrainConfig.read(tmp_path / "out" / "train.yaml")
    assert (config.model / "config.json").is_file()
    assert sorted(config.options) == [f"illness {number}" for number in range(DIAGNOSES)]  # the rarest two are left out
    split = read(config)
    assert len(split.train) + len(split.choose) + len(split.test) == 90
    assert set(split.types) == {"jaw pain"}
    assert split.test.redacted[0].endswith("has ___ and nausea. What is the likely diagnosis?")
