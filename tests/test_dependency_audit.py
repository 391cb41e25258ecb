"""The audit of pinned packages, against a small index over HTTP."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "audit_dependencies.py"
TODAY = date(2030, 6, 1)

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
    """An index with these documents, by what follows the name of the host; it answers other requests with a status."""

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


def run(file: Path, *acknowledged: dict[str, Any]) -> Any:
    with index(DOCUMENTS) as url:
        return audits.audit([file, file], url, acknowledged, TODAY)


def test_versions_are_vouched_for_named_or_wrong(tmp_path: Path) -> None:
    pinned = (
        "clean==1.0",
        "newest==2.0",
        "withdrawn==1.0",
        "older==2.0",
        "silent==2.0",
        "absent==1",
        "built==2.13.0+cpu",
    )
    report = run(lock(tmp_path, *pinned))
    assert report.unknown == ["absent==1", "silent==2.0"]
    assert report.vouched == 5
    assert report.wrong == [
        "newest==2.0: GHSA-1 PYSEC-1, mended in 2.1, 3.0",
        "older==2.0: PYSEC-2, mended in no version",
    ]


@pytest.mark.parametrize(
    ("until", "id", "wrong"),
    [
        (date(2030, 6, 1), "PYSEC-1", None),
        (date(2030, 6, 1), "GHSA-1", None),
        (date(2030, 5, 31), "PYSEC-1", "has run out"),
        (date(2031, 1, 1), "PYSEC-7", "not there any more"),
    ],
)
def test_an_acknowledgement_fits_one_vulnerability_and_runs_out(
    tmp_path, until: date, id: str, wrong: str | None
) -> None:
    entry = {"package": "newest", "id": id, "reason": "never called", "until": until}
    report = run(lock(tmp_path, "newest==2.0", "clean==1.0"), entry)
    assert any(wrong in line for line in report.wrong) if wrong else report.wrong == []
    assert report.accepted == ([] if wrong else ["newest==2.0: GHSA-1 PYSEC-1, mended in 2.1, 3.0: never called"])


@pytest.mark.slow
def test_an_audit_that_finds_nothing_out_is_none(tmp_path: Path) -> None:
    assert "this was no audit" in run(lock(tmp_path, "silent==2.0", "absent==1")).wrong[0]
    for documents, otherwise in (({}, 503), ({"clean": {"info": {"version": "1.0"}}}, 404)):
        with index(documents, otherwise) as url, pytest.raises(audits.SilentIndexError):
            audits.audit([lock(tmp_path, "clean==1.0")], url, [], TODAY)
    with pytest.raises(audits.SilentIndexError, match="ConnectError"):
        audits.audit([lock(tmp_path, "clean==1.0")], url, [], TODAY)


@pytest.mark.slow
def test_the_command_asks_the_index_that_pip_asks(tmp_path: Path) -> None:
    file = lock(tmp_path, "clean==1.0", "newest==2.0", "silent==2.0")
    with index(DOCUMENTS) as url:
        environment = {"PIP_INDEX_URL": url.replace("/pypi", "/simple/"), "PIP_CONFIG_FILE": "/dev/null"}
        done = subprocess.run(
            [sys.executable, SCRIPT, file], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert "NOT AUDITED, 1 packages" in done.stdout
    assert "silent==2.0" in done.stdout
    assert "2 audited, 1 not, 0 acknowledged" in done.stdout
    assert done.stderr == "WRONG: newest==2.0: GHSA-1 PYSEC-1, mended in 2.1, 3.0\n"


def test_what_is_acknowledged_here_has_its_reason() -> None:
    for entry in audits.tomllib.loads(audits.ACKNOWLEDGED.read_text()).get("acknowledged", []):
        assert entry.keys() == {"package", "id", "reason", "until"}
        assert len(entry["reason"]) > 20
