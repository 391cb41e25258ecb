"""An export that was cut, forked or rewritten does not fit what was signed, with the public keys alone."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.ledger import tables
from accounting.ledger.events import KeyCreated
from accounting.ledger.notes import WITNESS, Checkpoint, Signer
from accounting.ledger.trail import FIRST, AuditTrail, append, canonical, digest
from accounting.ledger.transparency_log import TransparencyLog
from accounting.replay.signed_heads import SignedHead
from accounting.replay.trail import Report, verify
from service.records.database import open_database
from tests.accounting.ledger import rfc6962

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SIGNER = Signer("a.example/log", Ed25519PrivateKey.from_private_bytes(b"1" * 32))
WITNESS_SIGNER = Signer("w.example", Ed25519PrivateKey.from_private_bytes(b"2" * 32))
KEY, WITNESS_KEY = SIGNER.verifier(), WITNESS_SIGNER.verifier(WITNESS)


class Service:
    """A trail that grows, and its signed exports."""

    def __init__(self, file: Path) -> None:
        self.database = open_database(f"sqlite:///{file}")
        tables.metadata.create_all(self.database)
        self.log = TransparencyLog(self.database, SIGNER, None)
        self.keys = 0

    def grow(self, count: int = 1) -> None:
        with self.database.begin() as connection:
            for _ in range(count):
                self.keys += 1
                happened = KeyCreated(key=f"key {self.keys}", name="ä", role="analyst", quota=None)
                append(connection, NOW, happened)

    def export(self) -> list[str]:
        return [*AuditTrail(self.database).export(self.log.sign())]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    service = Service(tmp_path / "ledger.sqlite")
    service.grow(9)
    return service


def checked(lines: list[str], *checkpoints: Checkpoint, keys=(KEY,)) -> Report:
    return verify(lines, keys=keys, checkpoints=checkpoints)


def with_end(lines: list[str], **changes: object) -> list[str]:
    """The lines, with an end of an export that fits them as a forger can make it."""
    last = json.loads(lines[-1])
    end = {"end": {"sequence": last["sequence"], "hash": last["hash"]}, **changes}
    return [*lines, canonical(end) + "\n"]


def rewritten(lines: list[str], number: int) -> list[str]:
    """Events with one that was changed, and all hashes from it on computed again."""
    previous, written = FIRST, []
    for sequence, line in enumerate(lines, 1):
        event = json.loads(line)
        if sequence == number:
            event["body"]["name"] = "another"
        event["previous"] = previous
        of = (sequence, event["at"], event["kind"], canonical(event["body"]), previous)
        event["hash"] = previous = digest(*of)
        written.append(canonical(event) + "\n")
    return written


def test_a_signed_export_is_vouched_for(service: Service) -> None:
    report = checked(service.export())
    assert report.problems == []
    assert report.signatures == [SignedHead("a.example/log", 9, "a.example/log", None)]


def test_an_older_checkpoint_vouches_for_the_beginning(service: Service) -> None:
    old = service.log.sign()
    service.grow(3)
    report = checked(service.export(), old)
    assert report.problems == []
    assert [head.size for head in report.signatures] == [9, 12]


def test_without_a_key_the_root_alone_is_compared(service: Service) -> None:
    export = service.export()
    report = verify(export)
    assert (report.problems, report.signatures, report.unchecked) == ([], [], True)
    cut = with_end(export[:5], checkpoint=json.loads(export[-1])["checkpoint"])
    assert any("it was cut" in problem for problem in verify(cut).problems)


def test_a_cut_export_is_found(service: Service) -> None:
    old = service.log.sign()
    export = service.export()
    cut = with_end(export[:5], checkpoint=json.loads(export[-1])["checkpoint"])
    assert verify(with_end(export[:5])).problems == []  # its chain of hashes alone does not show it
    assert checked(cut).problems == ["9 events were signed by a.example/log, and the export has 5: it was cut"]
    assert checked(with_end(export[:5]), old).problems == [
        "9 events were signed by a.example/log, and the export has 5: it was cut"
    ]
    assert "no checkpoint" in checked(with_end(export[:5])).problems[0]


def test_a_rewritten_export_is_found(service: Service) -> None:
    export = service.export()
    changed = rewritten(export[:-1], 4)
    assert verify(with_end(changed)).problems == []  # its chain of hashes alone does not show it
    (problem,) = checked(with_end(changed, checkpoint=json.loads(export[-1])["checkpoint"])).problems
    assert problem == (
        "the first 9 events are not those that a.example/log signed: they were rewritten, or the log has another "
        "history"
    )


def test_an_export_that_only_looks_the_same_is_found(service: Service) -> None:
    export = service.export()
    export[2] = export[2].replace(",", ", ", 1)
    assert any("were rewritten" in problem for problem in checked(export).problems)


def test_events_after_the_checkpoint_are_found(service: Service) -> None:
    old = service.log.sign()
    service.grow()
    longer = service.export()
    (problem,) = checked(with_end(longer[:-1], checkpoint=str(old))).problems
    assert problem == "the export goes on after its checkpoint of 9 events"


def test_a_second_history_of_the_same_size_is_found(service: Service, tmp_path: Path) -> None:
    other = Service(tmp_path / "other.sqlite")
    other.keys = 100
    other.grow(9)
    kept = other.log.sign()
    problems = checked(service.export(), kept).problems
    assert "a.example/log signed 2 different histories of 9 events: it was forked" in problems
    assert any("not those that a.example/log signed" in problem for problem in problems)


def test_a_history_that_does_not_continue_an_older_one_is_found(service: Service, tmp_path: Path) -> None:
    kept = service.log.sign()
    other = Service(tmp_path / "other.sqlite")
    other.keys = 100
    other.grow(12)
    (problem,) = checked(other.export(), kept).problems
    assert problem.startswith("the first 9 events are not those that a.example/log signed")


def test_a_checkpoint_by_another_key_counts_for_nothing(service: Service) -> None:
    export = service.export()
    stranger = Signer("a.example/log", WITNESS_SIGNER.key)
    (problem,) = checked(export, keys=[stranger.verifier()]).problems
    assert "no given verifier key of a.example/log signed it" in problem
    forged = stranger.sign(9, rfc6962.root([b"forged"]))
    stolen = forged.signed("a.example/log", KEY.id + forged.signatures[0][1][4:])
    report = checked(export, stolen)
    assert [head.size for head in report.signatures] == [9]
    assert any("counts for nothing: the signature by a.example/log is not genuine" in one for one in report.problems)


def test_an_old_key_and_a_new_one_both_count(service: Service) -> None:
    old = service.log.sign()
    renamed = Signer("a.example/log2", Ed25519PrivateKey.from_private_bytes(b"3" * 32))
    service.log = TransparencyLog(service.database, renamed, None)
    service.grow()
    report = checked(service.export(), old, keys=[KEY, renamed.verifier()])
    assert report.problems == []
    assert [head.signed_by for head in report.signatures] == ["a.example/log", "a.example/log2"]


def test_a_witness_must_have_cosigned_one_of_the_checkpoints(service: Service) -> None:
    cosigned = WITNESS_SIGNER.cosign(service.log.sign(), NOW)
    service.grow()
    export = service.export()
    report = checked(export, cosigned, keys=[KEY, WITNESS_KEY])
    assert report.problems == []
    assert SignedHead("a.example/log", 9, "w.example", NOW) in report.signatures
    (problem,) = checked(export, keys=[KEY, WITNESS_KEY]).problems
    assert problem.startswith("the witness w.example cosigned no checkpoint of these events")
    elsewhere = WITNESS_SIGNER.cosign(SIGNER.sign(9, b"r" * 32), NOW)
    problems = checked(export, elsewhere, keys=[KEY, WITNESS_KEY]).problems
    assert any("not those that a.example/log signed" in problem for problem in problems)
    assert any("the witness w.example cosigned no checkpoint of these events" in problem for problem in problems)


def test_other_programs_verify_it(service: Service, tmp_path: Path) -> None:
    """OpenSSL verifies the signature, and the root is computed as RFC 6962 defines it: neither is code of ours."""
    *events, last = service.export()
    text, _, signatures = json.loads(last)["checkpoint"].partition("\n\n")
    origin, size, root = text.split("\n")
    (tmp_path / "key.pem").write_bytes(pem(str(KEY)))
    (tmp_path / "text").write_text(f"{text}\n")
    (tmp_path / "signature").write_bytes(shell(f"printf %s '{signatures.split()[2]}' | base64 -d")[4:])
    verified = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in text -sigfile signature"
    assert b"Verified Successfully" in shell(verified, tmp_path)
    (tmp_path / "text").write_text(f"{text}\n".replace("\n9\n", "\n8\n"))
    with pytest.raises(subprocess.CalledProcessError):
        shell(verified, tmp_path)
    assert (origin, size) == ("a.example/log", str(len(events)))
    leaves = [line.removesuffix("\n").encode() for line in events]
    assert shell(f"printf %s '{root}' | base64 -d") == rfc6962.root(leaves)


def pem(verifier_key: str) -> bytes:
    """The public key of a verifier key as OpenSSL reads it, made by other programs: RFC 8410 has the twelve bytes."""
    encoded = verifier_key.split("+", 2)[2]
    prefix = "".join(f"\\x{byte:02x}" for byte in bytes.fromhex("302a300506032b6570032100"))
    der = f"(printf '{prefix}'; printf %s '{encoded}' | base64 -d | tail -c 32)"
    return shell(f"{der} | openssl pkey -pubin -inform DER")


def shell(command: str, folder: Path | None = None) -> bytes:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, capture_output=True, check=True)
    return done.stdout
