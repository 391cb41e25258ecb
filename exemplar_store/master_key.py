"""The master key: what an operator holds, kept outside the database. It wraps the database's data key and no more."""

import base64
import binascii
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from exemplar_store.errors import EncryptionKeyError, WrongKeyError

KEY_BYTES = 32
NONCE_BYTES = 12
FINGERPRINT_BYTES = 8

DEVELOPMENT_KEY = b"dp-icl development key, public!!"
"""Published, so it protects nothing. For trying the service out on made-up data."""

_VERSION = b"\x01"
_HOW_TO = (
    "Make one with `openssl rand -base64 32`, keep it outside the database and its backups, and pass it as "
    "DPICL_ENCRYPTION_KEY or in the file that DPICL_ENCRYPTION_KEY_FILE names"
)


def load_key(value: str | None = None, file: Path | None = None, *, development: bool = False) -> bytes:
    """The master key, from an environment variable's value or from a mounted file.

    Args:
        value: 32 bytes in base64, or None.
        file: a file that holds the same, or None. White space around the key is ignored.
        development: with no key given, take :data:`DEVELOPMENT_KEY`. The caller must warn of it.

    Returns:
        32 bytes.

    Raises:
        EncryptionKeyError: no key and no development flag, both a value and a file, a file that cannot be read, a key
            that is not 32 bytes of base64, or the published development key outside development.
    """
    if value is not None and file is not None:
        raise EncryptionKeyError("The encryption key is given twice, as a value and as a file; give one of the two.")
    if file is not None:
        try:
            value = file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise EncryptionKeyError(f"The encryption key file {file} cannot be read: {error}") from error
    if value is None:
        if development:
            return DEVELOPMENT_KEY
        raise EncryptionKeyError(
            f"No encryption key: exemplars are only stored encrypted. {_HOW_TO}. "
            "To try things out on made-up data, set DPICL_DEVELOPMENT=true instead."
        )
    try:
        key = base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise EncryptionKeyError(f"The encryption key is not base64. {_HOW_TO}.") from error
    if len(key) != KEY_BYTES:
        raise EncryptionKeyError(f"The encryption key is {len(key)} bytes long, not {KEY_BYTES}. {_HOW_TO}.")
    if hmac.compare_digest(key, DEVELOPMENT_KEY) and not development:
        raise EncryptionKeyError(f"The encryption key is the published development key. {_HOW_TO}.")
    return key


@dataclass(frozen=True)
class DataKey:
    """A database's own secrets, 32 random bytes each; ``repr`` shows neither."""

    exemplars: bytes
    """From which knowledge bases' keys are derived (:mod:`exemplar_store.encryption`)."""
    queries: bytes
    """Under which the ledger hashes queries: the same for all of the database's life, or a repeated query, whose
    answer is stored under its hash, would be charged again."""

    def __repr__(self) -> str:
        return "DataKey(...)"


class MasterKey:
    """Wraps the data key: AES-256-GCM under a key derived from the master by HKDF-SHA256 (RFC 5869).

    A wrap is bound to the data key's number and the master's fingerprint, so it is of use nowhere else.

    Args:
        key: 32 bytes, see :func:`load_key`.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise EncryptionKeyError(f"The encryption key is {len(key)} bytes long, not {KEY_BYTES}. {_HOW_TO}.")

        def derive(purpose: bytes, length: int) -> bytes:
            return HKDF(SHA256(), length, None, b"dp-icl master key v1: " + purpose).derive(key)

        self._aead = AESGCM(derive(b"wrapping", KEY_BYTES))
        self.fingerprint = derive(b"fingerprint", FINGERPRINT_BYTES).hex()
        """16 hexadecimal digits that tell one master key from another, and nothing else of it. Public."""

    def wrap(self, data_key: DataKey, number: int) -> bytes:
        """Version byte, nonce, ciphertext: 93 bytes."""
        nonce = os.urandom(NONCE_BYTES)
        plaintext = data_key.exemplars + data_key.queries
        return _VERSION + nonce + self._aead.encrypt(nonce, plaintext, self._place(number))

    def unwrap(self, wrapped: bytes, number: int) -> DataKey:
        """The inverse of :meth:`wrap`.

        Raises:
            WrongKeyError: the wrap was changed, or is not this one.
        """
        nonce, sealed = wrapped[1 : 1 + NONCE_BYTES], wrapped[1 + NONCE_BYTES :]
        try:
            if wrapped[:1] != _VERSION:
                raise ValueError(wrapped[:1])
            plaintext = self._aead.decrypt(nonce, sealed, self._place(number))
        except (InvalidTag, ValueError) as error:
            raise WrongKeyError(
                f"Data key {number} does not open under encryption key {self.fingerprint}: the table data_key was "
                "changed outside this program. Put it back as the newest backup has it; the ledger stays as it is."
            ) from error
        return DataKey(plaintext[:KEY_BYTES], plaintext[KEY_BYTES:])

    def _place(self, number: int) -> bytes:
        return _VERSION + bytes.fromhex(self.fingerprint) + number.to_bytes(8, "big")
