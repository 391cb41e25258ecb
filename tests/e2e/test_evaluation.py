"""docs/evaluation.md, "With your own CSV": executed on a file of the example's tickets."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from service.sources.files import read_records
from tests.documented import SOURCES, run
from tests.e2e.serving import SUPPORT

pytestmark = pytest.mark.lengthy

SPLIT = f"python {SOURCES}/evaluation/split.py\n"


def write_tickets(folder: Path, delimiter: str = ",", encoding: str = "utf-8") -> list[dict[str, str]]:
    tickets = [json.loads(line) for line in (SUPPORT / "tickets.jsonl").read_text().splitlines()]
    rows = [{name: ticket[name] for name in ("unit_id", "text", "team")} for ticket in tickets]
    with (folder / "tickets.csv").open("w", newline="", encoding=encoding) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return rows


def parts(folder: Path) -> list[list[dict[str, str]]]:
    return [read_records(str(folder / "measured" / f"{name}.csv")) for name in ("train", "test")]


def test_a_reader_measures_a_file_of_their_own(tmp_path: Path) -> None:
    write_tickets(tmp_path)
    shutil.copy(SOURCES / "evaluation" / "plan.yaml", tmp_path)
    commands = [(SOURCES / "evaluation" / name).read_text() for name in ("eval.sh", "sweep.sh")]
    printed = run(SPLIT + commands[0], tmp_path)
    run(commands[1], tmp_path)
    assert (tmp_path / "slots.png").read_bytes().startswith(b"\x89PNG")
    train, test = ({row["unit_id"] for row in part} for part in parts(tmp_path))
    assert len(train | test) == 250
    assert not train & test
    assert "50 test queries" in printed
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"zero-shot", "one slot of 4", "aggregate, no noise", "private"}
    assert {row["epsilon"] for row in rows if row["method"] == "private"} == {"1.0", "3.0"}


@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "utf-8-sig"), ("\t", "utf-8"), ("|", "utf-8")])
def test_the_split_finds_the_delimiter(tmp_path: Path, delimiter: str, encoding: str) -> None:
    written = write_tickets(tmp_path, delimiter, encoding)
    run(SPLIT, tmp_path)
    train, test = parts(tmp_path)
    assert sorted(row["text"] for row in train + test) == sorted(row["text"] for row in written)
    assert train[0].keys() == test[0].keys() == written[0].keys()
