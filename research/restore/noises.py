"""Noise on the meta vector itself, for comparison: what the paper sends, and the best known for directions.

Each takes unit vectors, and is built for a *true* ε: the largest log-ratio of densities over all pairs of unit vectors.
They are drawn in floating point, which has leaks of its own; nothing here is served.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import betainc, betaln
from scipy.stats import beta, vonmises_fisher
from typing_extensions import override

from sanitization.vocabulary import FloatArray


@dataclass(frozen=True)
class UnitVectorNoise(ABC):
    """A mechanism on unit vectors.

    Args:
        true_epsilon: the largest log-ratio of densities for two unit vectors.
        size: n, their length.
    """

    true_epsilon: float
    size: int

    @abstractmethod
    def release(self, vectors: FloatArray, generator: np.random.Generator) -> FloatArray:
        """The value sent for each unit vector, (N, n)."""

    @abstractmethod
    def log_density(self, released: FloatArray, vectors: FloatArray) -> FloatArray:
        """Log-density of each release for each candidate, up to what all candidates share; (N, m)."""


class DChi(UnitVectorNoise):
    """The paper's: density ∝ exp(-η‖R - Z‖₂), so R - Z has a uniform direction and a Gamma(n, 1/η) length.

    Its theorem 5.1 gives 2η, for any length of the vectors; unit vectors at opposite ends reach it. The length of the
    noise grows with n, which is why nothing is left of Z. The paper's code lost that: it drew n = 1, one number for all
    coordinates, which a reader of the code subtracts. Hence the check. 2η is the true ε.
    """

    @override
    def release(self, vectors: FloatArray, generator: np.random.Generator) -> FloatArray:
        if vectors.ndim != 2 or vectors.shape[1] != self.size:
            raise ValueError(f"vectors of size {self.size} expected, not {vectors.shape}")
        length = generator.gamma(self.size, 2 / self.true_epsilon, len(vectors))
        return vectors + length[:, None] * _directions(vectors.shape, generator)

    @override
    def log_density(self, released: FloatArray, vectors: FloatArray) -> FloatArray:
        squares = (released**2).sum(axis=1)[:, None] - 2 * released @ vectors.T + (vectors**2).sum(axis=1)
        distance: FloatArray = np.sqrt(np.maximum(squares, 0))
        return -self.true_epsilon / 2 * distance


class VonMisesFisher(UnitVectorNoise):
    """Density ∝ exp(κ⟨Z, R⟩) on the sphere; opposite vectors reach 2κ, the true ε."""

    @override
    def release(self, vectors: FloatArray, generator: np.random.Generator) -> FloatArray:
        law = vonmises_fisher(np.eye(self.size)[0], self.true_epsilon / 2)
        return _turned(np.atleast_2d(law.rvs(len(vectors), random_state=generator)), vectors)

    @override
    def log_density(self, released: FloatArray, vectors: FloatArray) -> FloatArray:
        return self.true_epsilon / 2 * (released @ vectors.T)


class PrivUnit(UnitVectorNoise):
    """Uniform on the cap ⟨Z, R⟩ ≥ γ with probability p, else uniform on the rest (Bhowmick et al., arXiv 1812.00984).

    ln(p(1-a)/((1-p)a)) = ε for a cap with a share a of the sphere; γ is the one that keeps most of ⟨Z, R⟩. The size is
    at least 3.
    """

    @property
    def threshold(self) -> float:
        """γ."""
        return _best_threshold(self.true_epsilon, self.size)

    @property
    def hit(self) -> float:
        """p."""
        return _hit(self.true_epsilon, _cap(self.threshold, self.size))

    @override
    def release(self, vectors: FloatArray, generator: np.random.Generator) -> FloatArray:
        count = len(vectors)
        share = _cap(self.threshold, self.size)
        inside = generator.random(count) < self.hit
        # (1 + ⟨Z, R⟩)/2 of a uniform R follows a beta law, here cut to the cap or to the rest.
        quantile = np.where(inside, 1 - share * generator.random(count), (1 - share) * generator.random(count))
        along = 2 * beta.ppf(quantile, (self.size - 1) / 2, (self.size - 1) / 2) - 1
        across = _directions((count, self.size - 1), generator) * np.sqrt(1 - along**2)[:, None]
        return _turned(np.column_stack([along, across]), vectors)

    @override
    def log_density(self, released: FloatArray, vectors: FloatArray) -> FloatArray:
        return np.where(released @ vectors.T >= self.threshold, self.true_epsilon, 0.0)


NOISES: dict[str, type[UnitVectorNoise]] = {"d_chi": DChi, "vmf": VonMisesFisher, "privunit": PrivUnit}
"""Noises by name; each is made from a true ε and a size."""


def _directions(shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
    drawn = generator.standard_normal(shape)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _turned(points: FloatArray, vectors: FloatArray) -> FloatArray:
    """Points around (1, 0, ...), reflected so that they are around the vectors."""
    axis = -vectors.copy()
    axis[:, 0] += 1
    squares = (axis**2).sum(axis=1)
    squares[squares == 0] = 1
    return points - (2 * (points * axis).sum(axis=1) / squares)[:, None] * axis


def _cap(threshold: Any, size: int) -> Any:
    """The share of the sphere with ⟨Z, R⟩ ≥ γ ≥ 0; of one γ or an array of them."""
    return betainc((size - 1) / 2, (size - 1) / 2, (1 - threshold) / 2)


def _hit(epsilon: float, share: Any) -> Any:
    return share / (share + np.exp(-epsilon) * (1 - share))


@lru_cache(maxsize=256)
def _best_threshold(epsilon: float, size: int) -> float:
    """The γ of a fine grid with the largest mean of ⟨Z, R⟩."""
    half = (size - 1) / 2
    thresholds = np.linspace(0, 0.999, 1000)
    thresholds = thresholds[_cap(thresholds, size) > np.finfo(float).tiny]
    # The integral of ⟨Z, R⟩ over the cap, of the uniform law.
    moments = np.exp(half * np.log1p(-(thresholds**2)) - betaln(half, half) - (size - 2) * np.log(2)) / (2 * half)
    share = _cap(thresholds, size)
    hit = _hit(epsilon, share)
    return float(thresholds[(moments * (hit / share - (1 - hit) / (1 - share))).argmax()])
