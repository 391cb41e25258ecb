"""Exported exemplars, checked with the command line against the database and against an export of its trail."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service.answering.plans.exported import certificate_of, problems
from service.answering.plans.signing import sign
from tests.service.answering.test_once import PLAN, VOTED, alone, embed, noisy, opened
from tests.service.shell import Shell


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of two plans, and its trail."""
    folder = tmp_path_factory.mktemp("exported")
    records = opened(folder, f"sqlite:///{folder}/cli.sqlite")
    sign(records, noisy(alone(VOTED)), "test", embed=embed)
    sign(records, noisy(PLAN), "test", embed=embed)
    (folder / "trail.ndjson").write_text("".join(records.audit.export()))
    records.database.dispose()
    return folder


@pytest.fixture
def dpicl(dpicl: Shell, made: Path) -> Shell:
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{made}/cli.sqlite")
    dpicl.monkeypatch.setenv("DPICL_WITNESS_URL", "none")
    return dpicl


@pytest.fixture
def exported(dpicl: Shell, tmp_path: Path) -> Path:
    file = tmp_path / "exemplars.jsonl"
    for before in (file, certificate_of(file)):  # which others can read
        before.write_text("before")
        before.chmod(0o644)
    dpicl.ok("plan", "export", "toys.for-ever@1", file)
    return file


@pytest.mark.slow
def test_they_are_what_was_chosen(exported: Path, made: Path, dpicl: Shell) -> None:
    assert {one.stat().st_mode & 0o777 for one in (exported, certificate_of(exported))} == {0o600}
    rows = [json.loads(line) for line in exported.read_text().splitlines()]
    assert rows == [{"text": "a red brick", "label": "red"}, {"text": "a blue brick", "label": "blue"}]
    certificate = json.loads(certificate_of(exported).read_text())
    assert (certificate["task"], certificate["epsilon"], certificate["delta"]) == ("toys.for-ever@1", 90, 1e-4)
    for trail in ([], [made / "trail.ndjson"]):
        assert "nothing wrong" in dpicl.ok("audit", "verify", *trail, "--exemplars", exported)
    certificate_of(exported).unlink()
    status, out, _ = dpicl("audit", "verify", made / "trail.ndjson", "--exemplars", exported)
    assert (status, "WRONG" in out) == (1, True)


def changed(**members: object) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        certificate = certificate_of(file)
        certificate.write_text(json.dumps({**json.loads(certificate.read_text()), **members}))

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda file: file.write_text(file.read_text().replace("brick", "ball")), "not those of"),
        (lambda file: file.write_bytes(b"".join(file.read_bytes().splitlines(True)[::-1])), "not those of"),
        (changed(exemplars_sha256="0" * 64), "not those of"),
        (changed(answer={"votes": {"0": 1000.0}}), "votes or texts"),
        (changed(release="another"), "votes or texts"),
        (changed(plan_sha256="0" * 64), "the plan is not"),
        (changed(epsilon=1.0), "costs ε = 90"),
        (changed(task="toys.for-ever@2"), "votes or texts"),
        (changed(task="toys.for-ever@7"), "the task toys.for-ever@7"),
        (changed(note="more"), "cannot be read"),
        (lambda file: certificate_of(file).unlink(), "cannot be read"),
    ],
)
def test_what_was_changed_is_found(change: Callable[[Path], None], problem: str, exported: Path, made: Path) -> None:
    change(exported)
    with (made / "trail.ndjson").open() as trail:
        assert any(problem in found for found in problems(exported, trail))


def test_other_tasks_choose_none(exported: Path, dpicl: Shell) -> None:
    file = exported.parent / "more.jsonl"
    for task in ("toys.for-ever@2", "toys.colour"):
        assert "no exemplars" in dpicl.fails("plan", "export", task, file)
    assert not file.exists()
