"""Utility of sanitised texts, and success of attackers with context, each with its standard error.

A file's last texts are sanitised. The others are public knowledge: words that follow each other, and a classifier of
labels, are learnt from them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from research.sanitization.context import Bigrams, guesses
from sanitization.contextual import ContextualSanitizer
from sanitization.mechanisms import Served
from sanitization.medoids import CANDIDATES
from sanitization.text import TextSanitizer
from sanitization.tokens import Partition, Token
from sanitization.vocabulary import FloatArray, IntArray, Vocabulary
from sanitization.whole import open_whole
from service.engines.embedding.embedder import Embed

_PENALTY = 1e-4

Guesser = Callable[[Sequence[Sequence[Token]]], Sequence[Sequence[str | None]]]
"""An attacker: sanitised texts in, a guess of each token out, or None."""


@dataclass(frozen=True)
class Share:
    """A mean over texts, with its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, right: Sequence[float], outof: Sequence[float]) -> Share:
        """Σ right / Σ outof, texts being independent (ratio estimate)."""
        r, n = np.array(right, dtype=np.float64), np.array(outof, dtype=np.float64)
        if n.sum() == 0:
            return cls(float("nan"), float("nan"))
        value = float(r.sum() / n.sum())
        return cls(value, float(np.sqrt(((r - value * n) ** 2).sum()) / n.sum()))


@dataclass(frozen=True)
class Guessed:
    """The findings of an attacker with a model.

    Attributes:
        right: words found, of all of them.
        answered: words guessed at.
    """

    right: Share
    answered: Share


@dataclass(frozen=True)
class OnTexts:
    """The results on texts.

    Attributes:
        cosine: cosine of a text's embedding and that of its sanitised text.
        accuracy: share of right labels, from the sanitised text; None without labels.
        bayes: share of words that Bayes' guess finds, each by itself; None if texts are drawn as a whole.
        context: share of words found by an attacker who sees the whole text and knows bigrams; None likewise.
        models: share found by each attacker with a model, by name.
    """

    cosine: Share
    accuracy: Share | None
    bayes: Share | None
    context: Share | None
    models: Mapping[str, Guessed]


class Classifier:
    """Softmax regression on embeddings.

    Args:
        vectors: (n, d).
        labels: (n,), any values.
    """

    def __init__(self, vectors: FloatArray, labels: Sequence[str]) -> None:
        self._names, y = np.unique(np.array(labels), return_inverse=True)
        x, k = _with_one(vectors), len(self._names)
        wanted = np.eye(k)[y]

        def loss(flat: FloatArray) -> tuple[float, FloatArray]:
            weights = flat.reshape(x.shape[1], k)
            logs = log_softmax(x @ weights, axis=1)
            slope = x.T @ (np.exp(logs) - wanted) / len(x) + 2 * _PENALTY * weights
            return -float((logs * wanted).sum() / len(x)) + _PENALTY * float((flat**2).sum()), slope.ravel()

        fitted = minimize(loss, np.zeros(x.shape[1] * k), jac=True, method="L-BFGS-B")
        self._weights = fitted.x.reshape(x.shape[1], k)

    def __call__(self, vectors: FloatArray) -> list[str]:
        """The likeliest label of each."""
        return [str(self._names[at]) for at in (_with_one(vectors) @ self._weights).argmax(axis=1)]


