"""The page on the signed trail, executed as written, and what becomes of an export that was tampered with."""

import json
from pathlib import Path

import pytest

from service.records.audit_key import make_signer
from tests.documented import DOCS, blocks, reader, run
from tests.service.shell import Shell, create

pytestmark = pytest.mark.slow


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    environment = {
        **reader(),
        "DPICL_DEVELOPMENT": "true",
        "DPICL_DATABASE_URL": f"sqlite:///{tmp_path}/service.sqlite",
    }
    first = "dpicl kb create toys --epsilon 8 --delta 2e-4 --public-size 60 --yes\n"
    commands = blocks(DOCS / "audit.md", "sh")
    assert len(commands) == 4
    printed = run(first + "".join(commands), tmp_path, environment)
    assert printed.count("dp-icl.example.org/audit signed the trail up to event 1\n") == 2
    assert "witness.example.org cosigned the trail up to event 1 at 20" in printed
    assert "Signature Verified Successfully" in printed
    assert (tmp_path / "audit.pem").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def export(dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed export of two events."""
    make_signer(tmp_path / "audit.pem", "a.example")
    monkeypatch.setenv("DPICL_AUDIT_KEY_FILE", str(tmp_path / "audit.pem"))
    monkeypatch.setenv("DPICL_AUDIT_ORIGIN", "a.example")
    create(dpicl)
    dpicl.ok("keys", "create", "ana")
    dpicl.ok("audit", "export", tmp_path / "trail.ndjson")
    return tmp_path / "trail.ndjson"


def test_a_cut_export_exits_with_1(dpicl: Shell, export: Path, tmp_path: Path) -> None:
    verifier = dpicl.ok("audit", "key", tmp_path / "audit.pem", "a.example").strip()
    assert dpicl.ok("audit", "verify").startswith("a.example signed the trail up to event 2")
    shown = json.loads(dpicl.ok("audit", "verify", export, "--key", verifier, "--json"))
    assert shown["signatures"] == [
        {"origin": "a.example", "size": 2, "signed_by": "a.example", "cosigned_at": None},
    ]
    assert "give its verifier key with --key" in dpicl.ok("audit", "verify", export)
    first, _, last = export.read_text().splitlines(keepends=True)
    event, end = json.loads(first), json.loads(last)
    end["end"] = {"hash": event["hash"], "sequence": 1}
    export.write_text(first + json.dumps(end) + "\n")
    status, out, _ = dpicl("audit", "verify", export, "--key", verifier)
    assert (status, "it was cut" in out) == (1, True)


def test_other_files_than_keys_and_checkpoints_are_refused(dpicl: Shell, export: Path, tmp_path: Path) -> None:
    assert "is not a verifier key: `dpicl audit key` prints one" in dpicl.fails("audit", "verify", export, "--key", "x")
    assert "trail.ndjson: it is not a checkpoint" in dpicl.fails("audit", "verify", export, "--checkpoint", export)
    (tmp_path / "binary").write_bytes(b"\xff")
    assert "binary" in dpicl.fails("audit", "verify", export, "--checkpoint", tmp_path / "binary")


def test_an_admin_without_a_key_is_shown_how_to_sign(dpicl: Shell) -> None:
    create(dpicl)
    assert "makes a key with `dpicl audit key`" in dpicl.fails("audit", "checkpoint")


def test_a_keeper_needs_a_witness(dpicl: Shell, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpicl.ok("audit", "checkpoint", tmp_path / "kept.txt")
    verifier = dpicl.ok("audit", "key", tmp_path / "audit.pem", "a.example").strip()
    dpicl.ok("audit", "key", tmp_path / "witness.pem", "w.example", "--witness")
    cosign = ("audit", "cosign", tmp_path / "kept.txt", "--key-file", tmp_path / "witness.pem", "--name", "w.example")
    before = (tmp_path / "kept.txt").read_text()
    for url, problem in (("none", "name the witness's database"), (f"sqlite:///{tmp_path}/no.sqlite", "is not there")):
        monkeypatch.setenv("DPICL_WITNESS_URL", url)
        assert problem in dpicl.fails(*cosign, "--key", verifier)
    assert (tmp_path / "kept.txt").read_text() == before
