"""``dpicl restore`` from training to asking, as people run it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from accounting.ledger.events import BundlePublished
from examples.restore.world import PROMPT, World, train_model, write
from service.cli import app
from service.engines.task import TaskSpec, ZeroShot
from service.operations.services import open_services
from service.serving.web import create_app
from service.settings import Settings
from tests.private_file import private_file
from tests.processes import listening
from tests.sanitization.restore.made_up import KEY
from tests.service.conftest import EMBEDDER, make_records
from tests.service.gateway.api.test_restoring import Doctor

pytestmark = pytest.mark.model

WORLD = World(illnesses=4)


def run(*args: object, fails: bool = False) -> Any:
    done = CliRunner().invoke(app, ["restore", *map(str, args)])
    assert (done.exit_code != 0) == fails, done.output + repr(done.exception)
    return done


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that was trained too briefly to be useful."""
    folder = tmp_path_factory.mktemp("cli")
    train_model(folder / "model", WORLD.patients(300, 1), layers=1, steps=3)
    write(folder / "patients.jsonl", WORLD.patients(200, 2))
    settings = {
        "name": "clinic",
        "model": "model",
        "data": "patients.jsonl",
        "declared": "consented",
        "declared_by": "the ward's board",
        "prompt": PROMPT,
        "options": WORLD.illnesses,
        "profiles": [5],
        "epsilons": [4.0, 150.0],
        "steps": 2,
        "batch": 4,
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(settings))
    done = run("train", folder / "train.yaml", "--job", folder / "job", "--plot", folder / "report.png")
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    for said in ("The commonest answer", "redacted texts only", "5-RR", "d_chi", "150.00", "20.00"):
        assert said in done.output
    key = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private_file(folder / "key.pem", key)
    return folder


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path / 'service.sqlite'}")
    monkeypatch.setenv("DPICL_DEVELOPMENT", "true")
    monkeypatch.setenv("DPICL_LATENCY_UNPADDED", "true")
    monkeypatch.setenv("DPICL_RESTORE_BUNDLES", str(tmp_path / "bundles"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Settings()


def test_a_useless_bundle_is_not_published(job: Path, environment: Settings) -> None:
    done = run("publish", job / "job", "--signing-key", job / "key.pem", fails=True)
    assert "not published" in str(done.exception)
    assert not (environment.restore_bundles or Path()).exists()


@pytest.fixture
def published(job: Path, environment: Settings, tmp_path: Path) -> Path:
    """The same job with a report of good results, published."""
    finished = tmp_path / "job"
    finished.mkdir()
    for file in (job / "job").iterdir():
        (finished / file.name).write_bytes(file.read_bytes())
    report = json.loads((finished / "report.json").read_text())
    report["controls"] |= {"own_profile": 0.9, "constant": 0.3, "another": 0.1, "redacted": 0.3}
    (finished / "report.json").write_text(json.dumps(report))
    done = run("publish", finished, "--signing-key", job / "key.pem", "--by", "ann")
    assert done.stdout.splitlines()[-1].startswith("clinic@1, SHA-256 ")
    return finished


def test_publishing_is_in_the_audit_trail(published: Path, environment: Settings, tmp_path: Path) -> None:
    records = make_records(tmp_path, settings=environment)
    (event,) = records.audit.events(kinds=[BundlePublished.kind])
    assert isinstance(event.particulars, BundlePublished)
    said = event.particulars.sentence(str)
    assert said.startswith("ann published clinic@1.")
    assert "the ward's board" in said
    assert "consented" in said


class FirstOption(Doctor):
    """An engine that answers every question with the first illness."""

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        if task.kind == "generate":
            return await super().zero_shot(task, query)
        self.texts.append(query["text"])
        return ZeroShot(np.eye(len(task.labels))[0])


@pytest.fixture
def url(published: Path, environment: Settings, tmp_path: Path) -> Iterator[tuple[str, str, Doctor]]:
    """The address of the service on this machine, an analyst's key, and the engine."""
    doctor = FirstOption()
    services = open_services(make_records(tmp_path, settings=environment), doctor, EMBEDDER)
    with listening(create_app(services)) as address:
        yield address, services.records.keys.create("ann", "analyst")[1], doctor


def test_preview_and_ask(url: tuple[str, str, Doctor]) -> None:
    address, key, doctor = url
    row = WORLD.patients(1, 3)[0]
    spans = [part for span in row["spans"] for part in ("--span", span)]  # type: ignore[attr-defined]
    report, *marked = row["spans"]  # type: ignore[misc]
    found = run("preview", str(row["text"]), "--find", "--url", address, "--key", key, "--bundle", "clinic@1").output
    assert "Reports: ___." in found
    assert f"Taken out: {', '.join([report, *marked])}" in found
    other = str(row["text"]).replace(str(report), f"severe {report}")
    found = run("preview", other, "--find", "--url", address, "--key", key, "--bundle", "clinic@1").output
    assert f"severe {report} (as {report})" in found
    where = ["--url", address, "--key", key, "--bundle", "clinic@1"]
    seen = run("preview", row["text"], *spans, *where).output
    assert seen.startswith("Known: ")
    assert "Reports: ___." in seen
    assert "Costs ε = 4; 0 of 40 spent" in seen
    assert "redacted text alone" in seen
    assert doctor.texts == []
    first = json.loads(run("ask", row["text"], *spans, *where, "--json").output)
    assert first["answer"] == WORLD.illnesses[0]
    assert first["spent"] == 4
    again = run("ask", row["text"], *spans, *where)
    assert WORLD.illnesses[0] in again.output
    assert "ε spent: 4 of 40" in again.output
    assert doctor.texts[0] == doctor.texts[1]
    written = run("ask", row["text"], *spans, *where, "--free-text").output
    assert "Take rest: Known: " in written
    assert "ε spent: 4 of 40" in written  # the same number, for another kind of answer
    assert "costs ε = 4" in str(run("ask", "x", *where, "--budget", 5, fails=True).exception)
    assert "does not occur" in str(run("ask", "x", "--span", "fever", *where, fails=True).exception)
    assert "API key" in str(run("ask", "x", "--bundle", "clinic@1", fails=True).exception)