class TextFile:
    """A file's texts, the last of them to be sanitised.

    Args:
        rows: rows, each with ``text``, and all or none with ``label``.
        vocabulary: vocabulary of the words that attackers look for: those that are replaced.
        partition: partition of tokens into public and private ones.
        most: number of texts to sanitise, at most half of all; a classifier learns from as many.
        embed: embedding of texts.
        embed_words: embedding of unknown words, like the vocabulary's; without it, any word stands for an unknown one.

    Raises:
        ValueError: fewer than four rows, or a row without a text or a label.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        vocabulary: Vocabulary,
        partition: Partition,
        most: int,
        embed: Embed,
        embed_words: Embed | None = None,
    ) -> None:
        texts, labels = _columns(rows)
        self._vocabulary, self._embed, self._embed_words = vocabulary, embed, embed_words
        self._partition = partition
        known = len(texts) - min(most, len(texts) // 2)
        self.texts, self._others = texts[known:], list(dict.fromkeys(texts[:known]))
        self._clean = embed(self.texts).astype(np.float64)
        self._words = [self._places(text) for text in self.texts]
        self._bigrams = Bigrams([self._places(text).tolist() for text in texts[:known]], vocabulary.shares)
        self._labels = labels[known:]
        learnt = min(most, known)
        self._classifier = Classifier(embed(texts[:learnt]).astype(np.float64), labels[:learnt]) if labels else None

    def clean(self) -> Share | None:
        """Accuracy on clean texts, which no sanitised ones reach."""
        return self._accuracy(self._clean)

    def measure(self, name: str, served: Served, guessers: Mapping[str, Guesser]) -> OnTexts:
        """Sanitise the last texts, once; attack them, with these models, too."""
        sanitizer = TextSanitizer(name, served, self._partition, self._embed_words)
        sanitised = [drawn.text for drawn in sanitizer.sanitize_all(self.texts)]
        law = served.channel.rows(np.arange(len(self._vocabulary)))
        alone = (law * self._bigrams.shares[:, None]).argmax(axis=0)
        hits = []
        for words in self._words:
            outputs = served.channel.draw(words)
            hits.append((alone[outputs] == words, guesses(law[:, outputs], self._bigrams) == words))
        counts = [len(words) for words in self._words]
        return OnTexts(
            *self._useful(sanitised),
            Share.of([float(right.sum()) for right, _ in hits], counts),
            Share.of([float(right.sum()) for _, right in hits], counts),
            {who: self._guessed(guesser, sanitised) for who, guesser in guessers.items()},
        )

    def in_context(self, sanitizer: ContextualSanitizer, guessers: Mapping[str, Guesser]) -> OnTexts:
        """The same, of a sanitiser that reads what it has released, as the attackers do."""
        traced = [sanitizer.trace(text) for text in self.texts]
        sanitised = [done.text for done, _ in traced]
        alone, context, counts = list[float](), list[float](), list[int]()
        for _, steps in traced:
            known = [step for step in steps if self._place(step.token) is not None]
            emitted = np.zeros((len(self._vocabulary), len(known)))
            for at, step in enumerate(known):
                emitted[:, at] = step.channel.column(step.output)
            words = np.array([step.place for step in known], dtype=np.int64)
            alone.append(float(((emitted * self._bigrams.shares[:, None]).argmax(axis=0) == words).sum()))
            context.append(float((guesses(emitted, self._bigrams) == words).sum()))
            counts.append(len(known))
        return OnTexts(
            *self._useful(sanitised),
            Share.of(alone, counts),
            Share.of(context, counts),
            {who: self._guessed(guesser, sanitised) for who, guesser in guessers.items()},
        )

    def whole(self, epsilon: float, folder: Path) -> OnTexts:
        """Replace each of the last texts as a whole by one of the others: ε is for all of it."""
        public = self._others[:CANDIDATES]
        sanitizer = open_whole(public, self._embed(public), epsilon, folder, self._embed)
        return OnTexts(*self._useful([drawn.text for drawn in sanitizer.sanitize_all(self.texts)]), None, None, {})

    def _useful(self, sanitised: Sequence[str]) -> tuple[Share, Share | None]:
        """Cosine and accuracy."""
        vectors = self._embed(sanitised).astype(np.float64)
        cosines = (self._clean * vectors).sum(axis=1)
        return Share.of(cosines.tolist(), [1] * len(cosines)), self._accuracy(vectors)

    def _guessed(self, guesser: Guesser, sanitised: Sequence[str]) -> Guessed:
        right, answered, counts = [], [], []
        guesses = guesser([self._partition.tokens(text)[0] for text in sanitised])
        for text, guessed in zip(self.texts, guesses, strict=True):
            pairs = [
                (token.text.lower(), guess)
                for token, guess in zip(self._partition.tokens(text)[0], guessed, strict=True)
                if self._place(token) is not None
            ]
            counts.append(len(pairs))
            answered.append(float(sum(guess is not None for _, guess in pairs)))
            right.append(float(sum(guess is not None and guess.lower() == word for word, guess in pairs)))
        return Guessed(Share.of(right, counts), Share.of(answered, counts))

    def _accuracy(self, vectors: FloatArray) -> Share | None:
        if self._classifier is None:
            return None
        right = [float(a == b) for a, b in zip(self._classifier(vectors), self._labels, strict=True)]
        return Share.of(right, [1] * len(right))

    def _places(self, text: str) -> IntArray:
        """Indices of a text's known words, in their order."""
        places = map(self._place, self._partition.tokens(text)[0])
        return np.array([place for place in places if place is not None], dtype=np.int64)

    def _place(self, token: Token) -> int | None:
        """Index of a token, if it is a known word, which is drawn."""
        index = self._vocabulary.index
        return index.get(token.text, index.get(token.text.lower())) if token.kind == "word" else None


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Texts and labels; none of those if no row has one."""
    if len(rows) < 4:
        raise ValueError("at least four texts are needed, two of them to learn from")
    labelled = any("label" in row for row in rows)
    for number, row in enumerate(rows, 1):
        if not all(isinstance(row.get(name), str) for name in ("text", "label")[: 1 + labelled]):
            raise ValueError(f"row {number}: a text{' and a label' if labelled else ''} expected")
    return [row["text"] for row in rows], [row["label"] for row in rows] if labelled else []


def _with_one(vectors: FloatArray) -> FloatArray:
    return np.column_stack([vectors, np.ones(len(vectors))])
