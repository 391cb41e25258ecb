"""``dpicl ask`` and ``dpicl batch`` against the service's own application, in this process."""

import json
from pathlib import Path

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
    assert "Invalid key" in dpicl.fails("budget", "--url", "http://service")
    monkeypatch.setenv("DPICL_URL", "http://service")
    assert "Invalid key" in dpicl.fails("budget")


def test_a_batch_reads_csv(dpicl: Shell, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.csv", tmp_path / "answers.jsonl"
    questions.write_bytes(b'\xef\xbb\xbfn,text\r\n1,"a toy, ""red"""\r\n2,another toy\r\n')
    dpicl.ok("ask", "toys.colour", "another toy")
    said = dpicl.ok("batch", "toys.colour", questions, "--out", answers)
    assert said.splitlines()[-1] == f"2 answers in {answers}: 1 charged, 1 free; 18 left"
    assert dpicl.ok("batch", "toys.colour", questions, "--out", answers) == f"2 answers in {answers}\n"
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [(row["n"], row["text"]) for row in rows] == [("1", 'a toy, "red"'), ("2", "another toy")]
    questions.write_text("n,text\n1,a toy, red\n")
    assert "row 2: has 3 cells" in dpicl.fails("batch", "toys.colour", questions, "--out", answers)


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
