"""The audit trail's key: one that cannot be used stops the start, with the remedy."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from accounting.ledger.notes import LOG, WITNESS, NoteError, VerifierKey
from service.records.audit_key import AuditKeyError, make_signer, read_signer
from service.records.records import open_records
from service.settings import Settings
from tests.service.conftest import development
from tests.service.shell import Shell

NAME = "dp-icl.example.org/audit"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "audit.pem"
    make_signer(made, NAME)
    return made


def opened(folder: Path, file: Path, name: str = NAME) -> None:
    open_records(development(folder, audit_key_file=file, audit_origin=name)).database.dispose()


def test_a_key_is_made_for_its_owner_alone_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "audit.pem"
    before = os.umask(0)
    try:
        made = make_signer(file, NAME)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert isinstance(load_pem_private_key(file.read_bytes(), None), Ed25519PrivateKey)
    assert make_signer(file, NAME).verifier() == made.verifier() == read_signer(file, NAME).verifier()


def test_a_key_that_openssl_made_is_one(tmp_path: Path) -> None:
    file = tmp_path / "audit.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True)
    file.chmod(0o600)
    opened(tmp_path, file)


def test_the_service_opens_with_a_key(tmp_path: Path, file: Path) -> None:
    opened(tmp_path, file)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(AuditKeyError, match=rf"DPICL_AUDIT_KEY_FILE: .*other users can read it: chmod 600 {file}"):
        opened(tmp_path, file)


def test_a_file_without_such_a_key_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(AuditKeyError, match=r"DPICL_AUDIT_KEY_FILE: .*missing.pem cannot be read .*dpicl audit key"):
        opened(tmp_path, tmp_path / "missing.pem")
    for command, problem in (
        (["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "another kind than Ed25519"),
        (["genpkey", "-algorithm", "x25519"], "another kind than Ed25519"),
        (["genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:x"], "protected by a password"),
    ):
        subprocess.run(["openssl", *command, "-out", file], check=True, capture_output=True)
        with pytest.raises(AuditKeyError, match=problem):
            opened(tmp_path, file)
    public = subprocess.run(["openssl", "pkey", "-in", file, "-passin", "pass:x", "-pubout"], capture_output=True)
    for content in (b"", b"\xff", public.stdout):
        file.write_bytes(content)
        with pytest.raises(AuditKeyError, match="no private key in PEM"):
            opened(tmp_path, file)


def test_a_name_that_cannot_be_signed_by_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(NoteError, match="cannot name a key: write an address without https://"):
        opened(tmp_path, file, "our audit trail")


def test_a_key_needs_a_name_and_a_name_a_key(tmp_path: Path, file: Path) -> None:
    with pytest.raises(ValueError, match="needs DPICL_AUDIT_ORIGIN, too"):
        Settings(audit_key_file=file)
    with pytest.raises(ValueError, match="needs DPICL_AUDIT_KEY_FILE, too"):
        Settings(audit_origin=NAME)


def test_no_database_is_made_before_the_key_is_found_good(tmp_path: Path) -> None:
    with pytest.raises(AuditKeyError):
        opened(tmp_path, tmp_path / "missing.pem")
    assert [*tmp_path.iterdir()] == []


def test_the_command_prints_the_verifier_key(dpicl: Shell, tmp_path: Path) -> None:
    file = tmp_path / "audit.pem"
    printed = dpicl.ok("audit", "key", file, NAME)
    assert VerifierKey.read(printed) == read_signer(file, NAME).verifier(LOG)
    assert dpicl.ok("audit", "key", file, NAME) == printed
    assert VerifierKey.read(dpicl.ok("audit", "key", file, NAME, "--witness")).type == WITNESS
    assert "cannot name a key" in dpicl.fails("audit", "key", tmp_path / "another.pem", "a b")
    assert not (tmp_path / "another.pem").exists()
    assert "cannot be written" in dpicl.fails("audit", "key", tmp_path / "no" / "key.pem", NAME)
