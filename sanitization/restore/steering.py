"""Bundles' vectors as one table, which an engine loads once; a request names a row of it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sanitization.restore.bundle import Bundle, BundleError

TABLE = "dpicl_steering"
"""Key in vLLM's ``additional_config``: a safetensors file with ``layer.N`` for each layer of a table."""
ROW, BEGIN = "dpicl_row", "dpicl_begin"
"""Keys in a request's ``extra_args``: its row, and the position of the first token that is steered."""

Table = dict[int, npt.NDArray[np.float32]]
"""Vectors by layer, added to each head's output in proportion to its norm, (rows, heads·size); row 0 is zeros."""


def table(bundles: Sequence[tuple[Bundle, npt.NDArray[np.float32]]], heads: int, size: int) -> tuple[Table, list[int]]:
    """One table of several bundles for one model.

    Args:
        bundles: bundles, each with its vectors, (k, its heads, size).
        heads: number of heads in each of the model's layers.
        size: size of a head.

    Returns:
        The table, and for each bundle the row of its profile 0.

    Raises:
        BundleError: a bundle's vectors do not fit the model, or are not finite.
    """
    count = 1 + sum(bundle.book.k for bundle, _ in bundles)
    layers: Table = {}
    bases: list[int] = []
    base = 1
    for bundle, vectors in bundles:
        steering = bundle.manifest.steering
        if vectors.shape != (bundle.book.k, len(steering.heads), size) or not np.isfinite(vectors).all():
            raise BundleError(f"{bundle.address}: vectors {vectors.shape} do not fit heads of {size} numbers")
        for place, (layer, head) in enumerate(steering.heads):
            if not 0 <= head < heads:
                raise BundleError(f"{bundle.address}: no head {head} in a layer of {heads}")
            rows = layers.setdefault(layer, np.zeros((count, heads * size), dtype=np.float32))
            rows[base : base + bundle.book.k, head * size : (head + 1) * size] = steering.scale * vectors[:, place]
        bases.append(base)
        base += bundle.book.k
    return layers, bases
