"""What `pip install` gives, in a plain environment that grows: a client, then the server, then research."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.operations.services import Services
from service.serving.web import create_app
from tests.deploy.overlays import ROOT
from tests.deploy.test_images import pins
from tests.processes import answers, free_ports, listening
from tests.service.conftest import PLAN

pytestmark = pytest.mark.lengthy

PACKAGES = ("accounting", "aggregation", "exemplar_store", "research", "sanitization", "service")


@dataclass
class Plain:
    """An environment outside the repository, and our wheel, installed in it with the versions that are tested."""

    folder: Path

    def __post_init__(self) -> None:
        source = self.folder / "source"
        for package in PACKAGES:
            shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, source)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, source, "-w", self.folder], check=True)
        (self.wheel,) = self.folder.glob("*.whl")
        self.versions = self.folder / "constraints.txt"
        self.versions.write_text("".join(f"{name}=={version}\n" for name, version in pins("requirements.lock").items()))
        venv.create(self.folder / "venv", with_pip=True)
        self.bin = self.folder / "venv" / "bin"
        # Nothing of this repository, nor of another service.
        self.outside = {name: value for name, value in os.environ.items() if not name.startswith(("DPICL_", "PYTHON"))}
        folders = {name: str(self.folder) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        self.environment = self.outside | folders | {"COLUMNS": "200"}

    def pip(self, *args: object) -> bytes:
        command = [self.bin / "python", "-m", "pip", "--disable-pip-version-check", *args]
        return subprocess.run(command, env=self.outside, check=True, stdout=subprocess.PIPE).stdout

    def install(self, extra: str = "") -> set[str]:
        """What is installed then."""
        self.pip("install", "-q", "--no-compile", "-c", self.versions, f"{self.wheel}{extra}")
        return {re.sub(r"[-_.]+", "-", one["name"]).lower() for one in json.loads(self.pip("list", "--format=json"))}

    def dpicl(self, *args: object, fails: bool = False, stdin: str = "") -> str:
        done = subprocess.run(
            [self.bin / "dpicl", *map(str, args)],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    def needs(self, extra: str, *command: object) -> None:
        """A command says which extra to install, and nothing else."""
        said = self.dpicl(*command, fails=True)
        assert re.fullmatch(rf"error: this command .*: pip install 'dp-icl\[{extra}\]'\n", said), said


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    return Plain(tmp_path_factory.mktemp("plain"))


def test_alone_it_is_a_client(plain: Plain, services: Services, tmp_path: Path) -> None:
    assert not plain.install() & {"ray", "torch", "opendp", "fastapi", "scipy", "sentence-transformers"}
    key = services.records.keys.create("ann", "analyst")[1]
    questions = tmp_path / "questions.csv"
    questions.write_text("text\nanother toy\na third toy\n")
    with listening(create_app(services)) as url:
        at = ("--url", url, "--key", key)
        assert json.loads(plain.dpicl("ask", "toys.colour", "a toy", *at, "--json"))["label"] in ("red", "blue")
        plain.dpicl("batch", "toys.colour", questions, "--out", tmp_path / "answers.jsonl", *at)
        assert "toys.colour@1" in plain.dpicl("budget", *at)
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2
    said = plain.dpicl("sanitize", "--epsilon", 25, stdin="My landlord in Boston keeps the zyzzyva.\n")
    assert re.fullmatch(r"My \w+ in \w+ \w+ the \w+\.\n", said)
    for command in (("serve",), ("kb", "list"), ("plan", "--help"), ("budget",)):
        plain.needs("server", *command)
    for command in (("eval", "--help"), ("restore", "train", "--help"), ("sanitize", "attack"), ("sanitize", "audit")):
        plain.needs("research", *command)


def test_with_server_it_serves(plain: Plain) -> None:
    installed = plain.install("[server]")
    assert "ray" in installed
    assert not installed & {"rapidfuzz", "matplotlib", "pytest"}
    (port,) = free_ports(1)
    url, log = f"http://127.0.0.1:{port}", plain.folder / "serve.log"
    with log.open("wb") as sink:
        command = [plain.bin / "dpicl", "serve", "--synthetic", "--port", str(port)]
        process = subprocess.Popen(command, cwd=plain.folder, env=plain.environment, stdout=sink, stderr=sink)
    try:
        deadline = time.monotonic() + 600
        while not (key := re.search(r"DPICL_API_KEY=(\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        assert answers(f"{url}/readyz")
        assert "charged" in plain.dpicl("ask", "support.team", "My parcel is late.", "--url", url, "--key", key[1])
    finally:
        process.terminate()
        process.wait(60)
    plain.needs("research", "eval", "--help")
    plain.needs("research", "restore", "train", "--help")
    plain.needs("research", "sanitize", "attack")


def test_with_research_it_evaluates(plain: Plain, tmp_path: Path) -> None:
    plain.install("[research]")
    rows = [{"unit_id": str(n), "text": f"toy {n}", "label": ("red", "blue")[n % 2]} for n in range(60)]
    for name, some in (("train", rows), ("test", rows[:3])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    (tmp_path / "plan.yaml").write_text(PLAN)
    said = plain.dpicl("eval", tmp_path, "--plan", tmp_path / "plan.yaml", "--draws", 2, "--epsilon", 1)
    assert "toys.colour, 3 test queries" in said
    assert "medoid_rr" in plain.dpicl("sanitize", "attack", "--words", 60, "--mechanism", "medoid_rr")
    assert "--job" in plain.dpicl("restore", "train", "--help")
