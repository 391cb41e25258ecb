"""The whole training on a small made-up world: what is restored, how controls compare, and what a stopped job does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from examples.restore.world import PROMPT, World, train_model, write
from research.restore import orpo
from research.restore.data import TrainConfig
from research.restore.job import Job
from research.restore.model import SteeredModel
from sanitization.restore import bundle
from sanitization.restore.publishing import JobError, publish, read_report
from tests.sanitization.restore.made_up import KEY

pytestmark = [pytest.mark.model, pytest.mark.lengthy]

WORLD = World(illnesses=4)
SETTINGS: dict[str, Any] = {
    "name": "clinic",
    "model": "model",
    "data": "patients.jsonl",
    "declared": "public",
    "declared_by": "made up",
    "prompt": PROMPT,
    "options": WORLD.illnesses,
    "heads": 8,
    "profiles": [3, 5],
    "epsilons": [0.5, 5.0, 20.0, 150.0],
    "steps": 60,
    "batch": 24,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    folder = tmp_path_factory.mktemp("world")
    train_model(folder / "model", WORLD.patients(1500, 1), layers=2, steps=90)
    write(folder / "patients.jsonl", WORLD.patients(800, 2))
    (folder / "train.yaml").write_text(yaml.safe_dump(SETTINGS))
    return TrainConfig.read(folder / "train.yaml")


@pytest.fixture(scope="module")
def job(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    said: list[str] = []
    Job(folder, config, lambda stage, done: said.append(f"{stage} {done}")).run()
    assert [one.split()[0] for one in said if "step 60 of 60" in one] == ["vectors", "constant"]
    return folder


@pytest.fixture(scope="module")
def report(job: Path) -> dict[str, Any]:
    return read_report(job)


def test_profiles_restore_what_controls_do_not(report: dict[str, Any]) -> None:
    """Chance is one in four, and the best guess from redacted texts is right in about a half."""
    controls = report["controls"]
    assert controls["full"] >= 0.9
    assert controls["restored"] >= 0.85
    assert controls["own_profile"] >= 0.85
    assert controls["own_profile_as_text"] >= 0.8
    assert controls["another"] <= 0.15
    assert max(controls["redacted"], controls["constant"], controls["redacted_attacker"]) <= 0.6
    assert report["profiles"] == 5  # one for each illness and one for no spans; three are too few


def cells(report: dict[str, Any], name: str) -> dict[int, dict[str, Any]]:
    return {round(cell["epsilon"]): cell for cell in report["table"] if cell["mechanism"] == name}


def test_the_table_at_equal_epsilon(report: dict[str, Any]) -> None:
    profiles = cells(report, "5-RR")
    assert set(profiles) == {0, 5, 20}
    assert profiles[5]["steered"] >= 0.8
    assert profiles[0]["steered"] <= 0.6
    assert cells(report, "3-RR")[20]["steered"] <= 0.8  # too few profiles are a limit
    raw = cells(report, "d_chi")
    assert set(raw) == {0, 5, 20, 150}
    assert max(raw[epsilon]["steered"] for epsilon in (0, 5, 20)) <= 0.6  # the paper's noise leaves nothing, even at 20
    assert raw[150]["steered"] > raw[20]["steered"]  # as the paper runs it
    for cell in report["table"]:
        assert cell["attacker"] >= max(cell["steered"], cell["as_text"] or 0)
    assert profiles[20]["attacker"] >= 0.85


def test_what_is_published(job: Path, report: dict[str, Any], tmp_path: Path) -> None:
    one = publish(job, tmp_path, KEY)
    assert one.book.k == 5
    assert one.manifest.report["controls"] == report["controls"]
    assert one.manifest.declared.data == "public"
    table = bundle.load_steering(bundle.folder_of(tmp_path, "clinic@1"), one)["table"]
    assert table.shape == (5, 8, 32)
    norms = np.linalg.norm(table.reshape(5, -1), axis=1)
    np.testing.assert_allclose(norms, [0, 1, 1, 1, 1], atol=1e-5)
    # Each profile's medoid has the profile as its own.
    for profile, spans in enumerate(one.manifest.medoids):
        assert one.book.nearest(dict.fromkeys((one.types[span] for span in spans if span in one.types), 1.0)) == profile


def test_refused_unless_controls_are_beaten(job: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"profiles .* 95%"):
        publish(job, tmp_path / "bundles", KEY, margin=0.95)
    broken = tmp_path / "job"
    broken.mkdir()
    for file in job.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    found = read_report(job)
    found["controls"]["constant"] = found["controls"]["own_profile"]  # a constant vector that does as well
    (broken / "report.json").write_text(json.dumps(found))
    with pytest.raises(JobError, match="not published"):
        publish(broken, tmp_path / "bundles", KEY)
    with pytest.raises(JobError, match="finished"):
        publish(tmp_path, tmp_path / "bundles", KEY)


class Stopped(Exception):  # noqa: N818
    """A stop that is as good as a kill: nothing is written after it."""


def test_stopped_training_goes_on_to_the_same_vectors(config: TrainConfig, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(orpo, "STORED_EVERY", 2)
    short = config.model_copy(update={"steps": 6, "batch": 4})
    model = SteeredModel(config.model, config.prompt, config.options)
    texts = ["Known: tall. Reports: ___."] * 3
    examples = orpo.Examples(texts, np.eye(3), torch.tensor([0, 1, 2]), torch.tensor([3, 3, 3]))

    def stop(done: int, loss: float) -> None:
        if done == 4:
            raise Stopped

    def train(file: str, progress: Callable[[int, float], None]) -> orpo.Vectors:
        return orpo.train(model, [(0, 1), (1, 2)], examples, short, tmp_path / file, progress)

    once = train("once.pt", lambda done, loss: None)
    with pytest.raises(Stopped):
        train("twice.pt", stop)
    steps: list[int] = []
    twice = train("twice.pt", lambda done, loss: steps.append(done))
    assert steps == [6]
    torch.testing.assert_close(once.types, twice.types, rtol=0, atol=0)
    assert once.scale == twice.scale


def test_a_job_does_no_stage_twice(job: Path, config: TrainConfig, tmp_path: Path) -> None:
    for name in ("job.json", "heads.json", "vectors.pt", "constant.pt"):
        (tmp_path / name).write_bytes((job / name).read_bytes())
    stages: list[str] = []
    Job(tmp_path, config, lambda stage, said: stages.append(stage)).run()
    assert set(stages) == {"data", "books", "controls", "table"}
    assert read_report(tmp_path)["controls"] == read_report(job)["controls"]


def test_a_job_has_one_configuration(job: Path, config: TrainConfig) -> None:
    with pytest.raises(JobError, match="other settings"):
        Job(job, config.model_copy(update={"steps": 5}), print)


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"epsilons": [0.0]}, "epsilons"), ({"epsilons": [501.0]}, "epsilons"), ({"profiles": [1]}, "profiles")],
)
def test_what_the_last_stage_would_refuse_is_refused_first(
    config: TrainConfig, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        TrainConfig.model_validate(config.model_dump() | change)


def test_more_profiles_than_different_rows_are_refused_before_training(config: TrainConfig, tmp_path: Path) -> None:
    stages: list[str] = []
    many = config.model_copy(update={"profiles": [5, 5000]})
    with pytest.raises(ValueError, match="5000 profiles need 4999 rows"):
        Job(tmp_path, many, lambda stage, done: stages.append(stage)).run()
    assert set(stages) == {"data"}


def test_the_odds_term_counts_only_where_answers_differ() -> None:
    sums = torch.log(torch.tensor([[0.5, 0.2], [0.5, 0.5]]))
    loss = orpo.orpo_loss(sums, sums, torch.tensor([True, False]), 1.0)
    odds = (0.5 / 0.5) / (0.2 / 0.8)
    expected = (-np.log(0.5) - np.log(1 / (1 + 1 / odds)) - np.log(0.5)) / 2
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    certain = orpo.orpo_loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([True]), 1.0)
    assert torch.isfinite(certain)
