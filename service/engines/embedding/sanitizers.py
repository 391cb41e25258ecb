"""Sanitisers on the built-in words and the operator's public texts, opened when first asked for, and kept."""

import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from sanitization import whole
from sanitization.audit import RefusedChannelError
from sanitization.cache import DamagedFileError
from sanitization.mechanisms import CORRECTED, RESPONSES, SMALLEST_EPSILON
from sanitization.response import LARGEST_EPSILON
from sanitization.table import TableError, forget_oldest
from sanitization.text import TextSanitizer, open_sanitizer
from sanitization.vocabulary import LARGEST_BYTES, Vocabulary, VocabularyError
from service.engines.embedding.embedder import TextEmbedder
from service.engines.embedding.words import embedded_once, minilm_words, unicode
from service.problem_kinds import ProblemKind, RefusalError

_KEPT = 32
_KEPT_TABLES = 4
"""Tables that are open at once. Each takes 8 bytes for every two words."""
MOST_TABLE_BYTES = 2 * LARGEST_BYTES
"""Size of all tables in the folder: callers choose ε and mechanism, and each choice makes another."""
_TOGETHER = 64
_LONGEST_S = 600
MOST_UNKNOWN = 500
"""Different words that are embedded for one call: two seconds of processor time at most."""


class SanitizersUnavailableError(RefusalError, RuntimeError):
    """There is no sanitiser, or not yet. Nothing was sanitised."""

    kind = ProblemKind.SANITIZER_UNAVAILABLE
    retry_after_s = 60


class EpsilonNotAttainableError(RefusalError, ValueError):
    """No sanitiser has an ε as asked for."""

    kind = ProblemKind.EPSILON_NOT_ATTAINABLE

    def __init__(self, epsilon: float, least: float, largest: float = LARGEST_EPSILON) -> None:
        self.members = {"least": least, "largest": largest}
        super().__init__(f"ε = {epsilon:g} is not attainable: the least is {least:g}, the largest {largest:g}")


def setting_for(mechanism: str) -> str:
    """Name of the operator's setting for a mechanism."""
    return "DPICL_PUBLIC_TEXTS" if mechanism == whole.NAME else "DPICL_SANITIZER_WORDS"


class Sanitizers:
    """Opens sanitisers; threads may share it.

    Args:
        words: number of words that they know; 0 for none at all.
        public_texts: texts that whole texts become; without any, whole texts cannot be sanitised.
        embedder: embedder of words and texts.
        folder: folder that keeps embeddings and tables.
    """

    def __init__(self, words: int, public_texts: Sequence[str], embedder: TextEmbedder, folder: Path) -> None:
        self._words = words
        self._public_texts = public_texts
        self._embedder = embedder
        self._folder = folder
        self._vocabulary: Vocabulary | None = None
        self._placed: np.ndarray | None = None
        self._prepared = threading.Event()
        self._opening = threading.Lock()
        self._open = lru_cache(_KEPT)(self._opened)
        self._open_table = lru_cache(_KEPT_TABLES)(self._opened)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that can be opened, or will be once all is embedded."""
        of_words = (*RESPONSES, *CORRECTED) if self._words else ()
        return (*of_words, whole.NAME) if self._public_texts else of_words

    @property
    def wanted(self) -> bool:
        """Whether there are to be any."""
        return bool(self.mechanisms)

    def prepare(self) -> None:
        """Embed words and texts, unless that was done before; some milliseconds of processor time for each.

        Raises:
            OSError: the folder cannot be written.
            RuntimeError: the embedder does not answer.
        """
        if self._words:
            self._vocabulary = minilm_words(self._words, self._folder, self._embed)
        if self._public_texts:
            self._placed = embedded_once(self._public_texts, self._folder, self._embed)
        self._prepared.set()

    def wait(self) -> None:
        """Wait until words and texts are embedded, if they are to be.

        Raises:
            SanitizersUnavailableError: it takes longer than ten minutes.
        """
        if self.wanted and not self._prepared.wait(_LONGEST_S):
            raise SanitizersUnavailableError("the words cannot be embedded: see the service's log")

    def open(self, mechanism: str, epsilon: float, keep: Sequence[str] | None) -> TextSanitizer:
        """The sanitiser with these parameters; the first time takes seconds.

        Args:
            mechanism: name of the mechanism.
            epsilon: see :func:`sanitization.text.open_sanitizer` and :func:`sanitization.whole.open_whole`.
            keep: see :func:`sanitization.whole.kept`.

        Raises:
            SanitizersUnavailableError: the operator has not asked for it, its words are not embedded, they are too few
                or their table would be too large.
            EpsilonNotAttainableError: ε is out of range.
            ValueError: something else is wrong with the parameters.
            LookupError: no such mechanism.
        """
        if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
            raise EpsilonNotAttainableError(epsilon, SMALLEST_EPSILON)
        if not (self._public_texts if mechanism == whole.NAME else self._words):
            raise SanitizersUnavailableError(
                f"this service sanitises no texts by {mechanism}: the operator must set {setting_for(mechanism)}"
            )
        if not self._prepared.is_set():
            raise SanitizersUnavailableError("the words are still being embedded; come back in a minute")
        with self._opening:
            try:
                if mechanism not in CORRECTED:
                    return self._open(mechanism, epsilon, whole.kept(mechanism, keep))
                sanitizer = self._open_table(mechanism, epsilon, whole.kept(mechanism, keep))
                forget_oldest(self._folder, MOST_TABLE_BYTES)
                return sanitizer
            except (DamagedFileError, RefusedChannelError, TableError, VocabularyError) as error:
                raise SanitizersUnavailableError(f"this service's words do not do for {mechanism}: {error}") from error

    def _opened(self, mechanism: str, epsilon: float, keep: frozenset[str]) -> TextSanitizer:
        if mechanism == whole.NAME:
            assert self._placed is not None  # noqa: S101
            return whole.open_whole(self._public_texts, self._placed, epsilon, self._folder, self._embed)
        assert self._vocabulary is not None  # noqa: S101
        return open_sanitizer(
            mechanism,
            self._vocabulary,
            epsilon,
            self._folder,
            keep=keep,
            embed=self._embed,
            most_unknown=MOST_UNKNOWN,
        )

    def _embed(self, words: Sequence[str]) -> np.ndarray:
        """In parts, so that questions get their turn in between."""
        parts = [words[start : start + _TOGETHER] for start in range(0, len(words), _TOGETHER)]
        return np.concatenate([self._embedder.embed(unicode(part)) for part in parts])
