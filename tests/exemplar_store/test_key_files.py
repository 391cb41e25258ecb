"""Files of keys: which rights are refused."""

import os
from pathlib import Path

import pytest

from exemplar_store.key_files import ReadableKeyError, read_key_file


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(b"secret")
    return file


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700, 0o620, 0o602])
def test_a_key_that_its_owner_alone_reads_is_read(key: Path, mode: int) -> None:
    key.chmod(mode)
    assert read_key_file(key) == b"secret"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o444, 0o440])
def test_a_key_that_others_read_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    link = key.with_name("link")
    link.symlink_to(key)
    for file in (key, link):
        with pytest.raises(ReadableKeyError, match=f"chmod 600 {file}"):
            read_key_file(file)


def test_a_mounted_secret_may_be_read_by_the_group_of_the_service(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # root mounts it, for the pod's group
    key.chmod(0o440)
    assert read_key_file(key) == b"secret"
    key.chmod(0o444)
    with pytest.raises(ReadableKeyError):
        read_key_file(key)


def test_a_pipe_has_no_readers_but_this_one(tmp_path: Path) -> None:
    """Such as ``--new-key-file <(...)``."""
    reading, writing = os.pipe()
    os.write(writing, b"secret")
    os.close(writing)
    assert read_key_file(Path(f"/dev/fd/{reading}")) == b"secret"
    os.close(reading)
