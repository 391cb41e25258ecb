"""The audit of pinned packages, against a small index over HTTP."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "audit_dependencies.py"

spec = importlib.util.spec_from_file_location("audit_dependencies", SCRIPT)
audits = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = audits
spec.loader.exec_module(audits)


def document(version: str, *vulnerabilities: dict[str, Any]) -> dict[str, Any]:
    return {"info": {"version": version}, "vulnerabilities": vulnerabilities}


def vulnerability(id: str, *aliases: str, fixed_in: tuple[str, ...] = ("3.0", "2.1"), **more: Any) -> dict[str, Any]:
    return {"id": id, "aliases": aliases, "fixed_in": fixed_in, "details": "bad", **more}


@contextmanager
def index(documents: dict[str, dict[str, Any]], otherwise: int = 404) -> Iterator[str]:
    """An index with these documents, by name or by name and version; it answers other requests with a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = documents.get(self.path.removeprefix("/pypi/").removesuffix("/json"))
            self.send_response(otherwise if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}/pypi"
        server.shutdown()


def lock(folder: Path, *pinned: str) -> Path:
    file = folder / "requirements.lock"
    file.write_text("".join(f"{one} \\\n    --hash=sha256:{'0' * 64}\n" for one in pinned))
    return file


DOCUMENTS = {
    "clean": document("1.0"),
    "newest": document("2.0", vulnerability("GHSA-1", "PYSEC-1"), vulnerability("PYSEC-1", "GHSA-1")),
    "withdrawn": document("1.0", vulnerability("PYSEC-9", withdrawn="2029-01-01")),
    "older": document("9.0"),
    "older/2.0": document("2.0", vulnerability("PYSEC-2", fixed_in=())),
    "silent": document("9.0"),
    "built": document("2.13.0"),
}


def run(file: Path) -> bool:
    with index(DOCUMENTS) as url:
        return audits.audit([file, file], url)


def test_versions_are_vouched_for_named_or_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pinned = (
        "clean==1.0",
        "newest==2.0",
        "withdrawn==1.0",
        "older==2.0",
        "silent==2.0",
        "absent==1",
        "built==2.13.0+cpu",
    )
    assert not run(lock(tmp_path, *pinned))
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "NOT AUDITED, 2 packages of which the index knows a newer version alone: absent==1 silent==2.0",
        "5 audited, 2 not",
    ]
    assert shown.err.splitlines() == [
        "WRONG: newest==2.0: GHSA-1 PYSEC-1, fixed in 2.1, 3.0",
        "WRONG: older==2.0: PYSEC-2, fixed in no version",
    ]


@pytest.mark.parametrize(("id", "fits"), [("PYSEC-1", True), ("GHSA-1", True), ("PYSEC-7", False)])
def test_an_acknowledgement_fits_one_vulnerability(
    tmp_path: Path, id: str, fits: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audits, "ACKNOWLEDGED", {("newest", id): "never called"})
    assert run(lock(tmp_path, "newest==2.0", "clean==1.0")) is fits
    shown = capsys.readouterr()
    assert ("GHSA-1 PYSEC-1, fixed in 2.1, 3.0: never called" in shown.out) is fits
    assert ("no longer there" in shown.err) is not fits


@pytest.mark.slow
def test_an_audit_that_learns_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(lock(tmp_path, "silent==2.0", "absent==1"))
    assert "this was no audit" in capsys.readouterr().err
    clean = [lock(tmp_path, "clean==1.0")]
    with index({}, 503) as url, pytest.raises(httpx.HTTPStatusError):
        audits.audit(clean, url)
    with index({"clean": {"info": {"version": "1.0"}}}) as url, pytest.raises(KeyError):
        audits.audit(clean, url)
    with pytest.raises(httpx.ConnectError):
        audits.audit(clean, url)


@pytest.mark.slow
def test_the_command_asks_the_index_that_pip_asks(tmp_path: Path) -> None:
    file = lock(tmp_path, "clean==1.0", "newest==2.0", "silent==2.0")
    command = [sys.executable, SCRIPT, file]
    with index(DOCUMENTS) as url:
        environment = {"PIP_INDEX_URL": url.replace("/pypi", "/simple/"), "PIP_CONFIG_FILE": "/dev/null"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "2 audited, 1 not"
    assert done.stderr == "WRONG: newest==2.0: GHSA-1 PYSEC-1, fixed in 2.1, 3.0\n"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n"), "ConnectError" in done.stderr) == (1, 1, True)
