"""Privacy profiles: the cost of one answer of each mechanism, before sampling.

A mechanism's profile is the function ``h(x)``: the largest hockey-stick divergence at ``exp(x)`` between its outputs
on two neighbours, in either order. ``h(x)`` is the smallest δ for which one answer is (x, δ)-DP. Neighbours
differ in one slot's contribution, from anything to anything or to nothing.

All profiles here are symmetric, ``h(-x) = 1 - exp(-x) + exp(-x) h(x)``, because neighbours may be swapped. So each
class only computes it for ``x >= 0``, with small *relative* error even where ``h`` is as small as 1e-300: the
composition of ten thousand answers depends on those tails.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import special
from typing_extensions import override

from accounting.privacy.lattice import LATTICE

Array = npt.NDArray[np.float64]
Contributions = Literal["any", "votes", "ball"]


class SymmetricProfile(ABC):
    """A profile given by its values for ``x >= 0``; the rest is its mirror image."""

    @property
    def certain_loss(self) -> float:
        """``h`` at infinity: the probability that an answer gives everything away."""
        return 0.0

    @abstractmethod
    def upper_delta(self, epsilon: Array) -> Array:
        """``h`` on an array of losses that are all at least 0; any shape, same shape back."""

    def unsampled(self, count: int) -> tuple[SymmetricProfile, int]:
        """The profiles that ``count`` answers consist of if every unit is in the sample, and the number of these."""
        return self, count

    def delta(self, epsilon: Any) -> Any:
        """The profile ``h`` at ``epsilon`` (nats; a number or an array, of either sign); in [0, 1]."""
        x = np.asarray(epsilon, dtype=np.float64)
        return mirrored(x, self.upper_delta, self.upper_delta)[()]


def mirrored(x: Array, upper: Callable[[Array], Array], upper_swapped: Callable[[Array], Array]) -> Array:
    """A divergence at every loss, from the values of both orders of the pair at losses of at least 0.

    For any pair, ``H(-x; P, Q) = 1 - exp(-x) + exp(-x) H(x; Q, P)``.
    """
    distance = np.abs(x)
    forward = upper(np.where(x >= 0, distance, 0.0))
    backward = upper_swapped(np.where(x >= 0, 0.0, distance))
    lower = -np.expm1(-distance) + np.exp(-distance) * backward
    return np.where(x >= 0, forward, lower)


@dataclass(frozen=True)
class Gaussian(SymmetricProfile):
    """Gaussian noise on a sum; ``noise_multiplier`` is its standard deviation over the L2 sensitivity.

    ``h(x) = Φ(1/2z - xz) - exp(x) Φ(-1/2z - xz)`` (Balle and Wang, arXiv 1805.06530, theorem 8). Since the noise is
    drawn on a lattice, z is taken as :data:`LATTICE` times the noise multiplier.

    Args:
        noise_multiplier: z.
        contributions: contributions that a slot may make to the sum. Two of them differ by at most the sensitivity;
            where units are drawn in blocks, it matters what else is known (:mod:`accounting.privacy.blocks`):

            - ``votes``: no coordinate is negative, and the norm is at most the sensitivity over √2;
            - ``ball``: the norm is at most half the sensitivity;
            - ``any``: nothing else is known, which is never wrong.

    Raises:
        ValueError: the noise multiplier is not a positive number, or the contributions are of another kind.
    """

    noise_multiplier: float
    contributions: Contributions = "any"

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)
        if self.contributions not in get_args(Contributions):
            raise ValueError(f"contributions must be any, votes or ball, not {self.contributions!r}")

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        z = LATTICE * self.noise_multiplier
        near, far = epsilon * z - 0.5 / z, epsilon * z + 0.5 / z
        # Both terms share the factor φ(near), so the tail is a difference of Mills ratios, each near 1/distance.
        tail = density(near) * (mills(np.maximum(near, 0.0)) - mills(far))
        bulk = special.ndtr(-near) - density(near) * mills(far)
        return np.asarray(np.clip(np.where(near >= 0, tail, bulk), 0.0, 1.0))


@dataclass(frozen=True)
class BoundedRange(SymmetricProfile):
    """A mechanism whose log-likelihood ratios span at most ``epsilon``, such as the exponential mechanism.

    For every ``t`` in [0, ε] the worst pair of log-ratios in [t - ε, t] has two outcomes (Dong, Durfee and Rogers,
    arXiv 1909.13830); their hockey-stick divergence ``(1 - e^(t-ε)) (1 - e^(x-t)) / (1 - e^-ε)`` is largest at
    ``t = (x + ε)/2``, which gives ``h(x) = (e^(ε/2) - e^(x/2))² / (e^ε - 1)`` for ``x <= ε``, and 0 beyond.

    Raises:
        ValueError: epsilon is not a positive number.
    """

    epsilon: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        gap = -np.expm1(np.minimum(epsilon - self.epsilon, 0.0) / 2)
        return np.asarray(gap**2 / -math.expm1(-self.epsilon))


@dataclass(frozen=True)
class PtrTest(SymmetricProfile):
    """The noisy test of propose-test-release: is the vote gap above 2, and if so, which are the top words?

    The noise has standard deviation ``2 noise_multiplier`` on a gap of sensitivity 2. Two neighbours are in one of
    two cases. If either gap exceeds 2 their top-k sets agree and only the noise distinguishes them: the Gaussian's
    profile. If neither does, both pass with probability ``delta0``, possibly with disjoint sets, and fail alike
    otherwise: ``delta0`` at every loss from 0 on. So ``h(x) = max(h_Gaussian(x), delta0)`` for ``x >= 0``.

    Raises:
        ValueError: the noise multiplier is not positive, or delta0 is not in [0, 1).
    """

    noise_multiplier: float
    delta0: float

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)
        require_delta0(self.delta0)

    @property
    @override
    def certain_loss(self) -> float:
        return self.delta0

    @property
    def gaussian(self) -> Gaussian:
        """The profile of the test's noise alone."""
        return Gaussian(self.noise_multiplier)

    @cached_property
    def crossover(self) -> float:
        """The loss from which on ``delta0`` is the larger of the two; infinite if delta0 is 0."""
        from scipy import optimize  # a quarter of a second, and few commands need it

        if self.delta0 == 0:
            return math.inf
        if self.gaussian.delta(0.0) <= self.delta0:
            return 0.0
        high = 1.0
        while self.gaussian.delta(high) > self.delta0:
            high *= 2
        gap: Callable[[float], float] = lambda x: float(self.gaussian.delta(x)) - self.delta0  # noqa: E731
        return float(optimize.brentq(gap, 0.0, high, xtol=1e-14))

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        return np.maximum(self.gaussian.upper_delta(epsilon), self.delta0)


