"""The public words a channel knows, where they lie, and how often they occur."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LARGEST_BYTES = 2_000_000_000
_ZIPF_SHIFT = 2.7


class VocabularyError(ValueError):
    """Words and vectors that make no vocabulary."""


def zipf(count: int) -> FloatArray:
    """Shares of words listed from the most to the least frequent: proportional to 1/(rank + 2.7) (Mandelbrot 1953)."""
    weights = 1 / (np.arange(1, count + 1) + _ZIPF_SHIFT)
    return weights / weights.sum()


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words with their vectors. **Everything here is public**: a channel's parameters are made from it alone.

    Args:
        words: n different words, the most frequent first if no shares are given.
        vectors: finite, float (n, d).
        shares: frequency of each word in public text, (n,); None takes :func:`zipf`.

    Raises:
        VocabularyError: fewer than two words, a word twice, or shapes and numbers that do not fit.
    """

    words: tuple[str, ...]
    vectors: FloatArray
    shares: FloatArray

    def __init__(self, words: Sequence[str], vectors: npt.ArrayLike, shares: npt.ArrayLike | None = None) -> None:
        count = len(words)
        placed = np.ascontiguousarray(vectors, dtype=np.float64)
        weights = zipf(count) if shares is None else np.asarray(shares, dtype=np.float64)
        if count < 2 or len(set(words)) != count:
            raise VocabularyError("a vocabulary needs at least two words, all different")
        if placed.ndim != 2 or len(placed) != count or not np.isfinite(placed).all():
            raise VocabularyError(f"{count} words need {count} rows of finite numbers, not an array {placed.shape}")
        if weights.shape != (count,) or not np.isfinite(weights).all() or weights.min() < 0 or weights.sum() <= 0:
            raise VocabularyError("shares must be one number per word, none below 0")
        object.__setattr__(self, "words", tuple(words))
        object.__setattr__(self, "vectors", placed)
        object.__setattr__(self, "shares", weights / weights.sum())

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each word."""
        return {word: at for at, word in enumerate(self.words)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of words, vectors and shares: what tables made from them are filed under."""
        content = hashlib.sha256("\0".join(self.words).encode(errors="surrogatepass"))
        for part in (self.vectors, self.shares):
            content.update(repr(part.shape).encode())
            content.update(part.tobytes())
        return content.hexdigest()

    def distances(self, x: IntArray) -> FloatArray:
        """Euclidean distances of the words x to all words, (len(x), n); 0 of a word to itself."""
        if 4 * len(self) ** 2 > LARGEST_BYTES:
            return self._distances_of(x).astype(np.float64)
        return self._distances[x].astype(np.float64)

    @cached_property
    def _distances(self) -> npt.NDArray[np.float32]:
        table = np.empty((len(self), len(self)), dtype=np.float32)
        for x in blocks(len(self)):
            table[x] = self._distances_of(x)
        return table

    def _distances_of(self, x: IntArray) -> npt.NDArray[np.float32]:
        """Rounded to 24 bits: channels are made of them, so what they are made of matters to no ε."""
        rows = distances(self.vectors[x], self.vectors).astype(np.float32)
        rows[np.arange(len(x)), x] = 0
        return rows

    def nearest(self, x: IntArray, k: int) -> IntArray:
        """The k words nearest to each word of x, itself first, (len(x), k)."""
        return nearest(self.distances(x), k)

    @cached_property
    def diameter(self) -> float:
        """The largest distance between two words."""
        return max(float(self.distances(x).max()) for x in blocks(len(self)))


def distances(points: FloatArray, others: FloatArray) -> FloatArray:
    """Euclidean distances, (len(points), len(others))."""
    squares = np.einsum("ij,ij->i", points, points)[:, None] + np.einsum("ij,ij->i", others, others)
    squares -= 2 * (points @ others.T)
    return np.sqrt(np.maximum(squares, 0, out=squares), out=squares)


def nearest(distance: FloatArray, k: int) -> IntArray:
    """The columns of the k smallest distances in each row, in their order; of equals the first column."""
    if k >= distance.shape[1]:
        return np.argsort(distance, axis=1, kind="stable")
    near = np.sort(np.argpartition(distance, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(distance, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def blocks(count: int, size: int = 512) -> list[IntArray]:
    """0..count-1 in pieces, so that no array of count × count is ever in memory."""
    return [np.arange(start, min(start + size, count)) for start in range(0, count, size)]
