"""The composition of privacy loss distributions on one grid, by one tilted Fourier transform.

The losses of independent answers add up, so their distribution is a convolution power, here of the *tilted*
distributions ``p(x) e^(t x - K(t))``. The tilt t moves the bulk of the sum to the ε in question, and the rounding noise
of the Fourier transform, which is relative to the bulk, becomes relative to the tail that is wanted: δ = 1e-12 is
as accurate as δ = 0.1. (dp_accounting 0.6.0's self_compose has no tilt and comes out too low; its compose stays above,
and takes a convolution for every doubling.)

Upper bounds count everything that is not known: what wraps around in the cyclic transform adds to δ; mass beyond the
window is bounded by Chernoff's inequality and added; so is the rounding error, bounded in
:mod:`accounting.privacy.transform` and carried over to δ by Cauchy and Schwarz. Lower bounds subtract the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from accounting.privacy.grid import Pld
from accounting.privacy.profiles import Array
from accounting.privacy.transform import UNIT, Product, power_of

_CELLS = 600  # of the coarse distributions that choose tilts and windows
_MASS_OUTSIDE = 30.0  # the tilted mass outside the window is below e^-30


class Composition:
    """The loss of many answers in one direction.

    Args:
        plds: one distribution for each kind of answer, all on the same step.
        counts: number of answers of each kind.
    """

    def __init__(self, plds: Sequence[Pld], counts: Sequence[int]) -> None:
        self.step = plds[0].step
        self._plds, self._counts = plds, counts
        self.infinity = -math.expm1(sum(n * math.log1p(-p.infinity) for p, n in zip(plds, counts, strict=True)))
        self._coarse = [_coarsen(p) for p in plds]
        self._least = sum(n * p.low for p, n in zip(plds, counts, strict=True))
        self._most = sum(n * (p.low + p.probs.size - 1) for p, n in zip(plds, counts, strict=True))

    def epsilon(self, delta: float) -> float:
        """The smallest ε (at least 0) known to have a divergence of at most ``delta``; infinite if there is none."""
        budget = delta - self.infinity
        if budget <= 0:
            return math.inf
        return self._best(self._tilt_for(budget), lambda tail: tail.epsilon(budget), math.inf)

    def epsilon_at_least(self, delta: float) -> float:
        """A loss (at least 0) at which the divergence is known to exceed ``delta``; 0 if there is none."""
        budget = delta - self.infinity
        if budget <= 0:
            return math.inf
        tilt = self._tilt_for(budget)
        for share in (1.0, 0.5):  # one answer of a bounded loss can drive the tilt too high
            found = self._tail(share * tilt, with_wrapped=True).epsilon_at_least(budget)
            if found > 0:
                return found
        return 0.0

    def window_for(self, delta: float) -> Window:
        """The window in which :meth:`epsilon` would look first."""
        return self.window(self._tilt_for(delta - self.infinity))

    def delta(self, epsilon: float) -> float:
        """An upper bound of the divergence at ``epsilon >= 0``."""
        tilts = self._tilts
        exponent = self._coarse_log_mgf(tilts) - tilts * epsilon
        found = self._best(tilts[np.argmin(exponent)], lambda tail: tail.delta(epsilon), 1.0)
        return min(1.0, self.infinity + found)

    def _tilt_for(self, delta: float) -> float:
        tilts = self._tilts
        return float(tilts[np.argmin((self._coarse_log_mgf(tilts) - math.log(delta)) / tilts)])

    def _best(self, tilt: float, answer: Callable[[Tail], tuple[float, bool]], worst: float) -> float:
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
        """Candidate tilts, no higher than the coarse distributions can resolve."""
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
            exponents = np.outer(tilts, losses)
            top = exponents.max(axis=1)
            exponents -= top[:, None]
            total += count * (top + np.log(np.exp(exponents, out=exponents) @ probs))  # a third of logsumexp's time
        return total

    def _log_mgf(self, tilt: float) -> float:
        return sum(n * _log_mgf(p, tilt) for p, n in zip(self._plds, self._counts, strict=True))

    def _tail(self, tilt: float, *, with_wrapped: bool = False) -> Tail:
        """The composed distribution around the losses that ``tilt`` points at."""
        window = self.window(tilt)
        answers = (Answers(pld, count, window) for pld, count in zip(self._plds, self._counts, strict=True))
        return look(answers, window, self._wrapped(window) if with_wrapped else 0.0)

    def _wrapped(self, window: Window) -> float:
        """A bound of the tilted mass from outside of a window that is counted inside."""
        wrapped, log_mgf, first, last = 0.0, self._log_mgf(window.tilt), window.first, window.first + window.size - 1
        if last < self._most:
            above = self._log_mgf(window.tilt + window.rise)
            wrapped += math.exp(above - log_mgf - window.rise * (last + 1) * self.step)
        if first > self._least:
            wrapped += math.exp(self._log_mgf(window.tilt - window.fall) - log_mgf + window.fall * first * self.step)
        return wrapped

    def window(self, tilt: float) -> Window:
        """The part of the composed distribution that is computed with this tilt."""
        others = self._tilts[::4]
        here = self._coarse_log_mgf(np.array([tilt]))[0]
        above = (self._coarse_log_mgf(tilt + others) - here + _MASS_OUTSIDE) / others
        below = (self._coarse_log_mgf(tilt - others) - here + _MASS_OUTSIDE) / others
        last = min(math.ceil(above.min() / self.step), self._most)
        first = max(math.floor(-below.min() / self.step), self._least)
        size = 1 << max(1, last - first).bit_length()
        # What a power of two has to spare goes to the top, so little is beyond it.
        rise, fall = float(others[np.argmin(above)]), float(others[np.argmin(below)])
        return Window(self.step, tilt, first, size, rise, fall)


@dataclass(frozen=True)
class Window:
    """A part of composed distributions. Whatever is composed, an upper bound can be read in any.

    Attributes:
        step: distance of the grid points.
        tilt: t.
        first: index of the first point.
        size: number of points, a power of two.
        rise: amount by which the tilt rises for a bound of the mass above.
        fall: amount by which it falls for a bound of the mass below.
    """

    step: float
    tilt: float
    first: int
    size: int
    rise: float
    fall: float

    def shows(self, log_mgf: float) -> bool:
        """Whether there is a loss in it whose mass fits a double, in a composition with this K(t)."""
        return _least_loss(log_mgf, self.tilt) < (self.first + self.size - 2) * self.step


class Answers:
    """The part that answers of one kind have in the composed distribution, seen in a window.

    Args:
        pld: distribution of one of them, on the window's step.
        count: their number.
        window: the window.

    Attributes:
        log_finite: logarithm of the probability of a finite loss.
        log_mgf: K(t) of the tilt.
        log_mgf_above: the same after the tilt's rise.
        most: index of the largest loss.
        power: spectrum of the tilted distribution.
    """

    def __init__(self, pld: Pld, count: int, window: Window) -> None:
        cumulant = _log_mgf(pld, window.tilt)
        kept = pld.probs > 0
        logs = np.log(pld.probs, where=kept, out=np.zeros(pld.probs.size))
        tilted = np.exp(logs + window.tilt * pld.losses - cumulant, where=kept, out=np.zeros(pld.probs.size))
        inexact = 4 * UNIT * float(tilted @ (np.abs(logs) + np.abs(window.tilt * pld.losses) + abs(cumulant) + 2))
        self.log_finite = count * math.log1p(-pld.infinity)
        self.log_mgf = count * cumulant
        self.log_mgf_above = count * _log_mgf(pld, window.tilt + window.rise)
        self.most = count * (pld.low + pld.probs.size - 1)
        self.power = power_of(pld.low, tilted, inexact, count, window.size)


def look(answers: Iterable[Answers], window: Window, wrapped: float = 0.0) -> Tail:
    """A window on the composition of some answers.

    Args:
        answers: answers of all kinds, each seen in this window.
        window: the window.
        wrapped: bound of the tilted mass from outside that is counted inside; only lower bounds need it.
    """
    product, log_mgf, log_mgf_above, most = Product(window.size), 0.0, 0.0, 0
    for one in answers:
        product.times(one.power)
        log_mgf += one.log_mgf
        log_mgf_above += one.log_mgf_above
        most += one.most
    masses, error = product.masses()
    end, beyond = window.first + window.size, 0.0
    if end <= most:
        beyond = math.exp(min(0.0, log_mgf_above - (window.tilt + window.rise) * end * window.step))
    masses = np.roll(masses, -(window.first % window.size))
    return Tail(window.step, window.first, masses, window.tilt, log_mgf, beyond, error, wrapped)


class Tail:
    """Part of a composed distribution, accurate around the loss its tilt points at.

    Args:
        step: distance of the grid points.
        first: index of the first point.
        masses: (n,) tilted masses.
        tilt: t.
        log_mgf: K(t), so that the mass at loss x is ``masses * exp(K - t x)``.
        beyond: mass above the last point.
        error: bound of the error of ``masses`` in the Euclidean norm.
        wrapped: bound of the tilted mass from outside that is counted among ``masses``; only lower bounds need it.
    """

    def __init__(
        self,
        step: float,
        first: int,
        masses: Array,
        tilt: float,
        log_mgf: float,
        beyond: float,
        error: float,
        wrapped: float,
    ) -> None:
        start = max(0, math.floor(_least_loss(log_mgf, tilt) / step) - first)
        losses = step * np.arange(first + start, first + masses.size)
        weights = np.exp(log_mgf - tilt * losses)
        untilted = np.maximum(masses[start:], 0.0) * weights
        # delta_k = sum over j > k of c_j (1 - e^((k-j) step)), from the top down without cancellation.
        above = np.append(np.cumsum(untilted[:0:-1])[::-1], 0.0)
        deltas = decaying_sums((-math.expm1(-step) * above)[::-1], step)[::-1]
        # Terms are positive, so their sums err relatively: by a unit for each addition, and by the exponents' rounding.
        relative = UNIT * (8 * losses.size + 8 * (abs(log_mgf) + tilt * abs(float(losses[-1]))) + 64)
        # Cauchy and Schwarz: errors of norm e in the masses change delta by at most e times the norm of the weights
        # e^(K - t x) min(1, x - x_k) beyond point k.
        spread = math.sqrt(2 * (1 + tilt * step) / step * min(1 / (2 * tilt), 1 / (4 * tilt**3)))
        rounding = error * spread * weights
        self._losses = losses
        self._deltas = deltas * (1 + relative) + rounding + beyond
        self._rounding = rounding + beyond
        self._deltas_at_least = deltas * (1 - relative) - rounding - wrapped * weights

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

    def epsilon_at_least(self, delta: float) -> float:
        """The last grid point at which the divergence surely exceeds ``delta``; 0 if there is none."""
        exceeding = np.flatnonzero(self._deltas_at_least > delta)
        return float(self._losses[exceeding[-1]]) if exceeding.size else 0.0

    def delta(self, epsilon: float) -> tuple[float, bool]:
        """The divergence at ``epsilon``, by a straight line in e^ε between grid points; 1 below the window."""
        if epsilon < self._losses[0]:
            return 1.0, False
        k = min(int(np.searchsorted(self._losses, epsilon, side="right")) - 1, self._losses.size - 2)
        inside = min(epsilon, float(self._losses[k + 1])) - self._losses[k]
        share = math.expm1(inside) / math.expm1(self._losses[k + 1] - self._losses[k])
        found = self._deltas[k] + share * (self._deltas[k + 1] - self._deltas[k])
        return float(found), bool(self._rounding[k] <= 1e-4 * found)


def decaying_sums(terms: Array, step: float) -> Array:
    """(n,) sums of each term and those before it, each times ``e^(-step)`` for every place that it is before.

    By doubling the number of terms in each sum; scipy's ``lfilter`` comes with half a second of imports.
    """
    sums, reach = terms.copy(), 1
    while reach < sums.size:
        sums[reach:] += math.exp(-step * reach) * sums[:-reach]
        reach *= 2
    return sums


def _least_loss(log_mgf: float, tilt: float) -> float:
    """Losses at or below 0 do not matter, nor those so far below the tilt that the weights overflow."""
    return max(0.0, (log_mgf - 600) / tilt)


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
