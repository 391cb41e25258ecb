"""RANTEXT (Tong, Chen, Zhang, Qi, Zhang, Yu, Zhang, Zhang: "InferDPT", arXiv 2310.12214), as its code has it
(``func.py``).

A random radius T = ‖Y‖, Y_i ~ Laplace(Δφ_i/Z(ε)), Δφ_i the range of coordinate i; the list of x holds the words nearer
than T; y is drawn from the list with probability proportional to e^(ε/2·(1-d(x,y)/T)).

Theorem 2 of the paper holds one list fixed for two inputs. But each input draws a list around itself, and a far word is
on it only if T is large. With two words at distance 1 in one dimension, P(1|0) ≤ P(T > 1)/2 = e^(-Z)/2, and the true ε
is at least Z + ln 2 - o(1) (docs/sanitization.md). What it does not know it leaves out, which the length shows.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.vocabulary import FloatArray, IntArray, Vocabulary

_POINTS = 1 << 15
_GROUPS = 12  # of radii that are worked on together: lists get longer from one to the next
_FLOOR = 1e-16
"""Values that the Fourier transform cannot distinguish from 0 count as this. That favours the paper: rarer events raise
ε."""
_DIMENSIONS = 8
_REACH = 64.0
"""Largest ‖Y‖² that is considered when the scales have norm 1: its mean is 2, and a coordinate's share of it small."""


class Constants(NamedTuple):
    """Constants of Z(ε) = a·ln(b·ε + c) + d."""

    a: float
    b: float
    c: float
    d: float


PRINTED = Constants(0.01658160142016071, 19.064721649556482, -38.1294334077209, 9.311083811697406)
"""Those of the paper's code, for text-embedding-ada-002. Each embedder needs its own (:mod:`.rantext_fit`)."""


def rate(epsilon: float, constants: Constants = PRINTED) -> float:
    """Z(ε), equation 13 of the paper: with its constants it jumps from 2 to 9.1 at ε = 2."""
    a, b, c, d = constants
    return epsilon if epsilon < 2 else a * math.log(max(b * epsilon + c, 1e-300)) + d


@dataclass(frozen=True)
class RanText(OnWords):
    """The marginal channel: the mean over the radius.

    The radius takes values on a grid: the midpoints of steps, with the exact probabilities of the steps. So this
    is itself a mechanism of the same kind, and its audit holds with no error of an integral.

    Args:
        epsilon: nominal ε.
        steps: number of steps of the radius, up to the diameter.
        constants: constants of Z.
    """

    epsilon: float
    steps: int = 64
    constants: Constants = PRINTED

    @cached_property
    def radii(self) -> tuple[FloatArray, FloatArray]:
        """Values of the radius, ascending, and their probabilities."""
        z = rate(self.epsilon, self.constants)
        return radius_law(ranges(self.vocabulary), z, self.vocabulary.diameter, self.steps)

    @override
    def rows(self, x: IntArray) -> FloatArray:
        radii, chances = self.radii
        law = np.zeros((len(x), len(self.vocabulary)))
        for row, distance in enumerate(self.vocabulary.distances(x)):
            order = np.argsort(distance, kind="stable")
            near = distance[order]
            mean = np.zeros(len(distance))
            for some in np.array_split(np.arange(len(radii)), _GROUPS):
                radius = radii[some, None]
                listed = near[: np.searchsorted(near, radius[-1, 0])]
                weights = np.exp(-self.epsilon / 2 / radius * listed) * (listed < radius)
                mean[: len(listed)] += chances[some] / weights.sum(axis=1) @ weights
            law[row, order] = mean
        return law


def ranges(vocabulary: Vocabulary) -> FloatArray:
    """Δφ: the range of each coordinate that has one."""
    spans: FloatArray = np.ptp(vocabulary.vectors, axis=0)
    return spans[spans > 0]


def radius_law(spans: FloatArray, z: float, diameter: float, steps: int) -> tuple[FloatArray, FloatArray]:
    """The law of ‖Y‖, Y_i ~ Laplace(spans_i/z) independent, on a grid.

    In one dimension it is exponential. In more, the characteristic function of ‖Y‖² is the product of
    √π·w·erfcx(w), w = e^(iπ/4)/(2·scale·√s), and a Fourier transform turns it into probabilities of small steps.

    Returns:
        Midpoints of steps, ascending, and their probabilities, which sum to 1: ``steps`` equal ones up to the diameter,
        half as many above it. All that lies above the last belongs to it.

    Raises:
        ValueError: fewer than 8 dimensions that count, but more than one: that transform would converge too slowly.
    """
    unit, size = _scaled(spans, z)
    end = max(2 * diameter, size * math.sqrt(_REACH))
    edges = np.linspace(0, diameter, steps + 1)
    edges = np.concatenate([edges, np.linspace(diameter, end, steps // 2 + 1)[1:]])
    middles = (edges[1:] + edges[:-1]) / 2
    if len(unit) == 1:
        below = -np.expm1(-edges / size)
    else:
        grid = _REACH * np.arange(_POINTS) / _POINTS
        below = np.interp((edges / size) ** 2, grid, _cumulative(unit.tobytes()))
    below[-1] = 1
    chances = np.maximum(np.diff(below), _FLOOR)
    return middles, chances / chances.sum()


def radius_quantile(spans: FloatArray, share: float) -> float:
    """What ‖Y‖ is below with a probability of ``share``, for Z = 1; for another Z it is that divided by Z.

    Raises:
        ValueError: too few dimensions, see :func:`radius_law`.
    """
    unit, size = _scaled(spans, 1.0)
    if len(unit) == 1:
        return -size * math.log1p(-share)
    grid = _REACH * np.arange(_POINTS) / _POINTS
    return size * math.sqrt(np.interp(share, np.maximum.accumulate(_cumulative(unit.tobytes())), grid))


def _scaled(spans: FloatArray, z: float) -> tuple[FloatArray, float]:
    """Scales of norm 1, and what they are multiplied by."""
    size = float(np.linalg.norm(spans))
    unit = spans / size
    if len(unit) > 1 and np.sum(unit**4) > 1 / _DIMENSIONS:
        raise ValueError(f"the radius of RANTEXT needs one dimension, or at least {_DIMENSIONS} of like ranges")
    return unit, size / z


@lru_cache(maxsize=4)
def _cumulative(unit_scales: bytes) -> FloatArray:
    """P(‖Y‖² < reach·j/points) for all j, for scales of norm 1: the nominal ε only stretches it."""
    from scipy.special import wofz  # a quarter of a second to import, and no other mechanism needs it

    scales = np.frombuffer(unit_scales)
    frequencies = 2 * np.pi * np.arange(1, _POINTS // 2 + 1) / _REACH
    roots = np.exp(0.25j * np.pi) / (2 * np.sqrt(frequencies))
    logarithm = np.zeros(len(frequencies), dtype=complex)
    for scale in scales:
        w = roots / scale
        logarithm += np.log(np.sqrt(np.pi) * w * wofz(1j * w))
    characteristic = np.concatenate([[1.0], np.exp(logarithm)])
    masses = np.maximum(np.fft.irfft(np.conj(characteristic), _POINTS), 0)
    return np.cumsum(masses) - (masses + masses[0]) / 2