@dataclass(frozen=True)
class GaussianThreshold(SymmetricProfile):
    """Counts of an unlimited domain, with Gaussian noise, of which those above a threshold leave.

    What the differing slot alone contributes leaves with a probability of at most ``delta0``, and gives the slot away;
    all else is a Gaussian mechanism (``docs/privacy/mechanisms.md``, Theorem 26). So
    ``h(x) = delta0 + (1 - delta0) h_Gaussian(x)``, which is its own mirror image.

    Args:
        gaussian: the profile of the noise alone, on what other slots contribute, too.
        delta0: probability per answer that anything leaves that one slot alone contributes.

    Raises:
        ValueError: delta0 is not in [0, 1).
    """

    gaussian: Gaussian
    delta0: float

    def __post_init__(self) -> None:
        require_delta0(self.delta0)

    @property
    @override
    def certain_loss(self) -> float:
        return self.delta0

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        return self.delta0 + (1 - self.delta0) * self.gaussian.upper_delta(epsilon)


@dataclass(frozen=True)
class ProposeTestRelease(SymmetricProfile):
    """Top-k words by propose-test-release: choose k (bounded range, ``epsilon``), then test its gap and release.

    The profile is the composition of :class:`BoundedRange` and :class:`PtrTest`. The bounded-range pair has the loss
    density ``e^(u/2) / (4 sinh(ε/2))`` on [-ε, ε] (second derivative of its profile), and so
    ``h(x) = ∫ e^(u/2) h_test(x - u) du / (4 sinh(ε/2))``: in closed form, because with ``v = x - u`` the integral of
    the Gaussian's part is ``2 e^(x/2)`` times a difference of second differences of Mills' ratio.

    Args:
        epsilon: range of the choice of k.
        noise_multiplier: noise multiplier of the test, whose noise has standard deviation ``2 noise_multiplier``.
        delta0: probability that the test passes at a gap of at most 2. It counts once per answer.

    Raises:
        ValueError: a parameter is out of its range.
    """

    epsilon: float
    noise_multiplier: float
    delta0: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        _ = self.test

    @property
    @override
    def certain_loss(self) -> float:
        return self.delta0

    @cached_property
    def test(self) -> PtrTest:
        """The second of the two steps."""
        return PtrTest(self.noise_multiplier, self.delta0)

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        width, delta0, turn = self.epsilon, self.delta0, self.test.crossover
        x = np.minimum(epsilon, 600.0)  # no pair of doubles has a likelihood ratio above e^600
        # u above x + turn: the test's loss is below -turn and its profile is 1 - (1 - delta0) e^(x-u).
        start = np.clip(x + turn, -width, width)
        passed = 2 * (np.exp(width / 2) - np.exp(start / 2))
        passed += 2 * (1 - delta0) * np.exp(np.minimum(x, width) - start / 2) * np.expm1((start - width) / 2)
        # u between x - turn and x + turn: the Gaussian's part.
        low, high = np.clip(x - width, -turn, turn), np.clip(x + width, -turn, turn)
        middle = 2 * np.exp(x / 2) * (self._antiderivative(low) - self._antiderivative(high))
        # u below x - turn: delta0.
        stop = np.clip(x - turn, -width, width)
        failed = 2 * delta0 * (np.exp(stop / 2) - np.exp(-width / 2))
        return np.asarray(np.clip((passed + middle + failed) / (4 * math.sinh(width / 2)), delta0, 1.0))

    def _antiderivative(self, v: Array) -> Array:
        """``g`` with ``d/dv [2 e^(x/2) g(v)] = -e^((x-v)/2) h_Gaussian(v)``, for v of either sign."""
        mu = 1 / (LATTICE * self.noise_multiplier)
        in_tail = v >= mu * mu / 2
        s = np.where(in_tail, v, mu * mu / 2) / mu
        tail = density(s) * (mills(s - mu / 2) - 2 * mills(s) + mills(s + mu / 2)) * math.exp(-mu * mu / 8)
        u = np.where(in_tail, 0.0, v)
        bulk = np.exp(-u / 2) * special.ndtr(mu / 2 - u / mu) + np.exp(u / 2) * special.ndtr(-mu / 2 - u / mu)
        bulk -= 2 * math.exp(-mu * mu / 8) * special.ndtr(-u / mu)
        return np.asarray(np.where(in_tail, tail, bulk))


def require_positive(name: str, value: float) -> None:
    """Raise a ``ValueError`` naming ``name`` unless ``value`` is a positive, finite number."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive, finite number, not {value}")


def require_delta(delta: float) -> None:
    """Raise a ``ValueError`` unless ``delta`` is in (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), not {delta}")


def require_delta0(delta0: float) -> None:
    """Raise a ``ValueError`` unless ``delta0`` is a probability below 1."""
    if not 0 <= delta0 < 1:
        raise ValueError(f"delta0 is a probability and must be in [0, 1), not {delta0}")


def density(x: Array) -> Array:
    """The density of the standard normal distribution."""
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def mills(x: Array) -> Array:
    """Mills' ratio ``Φ(-x)/φ(x)`` for x of at least 0."""
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2)))
