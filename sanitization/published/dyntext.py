"""DYNTEXT (anonymous submission, "DYNTEXT: Semantic-Aware Dynamic Text Sanitization"), as its code has it.

A word is replaced by one of its k_t nearest, by an exponential mechanism; k_t falls with the density around it, to
which Gaussian noise is added. The code draws that noise once for the whole vocabulary, so lists are fixed and public.
Words with different lists have different outputs: ε is infinite. Where lists overlap, appendix A derives a factor
|C_r|·e^ε (15) and drops |C_r| in (16). The density is that of public vectors, so noise protects nothing, and with the
paper's σ it drowns the density.

Its ablations (table 2) are parameters: a global sensitivity instead of a smooth one, lists of one length.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.published.santext import exponential
from sanitization.vocabulary import FloatArray, IntArray, blocks


@dataclass(frozen=True)
class DynText(OnWords):
    """The exponential mechanism within a list whose length depends on a noisy density.

    Args:
        epsilon: nominal ε, for the replacement (ε_r of the paper; its total is ε_r + density_epsilon).
        size: length of the longest list (K).
        density_epsilon: ε_d; None adds no noise.
        delta: δ of the Gaussian mechanism.
        seed: seed of the noise, which is drawn once.
        smooth: whether each word's noise follows its own "smooth sensitivity"; else all have GS, the largest local one.
        dynamic: whether lists have k_t words; else all have K/2.
    """

    epsilon: float
    size: int = 20
    density_epsilon: float | None = 0.5
    delta: float = 1e-5
    seed: int = 0
    smooth: bool = True
    dynamic: bool = True

    @cached_property
    def _near(self) -> tuple[IntArray, FloatArray]:
        every = blocks(len(self.vocabulary))
        near = [self.vocabulary.nearest(x, self.size) for x in every]
        distance = [
            np.take_along_axis(self.vocabulary.distances(x), own, axis=1) for x, own in zip(every, near, strict=True)
        ]
        return np.concatenate(near), np.concatenate(distance)

    @cached_property
    def density(self) -> FloatArray:
        """f(t): words within the mean distance of the K-th neighbour (3)."""
        gamma = self._near[1][:, -1].mean()
        counted = [(self.vocabulary.distances(x) <= gamma).sum(axis=1) for x in blocks(len(self.vocabulary))]
        return np.concatenate(counted).astype(np.float64)

    @cached_property
    def sigma(self) -> FloatArray:
        """The standard deviation of each word's noise (4), by its "smooth sensitivity" (5)."""
        if self.density_epsilon is None:
            return np.zeros(len(self.vocabulary))
        near, distance = self._near
        local = np.abs(self.density[near] - self.density[:, None]).max(axis=1)
        beta = self.density_epsilon / (2 * math.log(2 / self.delta))
        smooth = (local[near] * np.exp(-beta * distance)).max(axis=1)
        sensitivity = smooth if self.smooth else np.full(len(local), local.max())
        return sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.density_epsilon

    @cached_property
    def noisy_density(self) -> FloatArray:
        """F(t)."""
        return self.density + self.sigma * np.random.default_rng(self.seed).normal(size=len(self.vocabulary))

    @cached_property
    def sizes(self) -> IntArray:
        """k_t (6, 7)."""
        if not self.dynamic:
            return np.full(len(self.vocabulary), max(1, self.size // 2))
        spread = np.ptp(self.noisy_density) or 1.0
        scaled = (self.noisy_density - self.noisy_density.min()) / spread
        return np.maximum(1, np.floor((1 - scaled) * self.size)).astype(np.int64)

    @override
    def rows(self, x: IntArray) -> FloatArray:
        near, distance = self._near[0][x], self._near[1][x]
        size = self.sizes[x][:, None]
        farthest = np.take_along_axis(distance, np.minimum(size, distance.shape[1]) - 1, axis=1)
        exponents = -self.epsilon / 2 * distance / np.where(farthest > 0, farthest, 1)
        listed = np.where(np.arange(distance.shape[1]) < size, exponents, -np.inf)
        law = np.zeros((len(x), len(self.vocabulary)))
        np.put_along_axis(law, near, exponential(listed), axis=1)
        return law
