"""Vocabularies and channels that tests make up."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sanitization.text import TextSanitizer, open_sanitizer
from sanitization.vocabulary import Vocabulary


def vocabulary(count: int, dimensions: int = 16, seed: int = 0) -> Vocabulary:
    """Words in clusters on a sphere, as words are."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(max(2, count // 6), dimensions))
    vectors = centres[rng.integers(len(centres), size=count)] + 0.5 * rng.normal(size=(count, dimensions))
    return Vocabulary([f"w{i}" for i in range(count)], vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@dataclass
class Rows:
    """A channel given by the table of its probabilities."""

    law: np.ndarray

    @property
    def inputs(self) -> Sequence[str]:
        return [f"x{i}" for i in range(self.law.shape[0])]

    @property
    def outputs(self) -> Sequence[str]:
        return [f"y{i}" for i in range(self.law.shape[1])]

    def rows(self, x: np.ndarray) -> np.ndarray:
        return self.law[x].copy()


def random_rows(inputs: int, outputs: int, seed: int, *, zeros: float = 0.0) -> Rows:
    """Rows of random numbers, some of them 0; no row and no column is all 0."""
    rng = np.random.default_rng(seed)
    law = rng.exponential(size=(inputs, outputs)) * (rng.random((inputs, outputs)) >= zeros)
    law[np.arange(inputs), np.arange(inputs) % outputs] += 0.1
    return Rows(law / law.sum(axis=1, keepdims=True))


@dataclass
class Entity:
    """An entity that a detector finds."""

    entity_type: str
    start: int
    end: int


def letter_words(count: int) -> Vocabulary:
    """The same vocabulary with words of three letters, as texts have them."""
    made = vocabulary(count, 24)
    names = ["".join("bcdfghjklmnpqrstvwxz"[int(digit)] for digit in f"{at:03}") for at in range(count)]
    return Vocabulary(names, made.vectors)


def keeping_placeholders(folder: Path) -> TextSanitizer:
    keep = ["stopwords", "punctuation", "placeholders"]
    return open_sanitizer("medoid_rr", letter_words(60), 2, folder, keep=keep)
