"""An exemplar, its form on disk before encryption, and how much it and a unit may be.

The latter are public bounds on what one unit can add to the time that its queries take.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic_core import from_json

MAX_EXEMPLARS_PER_UNIT = 1000

MAX_EXEMPLAR_BYTES = 16 * 1024
"""An exemplar's fields as :func:`content` packs them: a JSON list in UTF-8."""

MAX_UNIT_BYTES = 256 * 1024
"""The sum of a unit's distinct exemplars, measured the same way."""

_LENGTH_BYTES = 4
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, eq=False)
class Exemplar:
    """A private example: what a prompt shows of it, and its embeddings."""

    fields: Mapping[str, str]
    """The knowledge base's fields, all of them."""
    embedding: np.ndarray | None = None
    """Unit vector of the knowledge base's embedded field, float32 (d,); None if it stores none."""
    response_embedding: np.ndarray | None = None
    """Unit vector of its response field, likewise."""


Slot = tuple[Exemplar, ...]
"""The exemplars that one prompt carries. An empty slot asks nothing."""


def content(fields: Mapping[str, str], names: Sequence[str]) -> bytes:
    """The fields' values in the knowledge base's order: what makes two exemplars of a unit the same."""
    return _as_json([fields[name] for name in names]).encode()


def values(packed_content: bytes) -> list[str]:
    """The inverse of :func:`content`."""
    return from_json(packed_content, cache_strings="none")  # the cache would outlive what is forgotten


def halved(embeddings: np.ndarray) -> list[bytes]:
    """Embeddings, float (n, d), as :func:`pack` takes them: each in half precision.

    That moves a cosine similarity by less than 0.001 and halves what a sampled exemplar costs to read.
    """
    return [row.tobytes() for row in embeddings.astype("<f2")]


def pack(packed_content: bytes, *embeddings: bytes) -> bytes:
    """One exemplar as bytes: the content's length, the content, its embeddings as :func:`halved` gives them.

    None of them, that of the embedded field, or that and the response field's.
    """
    return b"".join((len(packed_content).to_bytes(_LENGTH_BYTES, "big"), packed_content, *embeddings))


def overhead(dimension: int, *, response: bool) -> int:
    """Bytes that :func:`pack` adds to a content, its embeddings' among them.

    Args:
        dimension: length of an embedding, 0 for none.
        response: whether there is one of the response, too.
    """
    return _LENGTH_BYTES + 2 * dimension * (1 + response)


def packed_content(packed: bytes) -> bytes:
    """The content that :func:`pack` was given."""
    return packed[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "big")]


def embeddings_of(packed: Sequence[bytes], dimension: int) -> np.ndarray:
    """The embeddings of the embedded field that :func:`pack` was given, float32 (n, d), as they were rounded."""
    ends = [_LENGTH_BYTES + int.from_bytes(entry[:_LENGTH_BYTES], "big") for entry in packed]
    halves = b"".join(entry[end : end + 2 * dimension] for entry, end in zip(packed, ends, strict=True))
    return np.frombuffer(halves, "<f2").reshape(len(packed), dimension).astype(np.float32)


def unpack(packed: Sequence[bytes], names: Sequence[str], dimension: int, *, response: bool) -> list[Exemplar]:
    """Exemplars from :func:`pack`, their embeddings of norm 1 again after the rounding.

    Args:
        packed: one entry per exemplar.
        names: the knowledge base's fields.
        dimension: length of the embeddings, 0 to leave them out.
        response: whether each has one of its response, too.
    """
    ends = [_LENGTH_BYTES + int.from_bytes(entry[:_LENGTH_BYTES], "big") for entry in packed]
    contents = (values(entry[_LENGTH_BYTES:end]) for entry, end in zip(packed, ends, strict=True))
    fields = [dict(zip(names, content, strict=True)) for content in contents]
    if dimension == 0:
        return [Exemplar(entry) for entry in fields]
    halves = np.frombuffer(b"".join(entry[end:] for entry, end in zip(packed, ends, strict=True)), "<f2")
    vectors = halves.reshape(len(packed) * (1 + response), dimension).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors.flags.writeable = False
    each = list(vectors)
    if not response:
        return list(map(Exemplar, fields, each))
    return list(map(Exemplar, fields, each[::2], each[1::2]))
