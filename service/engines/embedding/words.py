"""The built-in vocabulary for sanitising: the English words that MiniLM knows, and their embeddings.

Those of the first 3,000 come with this package, so that a client needs neither the model nor torch.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sanitization import embeddings
from sanitization.cache import Kept, remember
from sanitization.vocabulary import Vocabulary
from service.engines.embedding.embedder import Embed, Embedder, cores
from service.engines.embedding.model import chosen_model, identity, packaged_model

SHIPPED = 3000
"""Number of words whose embeddings are in this package: those of :func:`minilm_words`, saved as float16.

Words and model are those of all-MiniLM-L6-v2 (Apache License 2.0). A test computes them again.
"""
_SHIPPED = Path(__file__).with_name("minilm-words.npy")


def cache_folder() -> Path:
    """The folder for tables and embeddings that can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpicl"


def unicode(words: Sequence[str]) -> list[str]:
    """The words without half surrogate pairs, which have no tokens; like any other word they need some vector."""
    return [word.encode(errors="replace").decode() for word in words]


class EmbeddedOnDemand:
    """Embeds like :class:`service.engines.embedding.embedder.Embedder`, which it loads when it is first needed."""

    @cached_property
    def _embedder(self) -> Embedder:
        return Embedder()

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Unit-norm float32 embeddings of shape (n, d)."""
        return self._embedder.embed(unicode(words))


def embedder_here() -> EmbeddedOnDemand | None:
    """What embeds words that a vocabulary does not know; None in a client, which has no model."""
    return None if find_spec("sentence_transformers") is None else EmbeddedOnDemand()


def local_words(count: int, folder: Path) -> Vocabulary:
    """The first words of MiniLM's vocabulary, for a process of a person's own.

    Args:
        count: number of words. More than :data:`SHIPPED`, or those of another model than MiniLM, are embedded here.
        folder: folder that keeps the embeddings.
    """
    if count > SHIPPED or chosen_model():
        return minilm_words(count, folder)
    return embeddings.load(_SHIPPED, words=_SHIPPED.with_suffix(".txt"), most=count)


def minilm_words(count: int, folder: Path, embed: Embed | None = None) -> Vocabulary:
    """The first words of MiniLM's vocabulary, which lists the most frequent first.

    A word's vector is the sentence embedding of the word, of norm 1. So every other string has one, too.

    Args:
        count: number of words, at most about 21,700.
        folder: folder that keeps the embeddings.
        embed: embedder for the first time; unless given, one is opened.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(packaged_model() / "tokenizer.json"))
    words = list(embeddings.whole_words(tokenizer.get_vocab()))[:count]
    return Vocabulary(words, embedded_once(words, folder, embed or (lambda given: Embedder().embed_many(given))))


def embedded_once(texts: Sequence[str], folder: Path, embed: Embed | None = None) -> np.ndarray:
    """Embeddings of public texts, kept in a folder: unit-norm float32 (n, d).

    Args:
        texts: words, or longer ones.
        folder: folder that keeps them.
        embed: embedder for the first time; unless given, one is opened.

    Raises:
        sanitization.cache.DamagedFileError: a kept file has changed.
    """

    def made() -> Kept:
        return {"vectors": (embed or Embedder(threads=cores()).embed_many)(texts)}, {}

    arrays, _ = remember(folder, "\0".join(["embeddings", identity(chosen_model()), *texts]), made)
    return arrays["vectors"]
