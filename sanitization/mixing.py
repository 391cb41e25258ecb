"""The least that makes any channel private.

**Theorem.** Let M_y and m_y be the largest and the smallest P(y|x) over x, and T = Σ_y max(0, M_y - e^ε·m_y). Some
mixture (1-β)·P + β·q with a fixed law q is ε-private exactly if β ≥ T/(e^ε - 1 + T). Equality needs, and is reached by,
q_y = max(0, M_y - e^ε·m_y)/T.

*Proof.* Output y keeps its bound if (1-β)·M_y + β·q_y ≤ e^ε·((1-β)·m_y + β·q_y), that is β·q_y·(e^ε - 1) ≥
(1-β)·(M_y - e^ε·m_y). Its left side is no less than 0, so the right side may be replaced by its positive part. Summing
over y, β·(e^ε - 1) ≥ (1-β)·T, which is the bound on β; with equality, the q above satisfies each line with equality. ∎

Mixing with the uniform law u needs β = n·max(M)/(e^ε - 1 + n·max(M)) when lowest probabilities are 0; here
T ≤ ΣM_y ≤ n·max(M).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sanitization.audit import Extremes
from sanitization.channel import Channel
from sanitization.vocabulary import FloatArray, IntArray, blocks


@dataclass(frozen=True)
class Mixed:
    """A channel that is sometimes a draw from a fixed law instead."""

    channel: Channel
    beta: float
    """How often."""
    base: FloatArray
    """The law, (len(outputs),)."""

    @property
    def inputs(self) -> Sequence[str]:
        """The channel's."""
        return self.channel.inputs

    @property
    def outputs(self) -> Sequence[str]:
        """The channel's."""
        return self.channel.outputs

    def rows(self, x: IntArray) -> FloatArray:
        """See :class:`sanitization.channel.Channel`."""
        law = self.channel.rows(x)
        law *= 1 - self.beta
        law += self.beta * self.base
        return law


def extremes(channel: Channel) -> Extremes:
    """The largest and smallest probabilities of all outputs."""
    found = Extremes(len(channel.outputs))
    for x in blocks(len(channel.inputs)):
        found.add(x, channel.rows(x))
    return found


def least_mixing(highest: FloatArray, lowest: FloatArray, epsilon: float) -> tuple[float, FloatArray]:
    """β and q of the theorem.

    Args:
        highest: M_y, (m,).
        lowest: m_y, (m,).
        epsilon: above 0.
    """
    lacking = np.maximum(highest - math.exp(epsilon) * lowest, 0)
    total = float(lacking.sum())
    if total == 0:
        return 0.0, np.full(len(highest), 1 / len(highest))
    return total / (math.expm1(epsilon) + total), lacking / total


def mixed(channel: Channel, epsilon: float) -> Mixed:
    """The channel, mixed as little as makes its true ε at most ``epsilon`` (up to rounding: audit what comes out)."""
    found = extremes(channel)
    return Mixed(channel, *least_mixing(found.highest, found.lowest, epsilon))
