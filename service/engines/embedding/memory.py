"""Embeddings that are computed once. For public texts only: how long a known one takes tells that it is known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from service.engines.embedding.embedder import TextEmbedder


class EmbeddingMemory:
    """A :class:`service.engines.embedding.embedder.TextEmbedder` that remembers.

    Args:
        embedder: computes what is not known yet.
    """

    def __init__(self, embedder: TextEmbedder) -> None:
        self._embedder = embedder
        self._whole: dict[str | None, np.ndarray] = {}
        self._many: dict[str | None, np.ndarray] = {}
        self._bounded: dict[str | None, np.ndarray] = {}

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See :class:`service.engines.embedding.embedder.TextEmbedder`."""
        return _recall(self._whole, texts, self._embedder.embed)

    def embed_many(self, texts: Sequence[str]) -> np.ndarray:
        """See :class:`service.engines.embedding.embedder.TextEmbedder`."""
        return _recall(self._many, texts, self._embedder.embed_many)

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """See :class:`service.engines.embedding.embedder.TextEmbedder`."""
        return _recall(self._bounded, texts, self._embedder.embed_bounded)


def _recall(
    known: dict[str | None, np.ndarray], texts: Sequence[str | None], embed: Callable[[Any], np.ndarray]
) -> np.ndarray:
    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known.update(zip(new, embed(list(new)), strict=True))
    return np.stack([known[text] for text in texts]) if texts else embed([])
