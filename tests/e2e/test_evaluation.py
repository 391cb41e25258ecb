"""docs/evaluation.md, "With your own CSV": executed on a file of the example's tickets."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.documented import SOURCES, run
from tests.e2e.serving import SUPPORT

pytestmark = pytest.mark.lengthy


def test_a_reader_measures_a_file_of_their_own(tmp_path: Path) -> None:
    with (tmp_path / "tickets.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["unit_id", "text", "team"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(json.loads(line) for line in (SUPPORT / "tickets.jsonl").read_text().splitlines())
    shutil.copy(SOURCES / "evaluation" / "plan.yaml", tmp_path)
    printed = run(f"python {SOURCES}/evaluation/split.py\n{(SOURCES / 'evaluation' / 'eval.sh').read_text()}", tmp_path)
    people = [
        {row["unit_id"] for row in csv.DictReader((tmp_path / "measured" / f"{name}.csv").read_text().splitlines())}
        for name in ("train", "test")
    ]
    assert len(people[0] | people[1]) == 250
    assert not people[0] & people[1]
    assert "50 test queries" in printed
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"zero-shot", "one slot of 4", "aggregate, no noise", "private"}
    assert {row["epsilon"] for row in rows if row["method"] == "private"} == {"1.0", "3.0"}
