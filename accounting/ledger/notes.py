"""Checkpoints of the audit trail: its size and Merkle root as a note that is signed, in the formats of C2SP.

A note is a text, an empty line, and signature lines (https://c2sp.org/signed-note). The text of a checkpoint is the
log's origin, the number of its entries and its RFC 6962 root (https://c2sp.org/tlog-checkpoint). The log signs the
text; a witness signs the text and the time (https://c2sp.org/tlog-cosignature). Both sign by Ed25519.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LOG, WITNESS = 0x01, 0x04
"""Types of signatures: of a log, over the text; of a witness, over the text and the time."""
_TYPES = {LOG, WITNESS}
_MOST_LINES = 64
_LONGEST = 64 * 1024
_SIZE = re.compile(r"0|[1-9][0-9]{0,17}")


class NoteError(ValueError):
    """A text that is not a key, a note or a checkpoint, or a signature that is not genuine."""


def check_name(name: str) -> str:
    """Return the name of a key, which is also a log's origin.

    Raises:
        NoteError: it is empty or too long, or holds a space, a plus or a character that is not shown.
    """
    if not 0 < len(name) <= 200 or "+" in name or not name.isprintable() or any(one.isspace() for one in name):
        raise NoteError(
            f"{name!r} cannot name a key: write an address without https://, such as dp-icl.example.org/audit, "
            "without spaces and plus signs"
        )
    return name


@dataclass(frozen=True)
class VerifierKey:
    """A public key with the name that it signs by, as others need it.

    Attributes:
        name: name of the key.
        type: :data:`LOG` or :data:`WITNESS`.
        public: the public key, 32 bytes.
    """

    name: str
    type: int
    public: bytes

    @classmethod
    def read(cls, written: str) -> VerifierKey:
        """Read a key as ``str`` writes it.

        Raises:
            NoteError: it is not one.
        """
        try:
            name, id_, encoded = written.strip().split("+", 2)
            material = _decoded(encoded)
            key = cls(check_name(name), material[0], material[1:])
            Ed25519PublicKey.from_public_bytes(key.public)
        except (ValueError, IndexError):
            key = None
        if key is None or key.type not in _TYPES or id_ != key.id.hex():
            raise NoteError(f"{written.strip()!r} is not a verifier key: `dpicl audit key` prints one, NAME+ID+KEY")
        return key

    @property
    def id(self) -> bytes:
        """The first four bytes of a hash of name, type and key."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.type]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{_encoded(bytes([self.type]) + self.public)}"

    def check(self, signature: bytes, message: bytes) -> None:
        """Return if a signature is genuine.

        Raises:
            NoteError: it is not.
        """
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except InvalidSignature:
            raise NoteError(f"the signature by {self.name} is not genuine") from None


class SigningKey(Protocol):
    """A private Ed25519 key, wherever it is kept."""

    def public_key(self) -> Ed25519PublicKey:
        """The public key."""

    def sign(self, data: bytes) -> bytes:
        """The signature over a message, 64 bytes."""


@dataclass(frozen=True)
class Signer:
    """A private key with the name that it signs by.

    Attributes:
        name: name of the key; of a log's, the log's origin.
        key: the private key.
    """

    name: str
    key: SigningKey

    def verifier(self, type_: int = LOG) -> VerifierKey:
        """The key that others verify its signatures by."""
        return VerifierKey(check_name(self.name), type_, self.key.public_key().public_bytes_raw())

    def sign(self, size: int, root: bytes) -> Checkpoint:
        """Sign the number of entries and the root of this log."""
        unsigned = Checkpoint(self.name, size, root, ())
        signature = self.verifier().id + self.key.sign(unsigned.text.encode())
        return unsigned.signed(self.name, signature)

    def cosign(self, checkpoint: Checkpoint, at: datetime) -> Checkpoint:
        """The checkpoint with a witness's signature at a time, in place of an earlier one by this key."""
        seconds, id_ = int(at.timestamp()), self.verifier(WITNESS).id
        signature = self.key.sign(_cosigned(checkpoint.text, seconds))
        others = tuple(one for one in checkpoint.signatures if (one[0], one[1][:4]) != (self.name, id_))
        signed = id_ + seconds.to_bytes(8, "big") + signature
        return replace(checkpoint, signatures=others).signed(self.name, signed)


