"""Encryption at rest: AES-256-GCM under keys derived, per knowledge base, from a data key of the database.

What somebody who reads the database (or a backup) without the master key learns: how many exemplars and units each
knowledge base has, which exemplars share a unit, their approximate lengths, and the public columns of
``knowledge_bases``. Not: texts, embeddings (a text can be guessed back from its embedding), or unit ids.

The data key is random and stored wrapped under the master key (:mod:`exemplar_store.keyring`).
"""

from __future__ import annotations

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from exemplar_store.errors import TamperedError
from exemplar_store.master_key import KEY_BYTES, NONCE_BYTES
from exemplar_store.unit_ids import canonical

TAG_BYTES = 16
SALT_BYTES = 16
OVERHEAD_BYTES = 1 + NONCE_BYTES + 16
"""What encryption adds to a row: version, nonce, authentication tag."""

_VERSION = b"\x01"


class KnowledgeBaseKeys:
    """One knowledge base's keys: for encryption, for tags, and a value that tells whether they are the right ones.

    HKDF-SHA256 (RFC 5869) with the knowledge base's random salt, so that no two knowledge bases, in this database or
    another, share a key. With random 96-bit nonces one key is good for 2³² exemplars (NIST SP 800-38D).

    Unit ids are not stored, yet their tags must be made anew when the data key changes. So a tag is AES-256 of a hash
    of the id, one block: a pseudorandom function to those without the key, which the key's holder can invert down to
    the hash. Who has only the old key can no more confirm a guessed unit id than a stranger.

    Args:
        data_key: 32 bytes.
        salt: 16 random bytes, the knowledge base's.
    """

    def __init__(self, data_key: bytes, salt: bytes) -> None:
        def derive(purpose: bytes, length: int) -> bytes:
            return HKDF(SHA256(), length, salt, b"dp-icl exemplar store v1: " + purpose).derive(data_key)

        self._aead = AESGCM(derive(b"encryption", KEY_BYTES))
        self.check = derive(b"key check", TAG_BYTES)
        """16 bytes stored beside the knowledge base: wrong keys are told before anything is read or written."""
        self._salt = salt
        self._unit_tags = Cipher(AES(derive(b"unit tags", KEY_BYTES)), ECB())  # noqa: S305  (one block)  # nosec B305
        self._content_tag_key = derive(b"content tags", KEY_BYTES)

    def encrypt(self, plaintext: bytes, place: bytes) -> bytes:
        """Encrypt a row: version byte, nonce, AES-GCM ciphertext.

        Args:
            plaintext: the row's content.
            place: where the row belongs; it opens nowhere else (:func:`place`).
        """
        nonce = os.urandom(NONCE_BYTES)
        return _VERSION + nonce + self._aead.encrypt(nonce, plaintext, _VERSION + place)

    def decrypt(self, payload: bytes, place: bytes) -> bytes:
        """Open what :meth:`encrypt` made for the same place.

        Raises:
            TamperedError: the row was changed, or moved from another unit, exemplar or knowledge base.
        """
        if payload[:1] != _VERSION:
            raise TamperedError(f"An exemplar is stored in an unknown format (version byte {payload[:1].hex()}).")
        nonce = payload[1 : 1 + NONCE_BYTES]
        try:
            return self._aead.decrypt(nonce, payload[1 + NONCE_BYTES :], _VERSION + place)
        except (InvalidTag, ValueError) as error:
            raise TamperedError(
                "An exemplar does not open under its knowledge base's key: the row was changed or moved outside this "
                "program. Restore the database from a backup."
            ) from error

    def unit_tag(self, unit_id: str) -> bytes:
        """The 16 bytes that stand for a unit id, however it is spelt."""
        hashed = hashlib.sha256(self._salt + canonical(unit_id).encode()).digest()[:TAG_BYTES]
        return self._unit_tags.encryptor().update(hashed)

    def reencrypted_tag(self, unit_tag: bytes, before: KnowledgeBaseKeys) -> bytes:
        """The unit tag of whom other keys of this knowledge base gave ``unit_tag``."""
        return self._unit_tags.encryptor().update(before._unit_tags.decryptor().update(unit_tag))

    def content_tag(self, unit_tag: bytes, content: bytes) -> bytes:
        """The 16 bytes that stand for an exemplar of a unit; other units' equal exemplars have other tags."""
        return hmac.digest(self._content_tag_key, unit_tag + content, "sha256")[:TAG_BYTES]


def place(position: int, content_tag: bytes) -> bytes:
    """Where an exemplar's row belongs within its knowledge base, as associated data: 24 bytes."""
    return position.to_bytes(8, "big") + content_tag
