"""Encryption at rest: AES-256-GCM under keys derived, per knowledge base, from a data key of the database.

A reader of the database (or of a backup) without the master key learns: how many exemplars and units each
knowledge base has, which exemplars share a unit, their approximate lengths, and the public columns of
``knowledge_bases``. Not: texts, embeddings (a text can be guessed back from its embedding), topics, or unit ids.

The data key is random and stored wrapped under the master key (:mod:`exemplar_store.keyring`). An operator holds that
outside the database; it wraps the data key and does no more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from exemplar_store.errors import EncryptionKeyError, TamperedError, WrongKeyError
from exemplar_store.key_files import ReadableKeyError, read_key_file
from exemplar_store.unit_ids import canonical

KEY_BYTES = 32
TAG_BYTES = 16
SALT_BYTES = 16
FINGERPRINT_BYTES = 8

DEVELOPMENT_KEY = b"dp-icl development key, public!!"
"""Published, so it protects nothing. For trying the service out on made-up data."""

_NONCE_BYTES = 12
OVERHEAD_BYTES = 1 + _NONCE_BYTES + 16
"""Bytes that encryption adds to a row: version, nonce, authentication tag."""

_VERSION = b"\x01"
_HOW_TO = (
    "Make one with `openssl rand -base64 32`, keep it outside the database and its backups, and pass it as "
    "DPICL_ENCRYPTION_KEY or in the file that DPICL_ENCRYPTION_KEY_FILE names"
)


def seal(aead: AESGCM, plaintext: bytes, place: bytes) -> bytes:
    """Version byte, nonce, AES-GCM ciphertext, which opens in its place only."""
    nonce = os.urandom(_NONCE_BYTES)
    return _VERSION + nonce + aead.encrypt(nonce, plaintext, _VERSION + place)


def unseal(aead: AESGCM, sealed: bytes, place: bytes) -> bytes:
    """The inverse of :func:`seal`.

    Raises:
        InvalidTag, ValueError: it was changed, or sealed for another place or under another key.
    """
    if sealed[:1] != _VERSION:
        raise ValueError(f"unknown format (version byte {sealed[:1].hex()})")
    return aead.decrypt(sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :], _VERSION + place)


class KnowledgeBaseKeys:
    """One knowledge base's keys: for encryption and for tags, and a value that verifies them.

    HKDF-SHA256 (RFC 5869) with the knowledge base's random salt, so that no two knowledge bases, in this database or
    another, share a key. With random 96-bit nonces one key is good for 2³² exemplars (NIST SP 800-38D).

    Unit ids are not stored, yet their tags must be made anew when the data key changes. So a tag is AES-256 of a hash
    of the id, one block: a pseudorandom function to those without the key, which the key's holder can invert down to
    the hash. A holder of only the old key can no more confirm a guessed unit id than a stranger.

    Args:
        data_key: 32 bytes.
        salt: 16 random bytes, the knowledge base's.
    """

    def __init__(self, data_key: bytes, salt: bytes) -> None:
        def derive(purpose: bytes, length: int) -> bytes:
            return HKDF(SHA256(), length, salt, b"dp-icl exemplar store v1: " + purpose).derive(data_key)

        self._aead = AESGCM(derive(b"encryption", KEY_BYTES))
        self._vectors = AESGCM(derive(b"vectors", KEY_BYTES))
        self._topics = AESGCM(derive(b"topics", KEY_BYTES))
        self.check = derive(b"key check", TAG_BYTES)
        """16 bytes stored beside the knowledge base: they show wrong keys before anything is read or written."""
        self._salt = salt
        self._unit_tags = Cipher(AES(derive(b"unit tags", KEY_BYTES)), ECB())  # noqa: S305  (one block)
        self._content_tags = HMAC(derive(b"content tags", KEY_BYTES), SHA256())
        self._part_key = derive(b"parts", KEY_BYTES)

    def encrypt(self, plaintext: bytes, place: bytes) -> bytes:
        """Encrypt a row.

        Args:
            plaintext: the row's content.
            place: place that the row belongs to; it opens nowhere else (:func:`place`).
        """
        return seal(self._aead, plaintext, place)

    def decrypt(self, payload: bytes, place: bytes) -> bytes:
        """Open what :meth:`encrypt` made for the same place.

        Raises:
            TamperedError: the row was changed, or moved from another unit, exemplar or knowledge base.
        """
        try:
            return unseal(self._aead, payload, place)
        except (InvalidTag, ValueError) as error:
            raise TamperedError(
                "An exemplar does not open under its knowledge base's key: the row was changed or moved outside this "
                "program. Restore the database from a backup."
            ) from error

    def encrypt_vector(self, vector: bytes, place: bytes) -> bytes:
        """Encrypt an exemplar's rounded embedding, under a key of its own; arguments as of :meth:`encrypt`."""
        return seal(self._vectors, vector, place)

    def decrypt_vector(self, sealed: bytes, place: bytes) -> bytes | None:
        """Open what :meth:`encrypt_vector` made for the same place; None where it was changed or moved."""
        try:
            return unseal(self._vectors, sealed, place)
        except (InvalidTag, ValueError):
            return None

    def encrypt_topics(self, page: bytes, place: bytes) -> bytes:
        """Encrypt which topics some units are on, under a key of its own; arguments as of :meth:`encrypt`."""
        return seal(self._topics, page, place)

    def decrypt_topics(self, sealed: bytes, place: bytes) -> bytes | None:
        """Open what :meth:`encrypt_topics` made for the same place; None where it was changed or moved."""
        try:
            return unseal(self._topics, sealed, place)
        except (InvalidTag, ValueError):
            return None

    def unit_tag(self, unit_id: str) -> bytes:
        """The 16 bytes that stand for a unit id, however it is spelt."""
        return self.unit_tagger()(unit_id)

    def unit_tagger(self) -> Callable[[str], bytes]:
        """:meth:`unit_tag` for many units, faster; for one thread."""
        encrypt = self._unit_tags.encryptor().update
        return lambda unit_id: encrypt(hashlib.sha256(self._salt + canonical(unit_id).encode()).digest()[:TAG_BYTES])

    def reencrypted_tag(self, unit_tag: bytes, before: KnowledgeBaseKeys) -> bytes:
        """The unit tag of whom other keys of this knowledge base gave ``unit_tag``."""
        return self._unit_tags.encryptor().update(before._unit_tags.decryptor().update(unit_tag))

    def lot(self, unit_tag: bytes, purpose: str) -> int:
        """A number from 0 to 2⁶⁴ − 1 that a unit's tag and a purpose alone decide, pseudorandom without the key."""
        return int.from_bytes(hmac.digest(self._part_key, unit_tag + purpose.encode(), "sha256")[:8], "big")

    def content_tag(self, unit_tag: bytes, content: bytes) -> bytes:
        """The 16 bytes that stand for an exemplar of a unit; other units' equal exemplars have other tags."""
        tag = self._content_tags.copy()
        tag.update(unit_tag + content)
        return tag.finalize()[:TAG_BYTES]


