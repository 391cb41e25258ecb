"""A temporary file for uploads on their way into the database, unreadable to any other process."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from exemplar_store.encryption import TAG_BYTES

_LENGTH_BYTES = 4
_CHUNK_BYTES = 1 << 18
_BATCH_BYTES = 8 << 20


class Record(NamedTuple):
    """An exemplar of an upload."""

    unit_tag: bytes
    """Tag of its unit."""
    content_tag: bytes
    """Tag of its content."""
    body: bytes
    """Content of the exemplar, with its embeddings once they are computed."""


class Spool(AbstractContextManager["Spool"]):
    """Records appended, then read back in order, any number of times.

    They are encrypted (AES-256-GCM), some at once, under a key made for this spool and held in memory only: should the
    process be killed, what it leaves in the temporary folder cannot be opened. The nonce is the number of the chunk,
    which never repeats under one key.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="dpicl-")  # noqa: SIM115 (closed by __exit__)
        self._aead = AESGCM(AESGCM.generate_key(256))
        self._chunk = bytearray()
        self._chunks = self._count = 0

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def append(self, record: Record) -> None:
        """Add a record. Not while the spool is being read."""
        self._chunk += len(record.body).to_bytes(_LENGTH_BYTES, "big") + b"".join(record)
        self._count += 1
        if len(self._chunk) >= _CHUNK_BYTES:
            self._write()

    def __iter__(self) -> Iterator[Record]:
        if self._chunk:
            self._write()
        self._file.seek(0)
        for number in range(self._chunks):
            length = int.from_bytes(self._file.read(_LENGTH_BYTES), "big")
            chunk = self._aead.decrypt(self._nonce(number), self._file.read(length), None)
            start = 0
            while start < len(chunk):
                unit_tag = start + _LENGTH_BYTES
                content_tag, body = unit_tag + TAG_BYTES, unit_tag + 2 * TAG_BYTES
                end = body + int.from_bytes(chunk[start:unit_tag], "big")
                yield Record(chunk[unit_tag:content_tag], chunk[content_tag:body], chunk[body:end])
                start = end

    def batches(self, size: int) -> Iterator[list[Record]]:
        """The records, in lists of at most ``size``, and of about 8 MiB at most."""
        batch: list[Record] = []
        held = 0
        for record in self:
            batch.append(record)
            held += len(record.body)
            if len(batch) == size or held > _BATCH_BYTES:
                yield batch
                batch, held = [], 0
        if batch:
            yield batch

    def _write(self) -> None:
        sealed = self._aead.encrypt(self._nonce(self._chunks), bytes(self._chunk), None)
        self._file.write(len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed)
        self._chunks += 1
        self._chunk.clear()

    @staticmethod
    def _nonce(number: int) -> bytes:
        return number.to_bytes(12, "big")
