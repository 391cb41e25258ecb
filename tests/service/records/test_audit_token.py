"""The audit trail's key in a token: SoftHSM's, behind its PKCS#11 module."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accounting.ledger.notes import VerifierKey
from service.records.audit_key import AuditKeyError, read_signer
from service.records.records import open_records
from tests.service.conftest import development
from tests.service.shell import Shell

NAME = "dp-icl.example.org/audit"
MODULE = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "5678"


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the PIN of a token that holds an Ed25519 key and one on another curve."""
    if shutil.which("softhsm2-util") is None or shutil.which("pkcs11-tool") is None:
        pytest.fail("keys in tokens are tested with SoftHSM: apt-get install softhsm2 opensc")
    folder = tmp_path_factory.mktemp("token")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\n")
    patch = pytest.MonkeyPatch()
    patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
    run("softhsm2-util", "--init-token", "--free", "--label", "audit", "--so-pin", "1234", "--pin", PIN)
    sign_in = ("pkcs11-tool", "--module", MODULE, "--token-label", "audit", "--pin", PIN, "--keypairgen")
    run(*sign_in, "--key-type", "EC:edwards25519", "--label", "dp-icl", "--id", "01")
    run(*sign_in, "--key-type", "EC:prime256v1", "--label", "other", "--id", "02")
    (folder / "pin").touch(mode=0o600)
    (folder / "pin").write_text(f"{PIN}\n")
    return folder


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def uri(token: Path, which: str = "object=dp-icl", where: str = "token=audit") -> Path:
    return Path(f"pkcs11:{where};{which}?module-path={MODULE}&pin-source={token / 'pin'}")


def test_a_key_in_a_token_signs_the_trail(token: Path, tmp_path: Path, dpicl: Shell) -> None:
    records = open_records(development(tmp_path, audit_key_file=uri(token), audit_origin=NAME))
    records.keys.create("Maria", "admin")
    checkpoint = records.log.sign()
    printed = dpicl.ok("audit", "key", uri(token, "id=%01"), NAME).splitlines()[-1]
    key = VerifierKey.read(printed)
    assert key == records.log.verifier
    assert list(checkpoint.signers([key])) == [key]
    records.database.dispose()


@pytest.mark.parametrize(
    ("which", "where", "why"),
    [
        ("object=other", "token=audit", r"does not sign by this key \(NoSuchKey"),
        ("object=dp-icl", "token=trial", r"does not sign by this key \(NoSuchToken"),
        ("type=private", "token=audit", "must name a token"),
        ("object=dp-icl;type=public", "token=audit", "must lead to a private key"),
        ("object=dp-icl;slot=0", "token=audit", "has slot, which is not known here"),
    ],
)
def test_a_uri_that_leads_to_no_key_is_refused(token: Path, which: str, where: str, why: str) -> None:
    with pytest.raises(AuditKeyError, match=why):
        read_signer(uri(token, which, where), NAME)


def test_a_pin_is_read_from_a_file_of_its_owners(token: Path, tmp_path: Path) -> None:
    with pytest.raises(AuditKeyError, match="write the PIN into a file"):
        read_signer(Path(f"pkcs11:token=audit;object=dp-icl?module-path={MODULE}&pin-value={PIN}"), NAME)
    (tmp_path / "pin").write_text(PIN)
    (tmp_path / "pin").chmod(0o644)
    with pytest.raises(AuditKeyError, match="other users can read it"):
        read_signer(uri(tmp_path), NAME)


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AuditKeyError, match=r"does not sign by this key .*nowhere\.so"):
        read_signer(Path("pkcs11:token=audit;object=dp-icl?module-path=/nowhere.so"), NAME)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pkcs11", None)  # as where it is not installed
    with pytest.raises(AuditKeyError, match=r"pip install 'dp-icl\[pkcs11\]'"):
        read_signer(Path("pkcs11:token=audit;object=other?module-path=/any.so"), NAME)
