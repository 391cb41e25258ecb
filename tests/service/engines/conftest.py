"""The embedded engine on its real model."""

from __future__ import annotations

import pytest

from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture(scope="session")
def engine(embedder: Embedder) -> NearestExemplarEngine:
    return NearestExemplarEngine(embedder)
