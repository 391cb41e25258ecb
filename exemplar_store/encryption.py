"""Encryption at rest: AES-256-GCM under keys derived, per knowledge base, from a data key of the database.

What somebody who reads the database (or a backup) without the master key learns: how many exemplars and units each
knowledge base has, which exemplars share a unit, their approximate lengths, and the public columns of
``knowledge_bases``. Not: texts, embeddings (a text can be guessed back from its embedding), or unit ids.

The data key is random and stored wrapped under the master key (:mod:`exemplar_store.data_keys`).
"""

from __future__ import annotations

import hmac
import os
from functools import reduce

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
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
_TAG_KEYS = b"earlier tag keys"


class KnowledgeBaseKeys:
    """One knowledge base's keys: for encryption, for tags, and a value that tells whether they are the right ones.

    HKDF-SHA256 (RFC 5869) with the knowledge base's random salt, so that no two knowledge bases, in this database or
    another, share a key. With random 96-bit nonces one key is good for 2³² exemplars (NIST SP 800-38D).

    Unit ids are not stored, so their tags cannot be computed anew when the keys are renewed. A renewed tag is instead
    the new key's HMAC of the old tag, and the old tag keys are kept, sealed under the new key: who has only the old
    keys can no more confirm a guessed unit id than a stranger.

    Args:
        data_key: 32 bytes.
        salt: 16 random bytes, the knowledge base's.
        earlier: what :meth:`seal_tag_keys` gave when the keys were renewed; empty for keys that never were.

    Raises:
        TamperedError: ``earlier`` does not open under these keys.
    """

    def __init__(self, data_key: bytes, salt: bytes, earlier: bytes = b"") -> None:
        def derive(purpose: bytes, length: int) -> bytes:
            return HKDF(SHA256(), length, salt, b"dp-icl exemplar store v1: " + purpose).derive(data_key)

        self._aead = AESGCM(derive(b"encryption", KEY_BYTES))
        self.check = derive(b"key check", TAG_BYTES)
        """16 bytes stored beside the knowledge base: wrong keys are told before anything is read or written."""
        before = self.decrypt(earlier, _TAG_KEYS) if earlier else b""
        self._tag_keys = [before[at : at + KEY_BYTES] for at in range(0, len(before), KEY_BYTES)]
        self._tag_keys.append(derive(b"tags", KEY_BYTES))

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
        return self._unit_tag(canonical(unit_id).encode(), self._tag_keys)

    def renewed_tag(self, unit_tag: bytes, before: KnowledgeBaseKeys) -> bytes:
        """The unit tag of whom earlier keys of this knowledge base gave ``unit_tag``; the same, if nothing changed."""
        return self._unit_tag(unit_tag, self._tag_keys[len(before._tag_keys) :])

    def content_tag(self, unit_tag: bytes, content: bytes) -> bytes:
        """The 16 bytes that stand for an exemplar of a unit; other units' equal exemplars have other tags."""
        return _tag(self._tag_keys[-1], b"exemplar", unit_tag + content)

    def seal_tag_keys(self, before: KnowledgeBaseKeys) -> bytes:
        """The tag keys of ``before``, to be given to these keys whenever they are made again."""
        return self.encrypt(b"".join(before._tag_keys), _TAG_KEYS)

    @staticmethod
    def _unit_tag(name: bytes, keys: list[bytes]) -> bytes:
        return reduce(lambda inner, key: _tag(key, b"unit", inner), keys, name)


def place(position: int, content_tag: bytes) -> bytes:
    """Where an exemplar's row belongs within its knowledge base, as associated data: 24 bytes."""
    return position.to_bytes(8, "big") + content_tag


def _tag(key: bytes, purpose: bytes, message: bytes) -> bytes:
    return hmac.digest(key, purpose + b"\x00" + message, "sha256")[:TAG_BYTES]
