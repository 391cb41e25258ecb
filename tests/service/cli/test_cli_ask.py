"""``dpicl ask`` and ``dpicl batch`` against the service's own application, in this process."""

import csv
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from fastapi.testclient import TestClient

from service.cli import ask, budget
from service.operations.services import Services
from service.serving.web import create_app
from tests.service.conftest import client_of
from tests.service.shell import Shell


@pytest.fixture(autouse=True)
def connected(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands' client reaches the application without a network."""
    monkeypatch.setattr(ask, "connect", lambda _service: client_of(services))


def test_an_answer_that_scores_below_the_threshold_is_not_shown(dpicl: Shell) -> None:
    told = json.loads(dpicl.ok("ask", "toys.colour", "a toy", "--json"))
    assert told["cost"]["charged"] == 1
    above, same = told["score"] + 0.0001, told["score"]
    shown = dpicl.ok("ask", "toys.colour", "a toy", "--abstain-below", same)
    assert shown.startswith(told["label"])
    assert f"score {same:.2f} (not a probability" in shown
    silent = dpicl.ok("ask", "toys.colour", "a toy", "--abstain-below", above)
    assert silent.startswith("(abstained)")
    assert told["label"] not in silent.splitlines()[0]
    assert "free, answered before" in silent


def test_the_notice_is_read_once_and_again_when_it_changes(
    dpicl: Shell, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notice = json.loads(dpicl.ok("ask", "toys.colour", "a toy", "--json"))["engine"]["notice"]
    counted = [dpicl.ok("ask", "toys.colour", "a toy", *at).count(notice) for at in ((), (), ("--url", "http://other"))]
    assert counted == [1, 0, 1]
    (tmp_path / "dpicl").rename(tmp_path / "before")
    (tmp_path / "dpicl").touch()  # no folder can be made
    assert [dpicl.ok("ask", "toys.colour", "a toy").count(notice) for _ in range(2)] == [1, 1]


def test_the_budget_command_shows_why_the_service_refuses(dpicl: Shell, services: Services, monkeypatch) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    monkeypatch.setattr(budget, "connect", lambda _service: TestClient(create_app(services), headers=wrong))
    monkeypatch.setenv("DPICL_API_KEY", "wrong")
    assert "Invalid key" in dpicl.fails("budget", "--url", "http://service")
    monkeypatch.setenv("DPICL_URL", "http://service")
    assert "Invalid key" in dpicl.fails("budget")


def test_a_batch_reads_csv(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.jsonl"
    questions.write_bytes(b'\xef\xbb\xbfn,text\r\n1,"a toy, ""red"""\r\n2,another toy\r\n')
    answers.touch()
    answers.chmod(0o644)
    dpicl.ok("ask", "toys.colour", "another toy")
    said = dpicl.ok("batch", "toys.colour", questions, "--out", answers)
    assert said.splitlines()[-1] == f"2 answers in {answers}: 1 charged, 1 free; 18 left"
    assert dpicl.ok("batch", "toys.colour", questions, "--out", answers) == f"2 answers in {answers}\n"
    assert answers.stat().st_mode & 0o777 == 0o600
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [(row["n"], row["text"]) for row in rows] == [("1", 'a toy, "red"'), ("2", "another toy")]
    questions.write_text("n,text\n1,a toy, red\n")
    assert "row 2: has 3 cells" in dpicl.fails("batch", "toys.colour", questions, "--out", answers)


def test_a_batch_writes_csv(dpicl: Shell, tmp_path: Path) -> None:
    """As spreadsheet programs read it; the next run goes on where this one ended, and writes the table anew."""
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.csv"
    questions.write_text("n,text\n1,ein Bär\n2,\n", encoding="utf-8")
    batch = ("batch", "toys.colour", questions, "--out", answers)
    assert "(--skip-incomplete)" in dpicl.fails(*batch)
    assert "1 answers in" in dpicl.ok(*batch, "--skip-incomplete")
    assert answers.read_bytes().startswith(b"\xef\xbb\xbfn,text,answer,")
    with answers.open(encoding="utf-8-sig", newline="") as stream:
        (first,) = csv.DictReader(stream)
    assert (first["n"], first["text"], first["answer"] in ("red", "blue")) == ("1", "ein Bär", True)
    assert first["zero_shot"] in ("red", "blue")
    assert "ein Bär" in (tmp_path / "answers.csv.jsonl").read_text("utf-8")
    questions.write_text("n,text\n2,zwei\n1,ein Bär\n", encoding="utf-8")
    assert "2 answers in" in dpicl.ok(*batch)
    with answers.open(encoding="utf-8-sig", newline="") as stream:
        assert [row["n"] for row in csv.DictReader(stream)] == ["2", "1"]
    (tmp_path / "mine.csv").write_text("n\n1\n")
    assert "choose another --out" in dpicl.fails("batch", "toys.colour", questions, "--out", tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "n\n1\n"


def test_a_batch_overwrites_nothing(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"text": "a toy", "answer": "mine"}\n{"text": "another toy", "score": "likely"}\n')
    dpicl.ok("batch", "toys.colour", questions, "--out", answers)
    first, second = (json.loads(line) for line in answers.read_text().splitlines())
    assert (first["answer"], second["score"]) == ("mine", "likely")
    for row in (first, second):  # the same names in every row
        assert row["dpicl_answer"] in ("red", "blue")
        assert 0 <= row["dpicl_score"] <= 1
        assert row["release"]
    questions.write_text('{"text": "a toy", "answer": "mine", "dpicl_answer": "red"}\n')
    other = tmp_path / "other.jsonl"
    assert "dpicl_answer" in dpicl.fails("batch", "toys.colour", questions, "--out", other)
    assert not other.exists()


def test_a_batch_names_its_encoding(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.jsonl"
    questions.write_bytes("text\nein Bär\n".encode("cp1252"))
    batch = ("batch", "toys.colour", questions, "--out", answers)
    assert "--encoding cp1252" in dpicl.fails(*batch)
    dpicl.ok(*batch, "--encoding", "cp1252")
    assert json.loads(answers.read_text())["text"] == "ein Bär"


def test_a_batch_maps_columns(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.csv"
    questions.write_text("Calls of March\nNo;Call\n1;a toy\n")
    batch = ["batch", "toys.colour", questions, "--out", answers]
    assert "(--skip-lines 1)" in dpicl.fails(*batch)
    batch += ["--skip-lines", "1"]
    assert "field 'text'" in dpicl.fails(*batch)
    assert "write FIELD=COLUMN" in dpicl.fails(*batch, "--map", "Call")
    assert "the question has no field what, but text" in dpicl.fails(*batch, "--map", "what=Call")
    assert "'Called': is not among" in dpicl.fails(*batch, "--map", "text=Called")
    assert "1 answers in" in dpicl.ok(*batch, "--map", "text=Call")
    with answers.open(encoding="utf-8-sig", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["No"], row["Call"], "text" in row) == ("1", "a toy", False)
    nested = tmp_path / "questions.jsonl"
    nested.write_text('{"no": 1, "call": {"words": "another toy"}}\n')
    dpicl.ok("batch", "toys.colour", nested, "--out", tmp_path / "answers.jsonl", "--map", "text=call.words")


def test_a_batch_writes_null_for_an_abstention(dpicl: Shell, tmp_path: Path) -> None:
    questions, told, silent = tmp_path / "questions.jsonl", tmp_path / "told.jsonl", tmp_path / "silent.jsonl"
    questions.write_text('{"text": "a toy", "n": 1}\n{"text": "another toy", "n": 2}\n')
    dpicl.ok("batch", "toys.colour", questions, "--out", told)
    dpicl.ok("batch", "toys.colour", questions, "--out", silent, "--abstain-below", 1)
    for row, quiet in zip(*(map(json.loads, file.read_text().splitlines()) for file in (told, silent)), strict=True):
        assert row["answer"] in ("red", "blue")
        assert quiet["answer"] == (row["answer"] if row["score"] == 1 else None)
        assert quiet["score"] == row["score"]
        assert quiet["release"] == row["release"]


def test_answers_stay_with_their_rows(dpicl: Shell, tmp_path: Path) -> None:
    """Rows are put in front, moved and added between two runs; each question is asked once."""
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    batch = ("batch", "toys.colour", questions, "--out", answers)

    def ask_rows(*numbers: int) -> str:
        rows = [{"id": number, "text": f"toy {number % 10}", "price": float("nan")} for number in numbers]
        questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
        said = dpicl.ok(*batch)
        told = [json.loads(line, parse_constant=pytest.fail) for line in answers.read_text().splitlines()]
        assert [(row["id"], row["text"], row["price"]) for row in told] == [
            (number, f"toy {number % 10}", None) for number in numbers
        ]
        return said.splitlines()[-1]

    assert "2 charged, 0 free" in ask_rows(1, 2)
    releases = {row["id"]: row["release"] for row in map(json.loads, answers.read_text().splitlines())}
    assert "2 charged, 0 free" in ask_rows(0, 2, 1, 3)
    assert "0 charged, 1 free" in ask_rows(0, 11, 2, 1, 3), "another row may ask the same"
    assert ask_rows(1, 2, 3, 0, 11) == f"5 answers in {answers}", "nothing is asked"
    told = {row["id"]: row["release"] for row in map(json.loads, answers.read_text().splitlines())}
    assert releases.items() <= told.items()
    written = answers.read_bytes()
    answers.write_bytes(written[:-9])
    assert "0 charged, 1 free" in dpicl.ok(*batch), "a crash cut the last line"
    answers.write_bytes(written[:-1])
    dpicl.ok(*batch)
    assert answers.read_bytes() == written, "a crash cut the line's end alone"


def test_a_batch_adds_to_its_own_answers_alone(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"text": "a toy"}\n{"text": "another toy"}\n')
    dpicl.ok("batch", "toys.colour", questions, "--out", answers)
    for others in (answers.read_text(), "notes", '{"text": "a toy"}', '{"text": "a toy"}\n', "[]\n"):
        if others.startswith('{"text": "a toy", "answer'):
            questions.write_text('{"text": "a toy!"}\n')  # another question than was answered
        answers.write_text(others)
        assert "another --out" in dpicl.fails("batch", "toys.colour", questions, "--out", answers)
        assert answers.read_text() == others
    before = questions.read_text()
    assert "another --out" in dpicl.fails("batch", "toys.colour", questions, "--out", questions)
    assert questions.read_text() == before


def test_a_batch_checks_every_row_before_it_asks(dpicl: Shell, tmp_path: Path) -> None:
    """Errors name row and column, and repeat no value."""
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    batch = ("batch", "toys.colour", questions, "--out", answers)
    for bad, why in (
        ('{"text": 5151}', "field 'text': must be a string, not a number"),
        ('{"text": NaN}', "field 'text': is empty"),
        ('{"text": ""}', "field 'text': is empty"),
        ('{"id": "secret"}', "field 'text': is missing"),
        ('{"text": "secret", "text": "b"}', "field 'text': is given twice"),
        ('{"text": "secret\\u0000"}', "field 'text': contains a NUL"),
    ):
        questions.write_text(f'{{"text": "a toy"}}\n\n{bad}\n')
        said = dpicl.fails(*batch)
        assert f"row 3, {why}" in said
        assert "secret" not in said
        assert "5151" not in said
        assert not answers.exists()
    questions.write_text('{"text": 5151}\n')
    dpicl.ok(*batch, "--numbers-as-text")
    assert json.loads(answers.read_text())["text"] == "5151"


def test_a_batch_keeps_columns_of_every_type(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.parquet", tmp_path / "answers.jsonl"
    columns: dict[str, Any] = {
        "text": ["a toy"],
        "on": [date(2026, 1, 31)],
        "at": [datetime(2026, 1, 31, 8)],
        "price": [Decimal("9.90")],
        "share": [float("inf")],
        "photo": [b"\xff"],
        "places": [[1.5, float("nan")]],
        "far": pa.array([316_500_000_000], pa.timestamp("s")),
    }
    names = [*columns, "note", "note"]
    pa.parquet.write_table(pa.table([*map(pa.array, columns.values()), pa.array([1]), pa.array([2])], names), questions)
    _, _, said = dpicl("batch", "toys.colour", questions, "--out", answers)
    assert "Not kept, since they cannot be read in each row: 'far', 'note'" in said
    row = json.loads(answers.read_text(), parse_constant=pytest.fail)
    assert {name: row[name] for name in names} == {
        "text": "a toy",
        "on": "2026-01-31",
        "at": "2026-01-31T08:00:00",
        "price": "9.90",
        "share": None,
        "photo": "_w==",
        "places": [1.5, None],
        "far": None,
        "note": None,
    }
    assert dpicl.ok("batch", "toys.colour", questions, "--out", answers).endswith(f"1 answers in {answers}\n")


def test_a_batch_keeps_what_it_can_of_columns_that_are_not_needed(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    batch = ("batch", "toys.colour", questions, "--out", answers)
    deep = "[" * 900 + "]" * 900
    questions.write_bytes(
        b'{"text": "a toy", "n": 1, "\\ud800": 2, "\xff": 3, "nested": {"\\ud800": 4}, "deep": %s}\n' % deep.encode()
    )
    _, _, said = dpicl(*batch)
    assert "Not kept, since they cannot be read in each row: 'deep', 'nested'" in said
    row = json.loads(answers.read_text())
    kept = {"n": 1, "\\ud800": 2, "\\udcff": 3, "nested": None, "deep": None}
    assert {name: row[name] for name in kept} == kept
    assert dpicl.ok(*batch).endswith(f"1 answers in {answers}\n")


def test_a_batch_asks_nothing_before_its_answers_can_be_written(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers" / "answers.jsonl"
    questions.write_text('{"text": "a toy"}\n')
    assert "answers.jsonl" in dpicl.fails("batch", "toys.colour", questions, "--out", answers)
    answers.parent.mkdir()
    assert "1 charged, 0 free" in dpicl.ok("batch", "toys.colour", questions, "--out", answers)


def test_a_batch_does_not_take_another_tasks_answers_for_its_own(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"text": "a toy"}\n')
    batch = ("batch", "toys.colour", questions, "--out", answers)
    dpicl.ok(*batch)
    assert json.loads(answers.read_text())["task"] == "toys.colour@1"
    dpicl.ok("batch", "toys.colour@1", questions, "--out", answers)
    for other in ("toys.size@1", "toys.colours@1", "toys.colour@2"):
        answers.write_text(answers.read_text().replace("toys.colour@1", other))
        written, asked = answers.read_text(), "toys.colour@1" if other == "toys.colour@2" else "toys.colour"
        said = dpicl.fails("batch", asked, questions, "--out", answers)
        assert f"has answers of {other}: choose another --out" in said
        assert answers.read_text() == written
        answers.write_text(written.replace(other, "toys.colour@1"))
