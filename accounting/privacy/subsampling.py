"""Amplification: a mechanism's profile under Poisson sampling.

Write A for the answer without the neighbours' differing unit in the sample and B for the answer with it.

``units``: with the unit in the knowledge base the answer is drawn from ``(1-q) A + q B``, without it from ``A``. That
pair is not symmetric, so it has two directions, and a composition must keep them apart:

- remove: ``H(x; (1-q) A + q B, A) = q h(ln(1 + (e^x - 1)/q))`` where ``e^x > 1 - q``, else ``1 - e^x``;
- add: the same pair in the other order.

``blocks``: the unit's block is drawn with it or without it, so the pair is ``(1-q) A + q B`` and ``(1-q) A + q B'``.
By advanced joint convexity (Balle, Barthe and Gaboardi, arXiv 1807.01647, theorem 2), for ``x >= 0`` the divergence is
at most ``q [(1-b) H(y; B, A) + b H(y; B, B')]`` with ``e^y = 1 + (e^x - 1)/q``; A, B and B' are neighbours of each
other, so that is at most the remove direction's. Swapping B and B' mirrors it for ``x < 0``. That holds whatever the
mechanism is; for noise on votes or embeddings :mod:`accounting.privacy.blocks` has the worst pair itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.privacy.events import Sampling
from accounting.privacy.profiles import Array, SymmetricProfile, mirrored


@dataclass(frozen=True)
class Direction:
    """Hockey-stick divergences of one ordered pair (P, Q).

    Attributes:
        upper: ``H(x; P, Q)`` for arrays of ``x >= 0``.
        upper_swapped: ``H(x; Q, P)`` for arrays of ``x >= 0``; together they determine the pair.
        certain_loss: limit of ``upper`` at infinity.
        certain_loss_swapped: limit of ``upper_swapped``.
    """

    upper: Callable[[Array], Array]
    upper_swapped: Callable[[Array], Array]
    certain_loss: float
    certain_loss_swapped: float

    def delta(self, epsilon: Any) -> Any:
        """The divergence at ``epsilon`` (nats; a number or an array, of either sign)."""
        return mirrored(np.asarray(epsilon, dtype=np.float64), self.upper, self.upper_swapped)[()]

    def swapped(self) -> Direction:
        """The pair in the other order."""
        return Direction(self.upper_swapped, self.upper, self.certain_loss_swapped, self.certain_loss)


def amplify(profile: SymmetricProfile, sampling: Sampling) -> tuple[Direction, ...]:
    """The directions one sampled answer can leak in: remove and add for ``units``, one symmetric for ``blocks``."""
    q = sampling.probability

    def remove(x: Array) -> Array:
        return q * profile.upper_delta(np.log1p(np.expm1(np.minimum(x, 700.0)) / q))

    def add(x: Array) -> Array:
        # 1 - e^x + e^x remove(-x), written with the mirror image of h so that nothing cancels; no loss above -ln(1-q).
        u = np.expm1(-x) / q
        inside = u > -1
        base = profile.upper_delta(-np.log1p(np.where(inside, u, 0.0)))
        return np.where(inside, q * np.exp(np.where(inside, x, 0.0)) * (1 + u) * base, 0.0)

    lost = q * profile.certain_loss
    if q == 1:
        return (Direction(profile.upper_delta, profile.upper_delta, lost, lost),)
    if sampling.kind == "blocks":
        return (Direction(remove, remove, lost, lost),)
    removal = Direction(remove, add, lost, 0.0)
    return (removal, removal.swapped())
