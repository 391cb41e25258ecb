"""Files that commands make: their owner alone can read them, whatever the umask."""

import ast
import base64
import os
import resource
import secrets
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.overlays import ROOT
from tests.service.shell import Shell, create

WRITERS = {
    "exemplar_store/spool.py": "temporary",
    "research/evaluation/dataset.py": "temporary",
    "research/evaluation/replies.py": "mode",
    "research/evaluation/tables.py": "command",
    "research/restore/job.py": "command",
    "research/restore/orpo.py": "command",
    "sanitization/cache.py": "public: vectors of public words",
    "sanitization/restore/bundle.py": "mode",
    "sanitization/restore/ledger.py": "mode",
    "sanitization/table.py": "public: laws of a mechanism",
    "service/cli/ask.py": "command",
    "service/cli/batch_answers.py": "mode",
    "service/cli/database.py": "mode",
    "service/cli/output.py": "command",
    "service/engines/vllm/model_folder.py": "public: a model's weights",
    "service/engines/vllm/steered.py": "temporary",
    "service/records/database.py": "mode",
    "service/records/text_ledger.py": "mode",
    "service/serving/departure.py": "mode",
    "service/serving/local_ray.py": "temporary",
    "service/serving/synthetic/setup.py": "temporary",
    "service/sources/cursor.py": "command",
}
"""Modules that make files or folders, and what keeps others out: the `mode` that the module itself gives, a `command`'s
umask, a `temporary` file or folder of its owner's, or nothing, since what it writes is `public`."""
_MAKERS = {"write_text", "write_bytes", "mkdir", "makedirs", "mkdtemp", "mkstemp", "TemporaryDirectory",
           "TemporaryFile", "NamedTemporaryFile", "savez", "save_file", "open_memmap", "symlink_to"}  # fmt: skip


def makes_files(source: str) -> bool:
    """Whether a module calls something that makes a file or a folder."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [*call.args[:2], *(keyword.value for keyword in call.keywords)]
        modes = {str(one.value) for one in given if isinstance(one, ast.Constant)}
        if name in _MAKERS or ast.unparse(call.func) == "torch.save" or (name == "touch" and not call.args):
            return True
        if name == "open" and modes & {"w", "a", "x", "wb", "ab", "xb", "r+b"}:
            return True
    return False


def test_every_module_that_makes_files_is_known() -> None:
    packages = ("accounting", "aggregation", "exemplar_store", "research", "sanitization", "service", "spelling")
    modules = [file for package in packages for file in (ROOT / package).rglob("*.py") if "studies" not in file.parts]
    found = {str(file.relative_to(ROOT)) for file in modules if makes_files(file.read_text())}
    assert found == WRITERS.keys()


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key, where commands make their database."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(base64.b64encode(secrets.token_bytes(32)))
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY_FILE", str(key))
    monkeypatch.delenv("DPICL_ENCRYPTION_KEY", raising=False)
    monkeypatch.delenv("DPICL_WITNESS_URL", raising=False)
    monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/data/own.sqlite")
    monkeypatch.delenv("DPICL_DEVELOPMENT", raising=False)
    return tmp_path


def open_to_others(folder: Path) -> set[str]:
    """Names of files and folders on which others have a right."""
    return {file.name for file in folder.rglob("*") if stat.S_IMODE(file.stat().st_mode) & 0o077}


def test_databases_backups_and_exports_are_the_owners(dpicl: Shell, own: Path) -> None:
    create(dpicl)
    dpicl.ok("ledger", "backup", own / "backup.sqlite")
    dpicl.ok("audit", "export", own / "trail.jsonl")
    assert {"own.sqlite", "own.witness.sqlite", "backup.sqlite", "trail.jsonl"} <= {one.name for one in own.rglob("*")}
    assert open_to_others(own) == set()


def test_an_export_over_another_file_is_the_owners_and_a_failed_one_leaves_it(dpicl: Shell, own: Path) -> None:
    create(dpicl)
    file = own / "trail.jsonl"
    file.write_text("before")
    file.chmod(0o644)
    dpicl.ok("audit", "export", file)
    assert open_to_others(own) == set()
    whole = file.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))
    try:
        written = dpicl("audit", "export", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert written[0] == 1
    assert file.read_bytes() == whole
    assert not [one for one in own.rglob("*") if one.suffix == ".new"]


def test_a_database_without_a_command_and_the_files_beside_it_are_the_owners(tmp_path: Path) -> None:
    from service.records.database import open_database

    database = open_database(f"sqlite:///{tmp_path}/library.sqlite")
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE one (a INTEGER)")
        assert {one.name for one in tmp_path.iterdir()} >= {f"library.sqlite{end}" for end in ("", "-wal", "-shm")}
        assert open_to_others(tmp_path) == set()
    database.dispose()


def test_a_database_that_others_can_read_is_reported(dpicl: Shell, own: Path) -> None:
    create(dpicl)
    assert "database_readable_by_others" not in dpicl("kb", "list")[2]
    (own / "data" / "own.sqlite").chmod(0o644)
    status, _, said = dpicl("kb", "list")
    assert status == 0
    assert "database_readable_by_others" in said
    assert f"chmod 600 {own}/data/own.sqlite" in " ".join(said.split())


def test_a_key_that_others_can_read_opens_nothing(dpicl: Shell, own: Path) -> None:
    (own / "key").chmod(0o644)
    assert "other users can read it: chmod 600" in dpicl.fails("kb", "create", "toys", "--epsilon", "8", "--yes",
                                                              "--delta", "2e-4", "--public-size", 60)  # fmt: skip
    assert not (own / "data").exists()
