"""A public book of profiles: what kinds of spans there are, so that k numbers can stand for all of them.

A query's spans have types c with weights w_c, and restoration vectors r_c make its meta vector Z = Σw_c·r_c/‖·‖. The
book has k-1 unit centroids of Z over *public* queries (k-means), each with the spans of its medoid, and profile 0,
which stands for no spans. A client needs of all this only the products ⟨r_c, centroid⟩: no vector ever reaches it.

Everything is computed from the Gram matrix of the r_c, so its cost does not depend on how long they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sanitization.vocabulary import FloatArray

_RESTARTS = 20
_STEPS = 50


@dataclass(frozen=True, eq=False)
class Book:
    """The data by which a client finds a profile.

    Attributes:
        types: names of span types, t of them.
        affinity: ⟨r_c, centroid j⟩, float64 (t, k); 0 for profile 0.
        medoids: the spans of each profile's medoid, k tuples; profile 0 has none.
    """

    types: tuple[str, ...]
    affinity: FloatArray
    medoids: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if self.affinity.shape != (len(self.types), len(self.medoids)) or not np.isfinite(self.affinity).all():
            raise ValueError("a book needs one finite number for each type and profile")
        if self.k < 2 or self.medoids[0] or np.any(self.affinity[:, 0]):
            raise ValueError("a book has at least two profiles, and profile 0 stands for no spans")

    @property
    def k(self) -> int:
        """Number of profiles, including that of no spans."""
        return len(self.medoids)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.types)}

    def nearest(self, weights: Mapping[str, float]) -> int:
        """The profile of spans with these types and weights; 0 if there are none. No randomness here."""
        if not weights:
            return 0
        rows = [self._place[name] for name in weights]
        return 1 + int((np.array(list(weights.values())) @ self.affinity[rows, 1:]).argmax())


@dataclass(frozen=True, eq=False)
class Made:
    """A book, and how its centroids are put together.

    Attributes:
        book: the book.
        mixture: centroid j is Σ_c mixture[j, c]·r_c, of norm 1; float64 (k, t); 0 for profile 0.
    """

    book: Book
    mixture: FloatArray


def make_book(
    types: Sequence[str], gram: FloatArray, weights: FloatArray, spans: Sequence[Sequence[str]], k: int, seed: int = 0
) -> Made:
    """k-means of public queries' meta vectors.

    Args:
        types: t names.
        gram: ⟨r_c, r_d⟩, (t, t).
        weights: weights of the types in each query, (N, t), not negative; a row of zeros is a query without spans.
        spans: spans of each query.
        k: number of profiles, including that of no spans.
        seed: seed of the first centroids.

    Raises:
        ValueError: the queries are too few or too alike for ``k`` profiles.
    """
    coordinates = _coordinates(gram)
    meta = weights @ coordinates
    meta, scaled = meta / _norms(meta), weights / _norms(meta)
    some = np.flatnonzero(weights.sum(axis=1) > 0)
    if k < 2 or len(np.unique(meta[some].round(9), axis=0)) < k - 1:
        raise ValueError(f"{len(some)} queries with spans are too few or too alike for {k} profiles")
    label = _clusters(meta[some], k - 1, seed)
    sums = np.zeros((k, len(types)))
    np.add.at(sums, label + 1, scaled[some])
    centroids = sums @ coordinates
    centroids, mixture = centroids / _norms(centroids), sums / _norms(centroids)
    # The query nearest to each centroid; a public one, as all of them are.
    medoid = some[(meta[some] @ centroids[1:].T).argmax(axis=0)]
    medoids = ((), *(tuple(spans[at]) for at in medoid))
    affinity = coordinates @ centroids.T
    affinity[:, 0] = 0
    return Made(Book(tuple(types), affinity, medoids), mixture)


def meta_products(gram: FloatArray, weights: FloatArray, mixture: FloatArray) -> FloatArray:
    """⟨Z, centroid⟩ of each query and each row of a mixture, (N, k)."""
    coordinates = _coordinates(gram)
    return unit_rows(weights @ coordinates) @ (mixture @ coordinates).T


def _coordinates(gram: FloatArray) -> FloatArray:
    """Vectors with these products, (t, t)."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0))


def unit_rows(points: FloatArray) -> FloatArray:
    """Rows of norm 1; 0 stays 0."""
    return points / _norms(points)


def _norms(points: FloatArray) -> FloatArray:
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.where(norms > 0, norms, 1)


def _clusters(points: FloatArray, k: int, seed: int) -> np.ndarray:
    """The best of a few runs of k-means, none of whose clusters is empty."""
    from scipy.cluster.vq import kmeans2  # half a second to import, and clients do not need it

    seeds = (np.random.default_rng([seed, run]) for run in range(_RESTARTS))
    runs = [kmeans2(points, k, iter=_STEPS, minit="++", seed=each) for each in seeds]
    full = [(centres, label) for centres, label in runs if len(np.unique(label)) == k]
    if not full:
        raise ValueError(f"k-means leaves some of {k} clusters empty: ask for fewer profiles")
    losses = [((points - centres[label]) ** 2).sum() for centres, label in full]
    return full[int(np.argmin(losses))][1]