@dataclass(frozen=True)
class Checkpoint:
    """The size and root of a log, with signatures that nothing has verified yet.

    Attributes:
        origin: name of the log.
        size: number of its entries.
        root: RFC 6962 root over them, 32 bytes.
        signatures: pairs of a key's name, and its id and signature.
        extensions: further lines of the text.
    """

    origin: str
    size: int
    root: bytes
    signatures: tuple[tuple[str, bytes], ...]
    extensions: tuple[str, ...] = ()

    @classmethod
    def read(cls, note: str) -> Checkpoint:
        """Read a checkpoint as ``str`` writes it.

        Raises:
            NoteError: it is not one.
        """
        text, separator, signed = note.rpartition("\n\n")
        lines, signatures = text.split("\n"), signed.split("\n")
        if len(note) > _LONGEST or len(signatures) > _MOST_LINES or any(ord(one) < 32 and one != "\n" for one in note):
            raise NoteError("it is not a checkpoint: it is too long, or has characters that a note does not have")
        try:
            if not separator or signatures.pop() or not signatures or not all(lines) or not _SIZE.fullmatch(lines[1]):
                raise ValueError
            origin, size, root, *extensions = lines
            read = cls(origin, int(size), _decoded(root), tuple(map(_signature, signatures)), tuple(extensions))
        except (ValueError, IndexError):
            read = None
        if read is None or len(read.root) != 32:
            raise NoteError(
                "it is not a checkpoint: three lines (origin, size, root), an empty line, and signatures, each line "
                "with its end"
            )
        return read

    @property
    def text(self) -> str:
        """The text that is signed."""
        return "\n".join((self.origin, str(self.size), _encoded(self.root), *self.extensions)) + "\n"

    def __str__(self) -> str:
        return f"{self.text}\n" + "".join(f"— {name} {_encoded(signature)}\n" for name, signature in self.signatures)

    def signed(self, name: str, signature: bytes) -> Checkpoint:
        """The checkpoint with a further signature."""
        return replace(self, signatures=(*self.signatures, (name, signature)))

    def signers(self, keys: Iterable[VerifierKey]) -> dict[VerifierKey, datetime | None]:
        """Those of some keys that signed it, each with the time of a witness's signature (a log's has none).

        A log's key counts only for the log of its name. Signatures by other keys are ignored.

        Raises:
            NoteError: a signature that claims to be by one of the keys is not genuine.
        """
        found: dict[VerifierKey, datetime | None] = {}
        for key in keys:
            for name, signature in self.signatures:
                if (name, signature[:4]) != (key.name, key.id):
                    continue
                if key.type == WITNESS:
                    seconds = int.from_bytes(signature[4:12], "big")
                    key.check(signature[12:], _cosigned(self.text, seconds))
                    found[key] = _time(seconds)
                elif name == self.origin:
                    key.check(signature[4:], self.text.encode())
                    found[key] = None
        return found


def _cosigned(text: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def _time(seconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise NoteError("a witness's signature has a time that no calendar has") from None


def _signature(line: str) -> tuple[str, bytes]:
    dash, name, encoded = line.split(" ")
    signature = _decoded(encoded)
    if dash != "—" or len(signature) < 5:
        raise ValueError
    return check_name(name), signature


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decoded(written: str) -> bytes:
    """The bytes that a text in base64 stands for, if it is the one that stands for them."""
    try:
        value = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if _encoded(value) != written:
        raise ValueError("not canonical base64")
    return value
