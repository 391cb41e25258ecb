"""An exemplar, and its form on disk before encryption."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Exemplar:
    """A private example: what a prompt shows of it, and its embedding."""

    fields: Mapping[str, str]
    """The knowledge base's fields, all of them."""
    embedding: np.ndarray | None
    """Unit vector of the knowledge base's embedded field, float32 (d,); None if it stores none."""


Slot = tuple[Exemplar, ...]
"""The exemplars that one prompt carries. An empty slot asks nothing."""


def content(fields: Mapping[str, str], names: Sequence[str]) -> bytes:
    """The fields' values in the knowledge base's order: what makes two exemplars of a unit the same."""
    return json.dumps([fields[name] for name in names], ensure_ascii=False, separators=(",", ":")).encode()


def values(packed_content: bytes) -> list[str]:
    """The inverse of :func:`content`."""
    decoded: list[str] = json.loads(packed_content)
    return decoded


def pack(packed_content: bytes, embedding: np.ndarray | None) -> bytes:
    """One exemplar as bytes: the content's length, the content, the embedding in half precision.

    Half precision moves a cosine similarity by less than 0.001 and halves what a sampled exemplar costs to read.
    """
    vector = b"" if embedding is None else embedding.astype("<f2").tobytes()
    return len(packed_content).to_bytes(_LENGTH_BYTES, "big") + packed_content + vector


def packed_content(packed: bytes) -> bytes:
    """What :func:`pack` was given as content."""
    return packed[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "big")]


def unpack(packed: Sequence[bytes], names: Sequence[str], dimension: int) -> list[Exemplar]:
    """Exemplars from :func:`pack`, their embeddings of norm 1 again after the rounding.

    Args:
        packed: one entry per exemplar.
        names: the knowledge base's fields.
        dimension: length of the embeddings, 0 for none.
    """
    ends = [_LENGTH_BYTES + int.from_bytes(one[:_LENGTH_BYTES], "big") for one in packed]
    contents = b",".join(one[_LENGTH_BYTES:end] for one, end in zip(packed, ends, strict=True))
    # One parse for all is several times faster than one each.
    fields = [dict(zip(names, row, strict=True)) for row in json.loads(b"[" + contents + b"]")]
    if dimension == 0:
        return [Exemplar(one, None) for one in fields]
    halves = np.frombuffer(b"".join(one[end:] for one, end in zip(packed, ends, strict=True)), "<f2")
    vectors = halves.reshape(len(packed), dimension).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors.flags.writeable = False
    return [Exemplar(one, vector) for one, vector in zip(fields, vectors, strict=True)]