def place(position: int, content_tag: bytes) -> bytes:
    """An exemplar's place within its knowledge base, as associated data: 24 bytes."""
    return position.to_bytes(8, "big") + content_tag


def load_key(value: str | None = None, file: Path | None = None, *, development: bool = False) -> bytes:
    """The master key, from an environment variable's value or from a mounted file.

    Args:
        value: 32 bytes in base64, or None.
        file: a file that holds the same, or None. White space around the key is ignored.
        development: whether to take :data:`DEVELOPMENT_KEY` if no key is given. The caller must warn of it.

    Returns:
        32 bytes.

    Raises:
        EncryptionKeyError: no key and no development flag, both a value and a file, a file that cannot be read or that
            others can read, a key that is not 32 bytes of base64, or the published development key outside development.
    """
    if value is not None and file is not None:
        raise EncryptionKeyError("The encryption key is given twice, as a value and as a file; give one of the two.")
    if file is not None:
        try:
            value = read_key_file(file).decode("ascii", "replace")  # what is not ASCII is not base64
        except ReadableKeyError as error:
            raise EncryptionKeyError(f"The encryption key file: {error}") from None
        except OSError as error:
            raise EncryptionKeyError(f"The encryption key file {file} cannot be read ({error.strerror})") from error
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


@dataclass(frozen=True, repr=False)
class DataKey:
    """A database's own secrets, 32 random bytes each; ``repr`` shows neither."""

    exemplars: bytes
    """Secret from which knowledge bases' keys are derived."""
    queries: bytes
    """Key under which the ledger hashes queries: the same for all of the database's life, or a repeated query, whose
    answer is stored under its hash, would be charged again."""


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
        """16 hexadecimal digits that distinguish master keys and reveal nothing else of them. Public."""

    def wrap(self, data_key: DataKey, number: int) -> bytes:
        """Version byte, nonce, ciphertext: 93 bytes."""
        return seal(self._aead, data_key.exemplars + data_key.queries, self._place(number))

    def unwrap(self, wrapped: bytes, number: int) -> DataKey:
        """The inverse of :meth:`wrap`.

        Raises:
            WrongKeyError: the wrap was changed, or is not this one.
        """
        try:
            plaintext = unseal(self._aead, wrapped, self._place(number))
        except (InvalidTag, ValueError) as error:
            raise WrongKeyError(
                f"Data key {number} does not open under encryption key {self.fingerprint}: the table data_key was "
                "changed outside this program. Put it back as the newest backup has it; the ledger stays as it is."
            ) from error
        return DataKey(plaintext[:KEY_BYTES], plaintext[KEY_BYTES:])

    def _place(self, number: int) -> bytes:
        return bytes.fromhex(self.fingerprint) + number.to_bytes(8, "big")
