"""Installation with pip in a plain environment that grows: a client first, then the server, then research."""

import json
import os
import re
import subprocess
import venv
from dataclasses import dataclass
from operator import ne
from pathlib import Path

import httpx
import pytest

from service.operations.services import Services
from service.serving.synthetic.setup import QUESTIONS
from service.serving.web import create_app
from tests.deploy.test_images import pins
from tests.documented import run
from tests.e2e.serving import made_up
from tests.processes import free_ports, listening
from tests.service.cli.test_wheel import build
from tests.service.conftest import PLAN

pytestmark = pytest.mark.lengthy


@dataclass
class Plain:
    """An environment outside the repository, in which our wheel is installed with the tested versions."""

    folder: Path

    def __post_init__(self) -> None:
        self.wheel = build(self.folder)
        self.versions = self.folder / "constraints.txt"
        self.versions.write_text("".join(f"{name}=={version}\n" for name, version in pins("requirements.lock").items()))
        venv.create(self.folder / "venv", with_pip=True)
        self.bin = self.folder / "venv" / "bin"
        # Without variables of this repository, or of another service.
        self.outside = {name: value for name, value in os.environ.items() if not name.startswith(("DPICL_", "PYTHON"))}
        folders = {name: str(self.folder) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        self.environment = self.outside | folders | {"COLUMNS": "200", "PATH": path}

    def pip(self, *args: object) -> bytes:
        command = [self.bin / "python", "-m", "pip", "--disable-pip-version-check", *args]
        return subprocess.run(command, env=self.outside, check=True, stdout=subprocess.PIPE).stdout

    def install(self, extra: str = "", *others: str) -> set[str]:
        """Install the wheel with an extra, and other packages; return the names of all packages installed then."""
        self.pip("install", "-q", "--no-compile", "-c", self.versions, f"{self.wheel}{extra}", *others)
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
        """Check that a command fails with one line, which names the extra to install."""
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
    for command in (("serve",), ("kb", "list"), ("plan", "--help")):
        plain.needs("server", *command)
    both = plain.dpicl("budget", fails=True)
    assert re.fullmatch(r"error: .* set DPICL_URL and DPICL_API_KEY .* pip install 'dp-icl\[server\]'\n", both), both
    for command in (
        ("eval", "--help"),
        ("attack", "--help"),
        ("restore", "train", "--help"),
        ("sanitize", "attack"),
        ("sanitize", "audit"),
    ):
        plain.needs("research", *command)


EXEMPLARS = [
    {"text": text, "team": "Shipping", "reply": "Shipping leaves with the van at noon."}
    for text in ("My parcel is late.", "The courier left the box in the rain.", "Where is my order?")
]


def test_with_server_a_newcomer_pastes_what_it_prints(plain: Plain, tmp_path: Path) -> None:
    """``dpicl serve --synthetic`` prints commands that get answers. One of them asks with OpenAI's client."""
    installed = plain.install("[server]", "openai")
    assert "ray" in installed
    assert not installed & {"rapidfuzz", "matplotlib", "pytest"}
    plain.needs("research", "eval", "--help")
    plain.needs("research", "restore", "train", "--help")
    plain.needs("research", "sanitize", "attack")
    (port,) = free_ports(1)
    program = str(plain.bin / "dpicl")
    with made_up(tmp_path, "--port", str(port), program=program, environment=plain.environment) as printed:
        url = f"http://127.0.0.1:{port}"
        commands = printed.split("in another terminal:\n")[1].split("The budget, and")[0]
        commands = re.sub(r"^  ", "", commands, flags=re.MULTILINE)
        printed_then = run(commands + "\ndpicl budget", tmp_path, plain.environment)
        said = " ".join(printed_then.split())
        assert said.count("MADE-UP DATA") >= 3  # dpicl ask, curl, dpicl budget
        assert "97" in said  # of 100 answers, after three questions
        by_curl, by_openai = re.search(r'"label": ?"(\w+)".*?}\s*(\w+)$', printed_then, re.MULTILINE).groups()
        answers = (printed_then.split()[0], by_curl, by_openai)
        # The noise makes one of them wrong in less than one run in a hundred, and two in less than one in a million.
        assert sum(map(ne, answers, QUESTIONS.values())) <= 1, answers
        admin = printed.split("this key:")[1].split()[0]
        dashboard = httpx.get(f"{url}/admin/", follow_redirects=True, timeout=30)
        assert dashboard.status_code == 200
        own = httpx.post(
            f"{url}/v1/knowledge-bases/support/exemplars",
            content='{"unit_id": "me", "text": "x", "team": "Security", "desk": "Office", "reply": "y"}',
            headers={"Authorization": f"Bearer {admin}", "Content-Type": "application/x-ndjson"},
            timeout=60,
        )
        assert own.status_code == 403
        assert own.json()["type"].endswith("made-up-data")
        analyst = {"Authorization": f"Bearer {re.search(r'DPICL_API_KEY=(.*)', printed).group(1)}"}
        for task in ("team", "page", "topics", "rules"):  # every mechanism, on the engine in its own process
            body = {"query": "Where is my parcel?", "exemplars": EXEMPLARS, "repeats": 5}
            shown = httpx.post(f"{url}/v1/tasks/support.{task}/preview", json=body, headers=analyst, timeout=60).json()
            assert shown["preview"] is True
            assert shown["answered"] > 0
            assert shown["exemplars"]["supplied"] == len(EXEMPLARS)
        assert shown["noiseless"]["keywords"] == ["leaves", "noon", "shipping", "van"]
        database = Path(re.search(r"DPICL_DATABASE_URL=sqlite:///(\S+)", printed).group(1))
        assert database.is_file()
    assert not database.parent.exists()
    assert not (tmp_path / "var").exists()


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
