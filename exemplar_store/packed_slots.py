"""A query's slots as a few large pieces, for the way from one process to another: a matrix rather than its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from exemplar_store.exemplar import Exemplar, Slot


@dataclass(frozen=True, slots=True, eq=False)
class PackedSlots:
    """Slots whose n exemplars are of one knowledge base: all have the same fields, and all have embeddings or none."""

    sizes: Sequence[int]
    """Number of exemplars in each slot; n in all."""
    names: Sequence[str]
    """The fields'."""
    values: Sequence[str]
    """The fields' values, exemplar by exemplar: n times as many as there are fields."""
    embeddings: np.ndarray | None
    """float32 (n, d), or None."""
    response_embeddings: np.ndarray | None
    """Likewise."""

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> PackedSlots:
        """These slots."""
        exemplars = [exemplar for slot in slots for exemplar in slot]
        names = list(exemplars[0].fields) if exemplars else []
        return cls(
            sizes=[len(slot) for slot in slots],
            names=names,
            values=[exemplar.fields[name] for exemplar in exemplars for name in names],
            embeddings=_matrix([exemplar.embedding for exemplar in exemplars]),
            response_embeddings=_matrix([exemplar.response_embedding for exemplar in exemplars]),
        )

    def slots(self) -> list[Slot]:
        """The slots again."""
        values = iter(self.values)
        fields = [dict(zip(self.names, islice(values, len(self.names)), strict=True)) for _ in range(sum(self.sizes))]
        none = [None] * len(fields)
        embeddings = none if self.embeddings is None else self.embeddings
        response_embeddings = none if self.response_embeddings is None else self.response_embeddings
        exemplars = map(Exemplar, fields, embeddings, response_embeddings)
        return [tuple(islice(exemplars, size)) for size in self.sizes]


def _matrix(vectors: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """All of them or None. Some would be an error: a vector must not go to another exemplar."""
    return None if all(vector is None for vector in vectors) else np.stack(vectors)  # type: ignore[arg-type]
