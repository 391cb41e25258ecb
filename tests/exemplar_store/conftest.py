"""A store on either database, and stand-ins for the parts of the service that it uses."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import sqlalchemy as sa

from exemplar_store import ExemplarStore, KnowledgeBase, Row
from exemplar_store.tables import metadata


@pytest.fixture
def store(engine: sa.Engine) -> ExemplarStore:
    metadata.create_all(engine)
    return ExemplarStore(engine, bytes(range(32)))


@pytest.fixture
def another(store: ExemplarStore, engine: sa.Engine) -> Callable[[str], KnowledgeBase]:
    """Creates an empty knowledge base of texts and labels."""

    def create(name: str) -> KnowledgeBase:
        with engine.begin() as connection:
            return store.create(connection, name, public_size=1000, fields=["text", "label"], embedded_field="text")

    return create


@pytest.fixture
def tickets(another: Callable[[str], KnowledgeBase]) -> KnowledgeBase:
    return another("tickets")


@pytest.fixture
def rows() -> Callable[..., list[Row]]:
    """``rows(units, each=1)``: rows of units ``u0, u1, ...``, with ``each`` exemplars per unit."""

    def make(units: int, each: int = 1, prefix: str = "u") -> list[Row]:
        return [
            Row(number, f"{prefix}{unit}", {"text": f"text {one} of {prefix}{unit}", "label": "yes"})
            for number, (unit, one) in enumerate(((u, e) for u in range(units) for e in range(each)), start=1)
        ]

    return make


@pytest.fixture
def embed() -> Callable[[Sequence[str]], np.ndarray]:
    """A unit vector per text that depends on the text alone: float32 (n, 16)."""

    def embed_texts(texts: Sequence[str]) -> np.ndarray:
        digests = [hashlib.sha512(text.encode()).digest() for text in texts]
        vectors = np.array([np.frombuffer(digest, "<i4") for digest in digests], np.float64)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    return embed_texts
