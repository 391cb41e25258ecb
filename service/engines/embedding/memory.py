"""Embeddings that are computed once. For public texts only: the time of a known one shows that it is known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from service.engines.embedding.embedder import TextEmbedder


class EmbeddingMemory(TextEmbedder):
    """A :class:`service.engines.embedding.embedder.TextEmbedder` that remembers.

    Args:
        embedder: computes what is not known yet.
    """

    def __init__(self, embedder: TextEmbedder) -> None:
        self._embedder = embedder
        self._whole: dict[str | None, np.ndarray] = {}
        self._many: dict[str | None, np.ndarray] = {}
        self._bounded: dict[str | None, np.ndarray] = {}

    @override
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return _recall(self._whole, texts, self._embedder.embed)

    @override
    def embed_many(self, texts: Sequence[str]) -> np.ndarray:
        return _recall(self._many, texts, self._embedder.embed_many)

    @override
    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        return _recall(self._bounded, texts, self._embedder.embed_bounded)


def _recall(
    known: dict[str | None, np.ndarray], texts: Sequence[str | None], embed: Callable[[Any], np.ndarray]
) -> np.ndarray:
    if new := [text for text in dict.fromkeys(texts) if text not in known]:
        known.update(zip(new, embed(list(new)), strict=True))
    return np.stack([known[text] for text in texts]) if texts else embed([])
