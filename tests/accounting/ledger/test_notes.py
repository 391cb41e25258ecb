"""Keys, notes and checkpoints: what is written is read again, and nothing else is."""

import base64
import hashlib
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.ledger.notes import LOG, WITNESS, Checkpoint, NoteError, Signer, VerifierKey

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ROOT = hashlib.sha256(b"root").digest()


def signer(name: str, seed: int) -> Signer:
    return Signer(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOGS, OTHER, WITNESSES = signer("a.example/log", 1), signer("a.example/log", 2), signer("w.example", 3)
KEYS = (LOGS.verifier(), WITNESSES.verifier(WITNESS))
COSIGNED = WITNESSES.cosign(LOGS.sign(7, ROOT), NOON)


def test_a_checkpoint_is_written_as_its_format_prescribes() -> None:
    note = str(COSIGNED)
    text, signatures = note.split("\n\n")
    assert text.split("\n") == ["a.example/log", "7", base64.b64encode(ROOT).decode()]
    by_log, by_witness, nothing = signatures.split("\n")
    assert nothing == ""
    for line, name, kind, key in (
        (by_log, "a.example/log", b"\x01", LOGS.key),
        (by_witness, "w.example", b"\x04", WITNESSES.key),
    ):
        public = key.public_key()
        dash, named, encoded = line.split(" ")
        signature = base64.b64decode(encoded)
        id_ = hashlib.sha256(name.encode() + b"\n" + kind + public.public_bytes_raw()).digest()[:4]
        assert (dash, named, signature[:4]) == ("—", name, id_)
        if kind == b"\x01":
            public.verify(signature[4:], f"{text}\n".encode())
        else:
            assert int.from_bytes(signature[4:12], "big") == NOON.timestamp()
            message = f"cosignature/v1\ntime {int(NOON.timestamp())}\n{text}\n"
            public.verify(signature[12:], message.encode())
    assert Checkpoint.read(note) == COSIGNED


def test_a_verifier_key_is_written_as_its_format_prescribes() -> None:
    for key in KEYS:
        name, id_, encoded = str(key).split("+", 2)
        assert (name, id_) == (key.name, key.id.hex())
        assert base64.b64decode(encoded) == bytes([key.type]) + key.public
        assert VerifierKey.read(f"{key}\n") == key


def test_keys_that_are_given_are_looked_for() -> None:
    assert COSIGNED.signers(KEYS) == {KEYS[0]: None, KEYS[1]: NOON}
    assert COSIGNED.signers([OTHER.verifier(), signer("w.example", 4).verifier(WITNESS)]) == {}
    assert COSIGNED.signers([WITNESSES.verifier(LOG), LOGS.verifier(WITNESS)]) == {}
    elsewhere = Checkpoint("b.example/log", 7, ROOT, ()).signed("a.example/log", COSIGNED.signatures[0][1])
    assert elsewhere.signers(KEYS) == {}  # a log's key vouches for the log of its name alone


def test_a_witness_that_signs_again_replaces_its_signature() -> None:
    again = WITNESSES.cosign(COSIGNED, NOON.replace(hour=13))
    assert [name for name, _ in again.signatures] == ["a.example/log", "w.example"]
    assert again.signers(KEYS)[KEYS[1]] == NOON.replace(hour=13)


@pytest.mark.parametrize("at", range(len(str(COSIGNED).encode())))
def test_no_changed_byte_is_vouched_for(at: int) -> None:
    """Whatever byte is changed: the note is unreadable, a signature wrong, or one of the two signatures is gone."""
    note = bytearray(str(COSIGNED).encode())
    note[at] ^= 1
    try:
        signers = Checkpoint.read(note.decode()).signers(KEYS)
    except (NoteError, UnicodeDecodeError):
        return
    assert len(signers) < 2


@pytest.mark.parametrize(
    "note",
    [
        "",
        "a.example/log\n7\n",
        str(COSIGNED).replace("\n7\n", "\n07\n"),
        str(COSIGNED).replace("\n7\n", "\n-7\n"),
        str(COSIGNED).replace("\n7\n", "\n7\n\n"),
        str(COSIGNED).replace("\n", "\r\n"),
        str(COSIGNED).rstrip("\n"),
        str(COSIGNED).partition("—")[0],
        str(COSIGNED).replace("— ", "- "),
        str(LOGS.sign(7, ROOT[:31])),
        "a" * 70_000 + str(COSIGNED),
    ],
)
def test_what_is_not_a_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(NoteError, match="not a checkpoint"):
        Checkpoint.read(note)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u2003b", "a" * 201])
def test_a_name_that_a_note_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(NoteError, match="cannot name a key"):
        Signer(name, LOGS.key).verifier()


@pytest.mark.parametrize(
    "written",
    [
        "a",
        str(KEYS[0]).replace("a.", "b."),
        str(KEYS[0])[:-4],
        str(Signer("a", LOGS.key).verifier(2)),
        "PRIVATE+KEY+" + str(KEYS[0]),
    ],
)
def test_what_is_not_a_verifier_key_is_refused(written: str) -> None:
    with pytest.raises(NoteError, match="not a verifier key"):
        VerifierKey.read(written)
