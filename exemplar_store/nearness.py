"""The exemplars that a slot shows: those nearest to the question, computed with whole numbers.

Ranking all units by nearness would be unsound: without one unit another moves up, into another slot. Ranking *inside* a
slot is not: which exemplars a slot shows is a function of that slot's exemplars and the question.

That must hold bit by bit. A product of floating-point matrices rounds each entry differently depending on the matrices'
shapes, so one unit could change the order in another's slot. Therefore embeddings are rounded to whole numbers of 8
bits, each by itself. Their dot products are sums of whole numbers that a float32 holds exactly (a float64 where there
are more than 1,040 dimensions), in whichever order they are added. What follows is computed for each exemplar alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np

from exemplar_store.exemplar import Slot

LEVELS = 127
_EXACT_IN_FLOAT32 = 2**24 // LEVELS**2
_VECTORS_AT_ONCE = 1024  # compared with up to a thousand centres


@dataclass(frozen=True, eq=False)
class Nearest:
    """The exemplars that a slot shows of those it has drawn: the nearest to a question.

    Attributes:
        question: embedding of the question, float (d,).
        shown: largest number of exemplars that a slot shows.
    """

    question: np.ndarray
    shown: int


def rounded(embeddings: np.ndarray) -> np.ndarray:
    """Embeddings as whole numbers from -127 to 127; the largest of each, in absolute value, becomes 127.

    Args:
        embeddings: float (n, d), none of them zero.

    Returns:
        int8 (n, d). Each row depends on its own embedding alone.
    """
    scale = LEVELS / np.max(np.abs(embeddings), axis=-1, keepdims=True)
    return np.rint(embeddings * scale).astype(np.int8)


def cosines(vectors: np.ndarray, question: np.ndarray) -> np.ndarray:
    """Cosines of rounded embeddings to a rounded question, but for a factor of the question's, float64 (n,).

    An entry has the same bits whatever the other rows are.

    Args:
        vectors: int8 (n, d), from :func:`rounded`.
        question: int8 (d,), likewise.
    """
    wide, exact = _exact(vectors), _exact(question)
    return np.einsum("nd,d->n", wide, exact).astype(np.float64) / _norms(wide)


def closest(centres: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The number of the centre that each vector is most similar to, of equals the first: int64 (n,).

    An entry depends on its vector and the centres alone.

    Args:
        centres: int8 (k, d), from :func:`rounded`.
        vectors: int8 (n, d), likewise.
    """
    exact = _exact(centres)
    norms = _norms(exact)
    parts = [_exact(vectors[first : first + _VECTORS_AT_ONCE]) for first in range(0, len(vectors), _VECTORS_AT_ONCE)]
    found = [np.argmax((part @ exact.T).astype(np.float64) / norms, axis=1) for part in parts]
    return np.concatenate([np.empty(0, np.int64), *found])


def _exact(vectors: np.ndarray) -> np.ndarray:
    """int8 vectors (..., d) as floats in which sums of products of two of them are exact, in any order."""
    return vectors.astype(np.float32 if vectors.shape[-1] <= _EXACT_IN_FLOAT32 else np.float64)


def _norms(exact: np.ndarray) -> np.ndarray:
    """Norms of vectors (n, d) from :func:`_exact`: float64 (n,)."""
    return np.sqrt(np.einsum("nd,nd->n", exact, exact).astype(np.float64))


def shown(slot: Slot, wanted: Nearest) -> Slot:
    """The exemplars that a slot shows, of those at hand with embeddings: the nearest last, of equals the first."""
    if not slot:
        return slot
    vectors = rounded(np.stack([cast(np.ndarray, exemplar.embedding) for exemplar in slot]))
    order = np.argsort(-cosines(vectors, rounded(wanted.question)), kind="stable")[: wanted.shown]
    return tuple(slot[number] for number in order[::-1].tolist())


def nearest(
    kept: Sequence[np.ndarray], tags: np.ndarray, vectors: dict[int, bytes], wanted: Nearest
) -> list[np.ndarray]:
    """The exemplars that each slot shows, the nearest last.

    Args:
        kept: numbers of the exemplars that each slot has drawn: int arrays.
        tags: content tags by number, bytes (n,): they decide where cosines are equal.
        vectors: rounded embeddings by number, as bytes. An exemplar without one of the question's length is not shown.
        wanted: the question, and the number of exemplars to show.

    Returns:
        For each slot, at most ``wanted.shown`` numbers: int arrays.
    """
    question = rounded(wanted.question)
    slots = np.repeat(np.arange(len(kept)), [len(numbers) for numbers in kept])
    numbers = np.concatenate([np.empty(0, np.int64), *kept]).astype(np.int64)
    here = np.array([len(vectors.get(number, b"")) == len(question) for number in numbers.tolist()], bool)
    slots, numbers = slots[here], numbers[here]
    packed = b"".join(vectors[number] for number in numbers.tolist())
    near = cosines(np.frombuffer(packed, np.int8).reshape(len(numbers), len(question)), question)
    order = np.lexsort((tags[numbers], -near, slots))
    ends = np.searchsorted(slots[order], np.arange(len(kept) + 1))
    return [numbers[order[first : min(end, first + wanted.shown)][::-1]] for first, end in pairwise(ends)]
