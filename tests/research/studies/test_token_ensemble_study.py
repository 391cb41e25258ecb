"""The study of whole texts, with an engine that writes how many exemplars it was shown."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from exemplar_store import Slot
from research.evaluation import replies
from research.studies import products, token_ensemble
from research.studies.text_sets import BASE, DATA, planned
from service.engines.task import TaskSpec, ZeroShot
from tests.service.conftest import MajorityEngine
from tests.service.engines.roomy import Roomy

pytestmark = pytest.mark.slow


class Counting(Roomy, MajorityEngine):
    """Writes how many exemplars it was shown. ``questions`` counts the questions that it was asked without any."""

    questions = 0

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        self.questions += 1
        return ZeroShot(texts=("none",))

    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        return f"wrote {sum(map(len, slots))}"

    def close(self) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setattr(replies, "open_engine", lambda config, embedder: counting)
    monkeypatch.setattr(token_ensemble, "nats", lambda model, texts: [float(len(text)) for _, text in texts])
    return counting


@pytest.fixture
def data(tmp_path: Path) -> Path:
    products.write(tmp_path)
    return tmp_path


def study(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path, *options: str) -> list[str]:
    """The lines that a run prints: a table of its conditions, and the texts that it shows."""
    arguments = ["", str(data), "--replies", str(data / "kept"), "--questions", "3", "--show", "1", *options]
    monkeypatch.setattr(sys, "argv", arguments)
    token_ensemble.main()
    return capsys.readouterr().out.splitlines()


def test_each_condition_is_shown_what_is_its_own(engine: Counting, data: Path, monkeypatch, capsys) -> None:
    lines = study(monkeypatch, capsys, data, "--set", "topics")
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    shown = [line.partition(": ")[2] for line in lines if line.startswith("    ")]
    assert [row[0] for row in rows] == list(token_ensemble.CONDITIONS)
    assert {row[2] for row in rows} == {"3"}
    zero_shot, slot, alone, _, *written = shown
    assert (zero_shot, alone) == ("none", "wrote 0")
    assert slot not in ("none", "")
    # Slots keep at most twice their shots, and all 60 reviews are drawn.
    assert all(40 <= int(text.removeprefix("wrote ")) <= 60 for text in written)
    assert {row[7] for row in rows if row[0] != "keyword_ptr:8"} == {"0"}
    assert [float(row[1].split(", ")[0]) for row in rows[-3:]] == pytest.approx([1, 3, 8], abs=0.01)


def test_a_run_goes_on_where_another_ended(engine: Counting, data: Path, monkeypatch, capsys) -> None:
    run = ["--set", "products", "--condition", "token_ensemble:8,answers=50"]
    first = study(monkeypatch, capsys, data, *run, "--questions", "2")
    assert engine.questions == 2
    more = study(monkeypatch, capsys, data, *run)
    assert engine.questions == 3
    assert study(monkeypatch, capsys, data, *run, "--minutes", "0") == more != first
    assert engine.questions == 3
    assert study(monkeypatch, capsys, data, "--set", "products", "--condition", "slot", "--minutes", "0")[4:] == []


@pytest.mark.parametrize("name", DATA)
def test_plans_of_all_conditions_are_valid(name: str) -> None:
    varied = token_ensemble.VARIED + token_ensemble.SLOTS.get(name, ())
    for condition in (*token_ensemble.CONDITIONS, *(f"{BASE},{change}" for change in varied)):
        planned(name, condition)


def test_most_reviews_state_the_fact_that_is_asked_for(data: Path) -> None:
    for folder in (data / "topics").iterdir():
        question = json.loads((folder / "test.jsonl").read_text())
        reviews = [json.loads(line)["answer"] for line in (folder / "train.jsonl").read_text().splitlines()]
        assert len(reviews) == products.REVIEWS
        assert question["answer"] not in question["question"]
        assert sum(token_ensemble.shared(question["answer"], review) for review in reviews) > 50 * len(reviews)
