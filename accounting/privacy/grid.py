"""Privacy loss distributions on a grid that dominate a pair of outputs.

A pair (P, Q) is replaced by one whose losses are multiples of a step and whose hockey-stick divergences are at least as
large everywhere (Connect the Dots, Doroshenko et al., arXiv 2207.04380, algorithm 1). It is written out here, since
importing dp_accounting's takes most of a second and 100 MiB. Losses above 0 come from the pair, losses below 0 from the
swapped pair: the mass of P at -x is e^(-x) times that of Q at x. So both halves have a small relative error; one pass
over both would drown the lower half in rounding noise.

Cutting a grid at its top counts what is left as certain loss. A coarser step moves losses further, always outwards.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.privacy.profiles import Array
from accounting.privacy.subsampling import Direction

RELATIVE_ERROR = 1e-4  # of ε, aimed at by the choice of the step
_MAX_POINTS = 1 << 19  # of one answer's grid


@dataclass(frozen=True)
class Pld:
    """A dominating privacy loss distribution.

    Attributes:
        step: distance of the grid points, in nats.
        low: index of the first point; its loss is ``low * step``.
        probs: (n,) mass of P at the grid points.
        infinity: mass of P at infinite loss.
    """

    step: float
    low: int
    probs: Array
    infinity: float

    @property
    def losses(self) -> Array:
        """(n,) losses of the grid points."""
        return self.step * np.arange(self.low, self.low + self.probs.size, dtype=np.float64)


def discretise(direction: Direction, step: float, tail: float) -> Pld:
    """The tightest PLD on multiples of ``step`` that dominates a pair, up to a mass of ``tail`` moved to infinity.

    Args:
        direction: the pair.
        step: distance of the grid points, in nats.
        tail: probability of finite loss that may count as infinite.
    """
    above, infinity = _connect_dots(direction, step, tail)
    below, _ = _connect_dots(direction.swapped(), step, tail)
    below = below * np.exp(-step * np.arange(1, below.size + 1))
    at_zero = 1 - infinity - above.sum() - below.sum()
    # Rounding can leave masses just below 0; more mass only raises a divergence.
    return Pld(step, -below.size, np.maximum(np.concatenate([below[::-1], [at_zero], above]), 0.0), infinity)


def smallest_step(directions: Iterable[Direction], tail: float) -> float:
    """The finest step whose grids of these pairs still fit in memory; a coarser grid gives a larger bound."""
    return max(_top(direction, tail) for direction in directions) / _MAX_POINTS


def _top(direction: Direction, tail: float) -> float:
    """A loss beyond which at most ``tail`` of the pair's finite divergence is left."""
    losses = np.concatenate([[0.0], np.geomspace(1e-9, 690.0, 4000)])
    left = direction.upper(losses) - direction.certain_loss
    return float(losses[np.argmax(left <= tail)]) if left[-1] <= tail else float(losses[-1])


@lru_cache(maxsize=2)
def _connect_dots(direction: Direction, step: float, tail: float) -> tuple[Array, float]:
    """Masses at ``step, 2 step, ...`` up to where ``tail`` is left, and at infinity.

    Those of a pair and its swapped pair are kept, as both directions are made of the same two halves.
    """
    points = max(1, math.ceil(_top(direction, tail) / step))
    deltas = np.minimum.accumulate(direction.upper(step * np.arange(points + 1, dtype=np.float64)))
    chords = np.diff(deltas)  # by their ends; in e^x they are straight, and a mass is the bend from one to the next
    masses = (np.append(chords[1:], 0.0) - math.exp(step) * chords) / math.expm1(step)
    return np.maximum(masses, 0.0), float(deltas[-1])


def second_moment(direction: Direction) -> float:
    """E[L²] of the finite loss of a pair, in nats²: ``∫ (2x + 2) H dx`` over losses above 0, and the mirror image.

    An f-divergence is ``∫ f''(a) H_a da`` over the likelihood ratio a; here ``f(a) = a ln² a``.
    """
    x = np.concatenate([[0.0], np.geomspace(1e-10, 690.0, 4000)])
    upper = direction.upper(x) - direction.certain_loss
    lower = direction.upper_swapped(x) - direction.certain_loss_swapped
    return float(np.trapezoid((2 + 2 * x) * upper + (2 - 2 * x) * np.exp(-x) * lower, x))


class StepChoice:
    """Steps that cost about 1e-4 of ε.

    The dots move a loss by at most a step d either way and keep its mean likelihood ratio, which multiplies an answer's
    moment of order t by about 1 + t (t + 1) d²/8 at most. Over n answers that costs n (t + 1) d²/8 of ε, at the order t
    that is best for this delta. A bounded loss is rounded up at its top, so the step is never a sizeable part of ε.

    Args:
        directions: a pair for each kind of answer.
        counts: number of answers of each kind.
        delta: the plan's δ.
        tail: probability of finite loss that may count as infinite.
    """

    def __init__(self, directions: Sequence[Direction], counts: Sequence[int], delta: float, tail: float) -> None:
        second = sum(n * second_moment(d) for n, d in zip(counts, directions, strict=True))
        tilts = np.geomspace(1e-2, 1e4, 120) / math.sqrt(second)
        rough = sum(
            (n * _rough_log_mgf(d, tilts, tail) for n, d in zip(counts, directions, strict=True)), np.zeros_like(tilts)
        )
        promised = (rough - math.log(delta)) / tilts
        best = int(np.argmin(promised))
        self._tilt, self._promised, self._deviation = float(tilts[best]), float(promised[best]), math.sqrt(second)
        self._answers, self._delta = sum(counts), delta

    def step(self, epsilon: float | None = None) -> float:
        """The step for an answer near ``epsilon``; if that is not known, near what moments promise."""
        epsilon = max(self._promised if epsilon is None else epsilon, self._deviation)
        tilt = min(self._tilt, 3 * (5 - math.log(self._delta)) / epsilon)
        return min(math.sqrt(8 * RELATIVE_ERROR * epsilon / (self._answers * (tilt + 1))), 2 * RELATIVE_ERROR * epsilon)


def _rough_log_mgf(direction: Direction, tilts: Array, tail: float) -> Array:
    """Logarithms of E[e^(t L)] up to where ``tail`` is left, as :func:`second_moment` with ``f(a) = a^(1+t)``."""
    x = np.concatenate([[0.0], np.geomspace(1e-10, _top(direction, tail), 1500)])
    weights = np.gradient(x)
    upper = np.maximum(direction.upper(x) - direction.certain_loss, 0.0) * weights
    lower = np.maximum(direction.upper_swapped(x) - direction.certain_loss_swapped, 0.0) * weights
    shifted = tilts[:, None] * (x - x[-1])  # at most 0, so nothing overflows
    mirrored_losses = -tilts[:, None] * (x + x[-1]) - x
    with np.errstate(divide="ignore"):
        integral = np.log(np.exp(shifted) @ upper + np.exp(mirrored_losses) @ lower) + tilts * x[-1]
    return np.asarray(np.logaddexp(0.0, np.log(tilts * (tilts + 1)) + integral))
