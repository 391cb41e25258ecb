"""The default accountant: privacy loss distributions on a grid, composed by one tilted Fourier transform.

The losses of independent answers add up, so their distribution is a convolution power, here of the *tilted*
distributions ``p(x) e^(t x - K(t))``. The tilt t moves the bulk of the sum to the ε in question, and the rounding noise
of the Fourier transform, which is relative to the bulk, becomes relative to the tail that is wanted: δ = 1e-12 is
as accurate as δ = 0.1. (dp_accounting 0.6.0's self_compose has no tilt and comes out too low; its compose stays above,
and takes a convolution for every doubling.)

**Everything rounds up.** Grids dominate (see :mod:`accounting.grid`); what wraps around in the cyclic transform adds to
δ; mass beyond the window is bounded by Chernoff and counted; the transform's rounding error is bounded by
Cauchy and Schwarz and added. So the result is an upper bound on any grid; a finer one is only tighter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy import fft, signal, special

from accounting.bounds import EpsilonBounds, require_delta, require_epsilon
from accounting.events import Event, merge
from accounting.grid import Pld, choose_step, discretise, smallest_step
from accounting.profiles import Array
from accounting.subsampling import amplify

_TAIL = 1e-7  # of delta, over all answers, is counted as certain loss by cutting the grids
_CELLS = 600  # of the coarse distributions that choose tilts and windows
_MASS_OUTSIDE = 30.0  # the tilted mass outside the window is below e^-30
_ROUNDING = float(8 * np.finfo(np.float64).eps)


class Composition:
    """The loss of many answers in one direction.

    Args:
        plds: one distribution for each kind of answer, all on the same step.
        counts: how many answers of each kind.
    """

    def __init__(self, plds: Sequence[Pld], counts: Sequence[int]) -> None:
        self.step = plds[0].step
        self._plds, self._counts = plds, counts
        self.infinity = -math.expm1(sum(n * math.log1p(-p.infinity) for p, n in zip(plds, counts, strict=True)))
        self._coarse = [_coarsen(p) for p in plds]

    def epsilon(self, delta: float) -> float:
        """The smallest ε (at least 0) known to have a divergence of at most ``delta``; infinite if there is none."""
        budget = delta - self.infinity
        if budget <= 0:
            return math.inf
        tilts = self._tilts
        promised = (self._coarse_log_mgf(tilts) - math.log(budget)) / tilts
        return self._best(tilts[np.argmin(promised)], lambda tail: tail.epsilon(budget), math.inf)

    def delta(self, epsilon: float) -> float:
        """An upper bound of the divergence at ``epsilon >= 0``."""
        tilts = self._tilts
        exponent = self._coarse_log_mgf(tilts) - tilts * epsilon
        found = self._best(tilts[np.argmin(exponent)], lambda tail: tail.delta(epsilon), 1.0)
        return min(1.0, self.infinity + found)

    def _best(self, tilt: float, answer: Callable[[_Tail], tuple[float, bool]], worst: float) -> float:
        """The smallest answer among tilts from ``tilt`` down, until one's rounding does not matter.

        Every tilt gives an upper bound. The first is right for many answers; one answer of a bounded loss can drive it
        so high that only the largest losses are left in sight.
        """
        best, tries_in_vain = worst, 0
        for _ in range(40):
            found, settled = answer(self._tail(tilt))
            tries_in_vain = tries_in_vain + 1 if best <= found < worst else 0
            best = min(best, found)
            if settled or tries_in_vain == 3:
                break
            tilt *= 0.6
        return best

    @cached_property
    def _tilts(self) -> Array:
        """Candidate tilts, no higher than the coarse distributions can tell."""
        deviation = math.sqrt(
            sum(n * float(probs @ losses**2) for (losses, probs), n in zip(self._coarse, self._counts, strict=True))
        )
        cells = max(1, max(p.probs.size for p in self._plds) // _CELLS)
        lowest = 1e-2 / max(deviation, self.step)
        return np.geomspace(lowest, max(10 * lowest, 4 / (cells * self.step)), 240)

    def _coarse_log_mgf(self, tilts: Array) -> Array:
        """About K(t) for many t; good enough to choose a tilt and a window, which need not be exact."""
        total = np.zeros_like(tilts)
        for (losses, probs), count in zip(self._coarse, self._counts, strict=True):
            total += count * special.logsumexp(np.outer(tilts, losses), b=probs, axis=1)
        return total

    def _log_mgf(self, tilt: float) -> float:
        return sum(n * _log_mgf(p, tilt) for p, n in zip(self._plds, self._counts, strict=True))

    def _tail(self, tilt: float) -> _Tail:
        """The composed distribution around the losses that ``tilt`` points at."""
        others = self._tilts
        here = self._coarse_log_mgf(np.array([tilt]))[0]
        above = (self._coarse_log_mgf(tilt + others) - here + _MASS_OUTSIDE) / others
        below = (self._coarse_log_mgf(tilt - others) - here + _MASS_OUTSIDE) / others
        steepest = tilt + others[np.argmin(above)]
        most = sum(n * (p.low + p.probs.size - 1) for p, n in zip(self._plds, self._counts, strict=True))
        least = sum(n * p.low for p, n in zip(self._plds, self._counts, strict=True))
        last = min(math.ceil(above.min() / self.step), most)
        first = max(math.floor(-below.min() / self.step), least)
        size = fft.next_fast_len(last - first + 1, real=True)

        log_mgf, spectrum = 0.0, np.ones(size // 2 + 1, dtype=np.complex128)
        for pld, count in zip(self._plds, self._counts, strict=True):
            cumulant = _log_mgf(pld, tilt)
            log_mgf += count * cumulant
            with np.errstate(divide="ignore"):
                tilted = np.exp(np.log(pld.probs) + tilt * pld.losses - cumulant)
            wrapped = np.bincount(np.arange(pld.low, pld.low + tilted.size) % size, tilted, size)
            spectrum *= fft.rfft(wrapped) ** count
        masses = np.roll(fft.irfft(spectrum, size), -(first % size))
        beyond = 0.0
        if last < most:
            beyond = math.exp(min(0.0, self._log_mgf(steepest) - steepest * (first + size) * self.step))
        return _Tail(self.step, first, masses, tilt, log_mgf, beyond, _ROUNDING * (sum(self._counts) + 64))


class _Tail:
    """Part of a composed distribution, accurate around the loss its tilt points at.

    Args:
        step: distance of the grid points.
        first: index of the first point.
        masses: (n,) tilted masses.
        tilt: t.
        log_mgf: K(t), so that the mass at loss x is ``masses * exp(K - t x)``.
        beyond: mass above the last point.
        relative_error: of ``masses`` in the Euclidean norm.
    """

    def __init__(
        self, step: float, first: int, masses: Array, tilt: float, log_mgf: float, beyond: float, relative_error: float
    ) -> None:
        # Losses at or below 0 do not matter, nor those so far below the tilt that the weights overflow.
        floor = max(0.0, (log_mgf - 600) / tilt)
        start = max(0, math.floor(floor / step) - first)
        losses = step * np.arange(first + start, first + masses.size)
        weights = np.exp(log_mgf - tilt * losses)
        untilted = np.maximum(masses[start:], 0.0) * weights
        # delta_k = sum over j > k of c_j (1 - e^((k-j) step)), from the top down without cancellation.
        above = np.append(np.cumsum(untilted[:0:-1])[::-1], 0.0)
        decay = math.exp(-step)
        deltas = signal.lfilter([1.0], [1.0, -decay], (-math.expm1(-step) * above)[::-1])[::-1]
        # Cauchy and Schwarz: errors of norm e in the masses change delta by at most e times the norm of the weights
        # e^(K - t x) min(1, x - x_k) beyond point k.
        spread = math.sqrt(2 * (1 + tilt * step) / step * min(1 / (2 * tilt), 1 / (4 * tilt**3)))
        rounding = relative_error * float(np.linalg.norm(masses)) * spread * weights
        self._losses, self._deltas = losses, deltas + rounding + beyond
        self._rounding = rounding + beyond

    def epsilon(self, delta: float) -> tuple[float, bool]:
        """The loss at which the divergence comes down to ``delta``, and whether no other tilt can do better."""
        exceeding = np.flatnonzero(self._deltas > delta)
        if exceeding.size == 0:
            return float(self._losses[0]), self._losses[0] == 0
        k = int(exceeding[-1])
        if k + 1 == self._losses.size:
            return math.inf, False
        # Between grid points the divergence of the dots is a straight line in e^ε.
        share = (self._deltas[k] - delta) / (self._deltas[k] - self._deltas[k + 1])
        found = self._losses[k] + math.log1p(share * math.expm1(self._losses[k + 1] - self._losses[k]))
        return float(found), bool(self._rounding[k] <= 1e-4 * delta)

    def delta(self, epsilon: float) -> tuple[float, bool]:
        """The divergence at ``epsilon``, by a straight line in e^ε between grid points; 1 below the window."""
        if epsilon < self._losses[0]:
            return 1.0, False
        k = min(int(np.searchsorted(self._losses, epsilon, side="right")) - 1, self._losses.size - 2)
        inside = min(epsilon, float(self._losses[k + 1])) - self._losses[k]
        share = math.expm1(inside) / math.expm1(self._losses[k + 1] - self._losses[k])
        found = self._deltas[k] + share * (self._deltas[k + 1] - self._deltas[k])
        return float(found), bool(self._rounding[k] <= 1e-4 * found)


class PldAccountant:
    """Composes every mechanism's privacy loss distribution; see the module.

    Args:
        refinement: divides the grid's step; 2 is about 4 times as accurate and twice as slow.
    """

    name = "pld"

    def __init__(self, refinement: float = 1.0) -> None:
        self._refinement = refinement

    def unsupported(self, events: Sequence[Event]) -> str | None:
        """See :class:`accounting.bounds.Accountant`; every event is supported."""
        return None

    def bounds(self, events: Sequence[Event], delta: float) -> EpsilonBounds:
        """See :class:`accounting.bounds.Accountant`; ``lower`` is always 0."""
        require_delta(delta)
        plan = _Plan(events, delta)
        step = plan.step()
        found = plan.epsilon(step / self._refinement)
        # The step suits the ε that moments promise. Where rare large losses make that far too high, refine it once.
        finer = plan.step(found)
        if finer < step / 2:
            found = min(found, plan.epsilon(finer / self._refinement))
        return EpsilonBounds(0.0, found)

    def delta(self, events: Sequence[Event], epsilon: float) -> float:
        """See :class:`accounting.bounds.Accountant`."""
        require_epsilon(epsilon)
        # Grids are cut where the tail no longer matters to the answer, which is not known before.
        for guess in (1e-6, 1e-30, 1e-290):
            plan = _Plan(events, guess)
            found = plan.delta(epsilon, plan.step(epsilon) / self._refinement)
            if found >= 1e-3 * guess:
                break
        return found


class _Plan:
    """Events to be composed, with what is common to all grids and directions."""

    def __init__(self, events: Sequence[Event], delta: float) -> None:
        merged = merge(events)
        self._delta = delta
        self._counts = [event.count for event in merged]
        self._directions = [amplify(event.mechanism, event.sampling) for event in merged]
        self._tail = _TAIL * delta / max(1, sum(self._counts))

    def step(self, epsilon: float | None = None) -> float:
        """The grid's step for an answer near ``epsilon``; if that is not known, near what moments promise."""
        if not self._counts or epsilon == math.inf:
            return math.inf
        first = [pairs[0] for pairs in self._directions]
        return choose_step(first, self._counts, self._delta, self._tail, epsilon)

    def compose(self, step: float) -> list[Composition]:
        """One composition for each direction in which a unit's presence can leak."""
        if not self._counts:
            return []
        step = max(step, smallest_step((pair for pairs in self._directions for pair in pairs), self._tail))
        plds = [[discretise(pair, step, self._tail) for pair in pairs] for pairs in self._directions]
        ways = range(max(len(each) for each in plds))
        return [Composition([each[min(way, len(each) - 1)] for each in plds], self._counts) for way in ways]

    def epsilon(self, step: float) -> float:
        return max((c.epsilon(self._delta) for c in self.compose(step)), default=0.0)

    def delta(self, epsilon: float, step: float) -> float:
        return max((c.delta(epsilon) for c in self.compose(step)), default=0.0)


def _log_mgf(pld: Pld, tilt: float) -> float:
    return float(special.logsumexp(tilt * pld.losses, b=pld.probs))


def _coarsen(pld: Pld) -> tuple[Array, Array]:
    """Losses and probabilities of some hundred atoms, each with the mass and the mean of a cell of the grid.

    Cells are narrow around 0, where nearly all the mass of a rarely sampled answer lies, and nowhere wider than a
    fraction of the whole.
    """
    size = pld.probs.size
    around = np.unique(np.geomspace(1, size, 400).astype(np.int64))
    starts = np.concatenate([[0], np.arange(0, size, max(1, size // _CELLS)), -pld.low - around, -pld.low + around])
    starts = np.unique(starts[(starts >= 0) & (starts < size)])
    probs = np.add.reduceat(pld.probs, starts)
    losses = np.add.reduceat(pld.probs * pld.losses, starts)
    kept = probs > 0
    return losses[kept] / probs[kept], probs[kept]
