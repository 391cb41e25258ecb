"""A unit's texts as embeddings."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating[Any]]
Unit = Iterable[tuple[int, Vector]]
"""A unit's texts: of each its label's index and its embedding."""

_NORM_TOLERANCE = 0.01  # a vector whose norm differs more from 1 is not an embedding


def is_embedding(vector: object, dimension: int) -> bool:
    """Whether this is one: finite, of such a dimension and of norm 1."""
    if not (isinstance(vector, np.ndarray) and vector.dtype.kind == "f" and vector.shape == (dimension,)):
        return False
    return abs(norm(vector) - 1) <= _NORM_TOLERANCE


def norm(vector: Vector) -> float:
    """Euclidean norm to the last bit or so, whatever the dimension; never raises (NaN, infinity and overflow)."""
    return math.hypot(*vector.tolist())
