"""Softmax regression by noisy gradient descent: one release of weights, which label any number of questions.

The weights W, shape (labels, d), start at public embeddings of the labels' sentences, so before the first step they
answer as zero-shot does. Each of T = 40 steps moves them along the likelihood's gradient, with momentum (heavy ball).

Privacy. In a step a unit, whatever it holds, contributes one matrix: the sum over its texts of (one-hot of the label −
softmax(W x)) xᵀ, scaled down to Frobenius norm C = 1/2 if it is longer. Every coordinate of the sum over all units gets
Gaussian noise of deviation z·√T·C. So a step is a Gaussian mechanism of noise multiplier z·√T, whatever the steps
before it released, and T of them together are one of noise multiplier z (Dong, Roth, Su 2019, arXiv 1905.02383,
Corollary 3.3). Nothing is drawn at random from the units, so nothing is amplified; a step's length depends on the
*public* size. What follows from noisy gradients is post-processing.

A unit's matrix depends, bit for bit, on that unit and on released things alone, since all products are of whole numbers
that their sums hold exactly in any order: embeddings of 8 bits, weights and residuals of fixed point. What is left is
computed for each text alone, or for each unit alone.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from aggregation.embeddings import Unit, is_embedding
from aggregation.noise import FRACTION_BITS, FixedPoint, add_gaussian_noise, check_sigma, from_fixed_point

STEPS = 40
"""T, number of passes over all units."""
CLIP = 0.5
"""C, largest L2 change of a step's sum when one unit is added or removed."""
MOST_TEXTS = 2**16
"""Largest number of a unit's texts that count, so that their sum is exact."""

_MOMENTUM = 0.8
_LENGTH = 0.2  # of a step, over the noise's share in it
_DOUBTED = 10.0  # units for each 1 of z with which steps are half as long: fewer teach less than zero-shot knows
_LONGEST = 20.0  # of a step: where there is little noise, longer ones overshoot
_LEVELS = 127
_WIDEST = 5.0  # what a coordinate of an embedding has room for, in multiples of 1/√d
_RESIDUAL_BITS = 30
_WEIGHT_BITS = 20
_LARGEST_WEIGHT = 2.0**10
_LONGEST_EMBEDDING = 2.0  # more than the norm of a rounded one
_ROUNDING = 2.0**-30  # more than a norm can err by, relatively
_PAGE = 4096  # texts: whole numbers of 30 + 7 bits, and as many of them, are exact in 53 bits
_LARGEST_SUM = 2**60


@dataclass(frozen=True)
class SoftmaxRegression:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z of the whole release.
        labels: number of labels.
        dimension: d, number of coordinates of an embedding.
        public_size: number of units that a step's length counts on; public.

    Raises:
        ValueError: the noise is too small for the lattice it is drawn on, or the size is not positive.
    """

    noise_multiplier: float
    labels: int
    dimension: int
    public_size: int

    def __post_init__(self) -> None:
        check_sigma(self.sigma, "noise_multiplier")
        if self.public_size < 1:
            raise ValueError(f"public_size must be at least 1, not {self.public_size}")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each coordinate of a step's sum."""
        return self.noise_multiplier * math.sqrt(STEPS) * CLIP

    @property
    def step_length(self) -> float:
        """Factor of a mean gradient in a step."""
        units = self.public_size / self.noise_multiplier
        return min(_LENGTH * units / (CLIP * STEPS) * units / (units + _DOUBTED), _LONGEST)

    def release(self, units: Iterable[Unit], start: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The weights after the last step, shape (labels, d): all that may be known of the units.

        Args:
            units: their texts. What has no label of these, or no embedding of norm 1, is passed over; nothing that a
                unit holds raises.
            start: public weights to begin with, shape (labels, d).
        """
        return self.descend(self.pack(units), start, self.sigma)

    def descend(
        self, packed: "PackedUnits", start: npt.NDArray[np.float64], sigma: float | None
    ) -> npt.NDArray[np.float64]:
        """The weights after the last step: :meth:`release` of packed units, with noise of deviation sigma, or none.

        Only evaluation sets sigma to anything but the mechanism's.
        """
        weights, velocity = _in_range(start), np.zeros_like(start)
        for _ in range(STEPS):
            sums = self.gradient(packed, weights)
            if sigma is not None:
                sums = self.with_noise(sums, sigma)
            velocity = _MOMENTUM * velocity + self.step_length / self.public_size * from_fixed_point(sums)
            weights = _in_range(weights + velocity)
        return weights

    def with_noise(self, sums: FixedPoint, sigma: float) -> FixedPoint:
        """A step's sums with independent noise on each coordinate: what a step releases."""
        return add_gaussian_noise(sums.ravel(), sigma).reshape(sums.shape)

    def pack(self, units: Iterable[Unit]) -> "PackedUnits":
        """The usable texts of units, in memory: d bytes a text and some more."""
        return PackedUnits.of(units, self.labels, self.dimension)

    def right(self, units: Iterable[Unit], weights: npt.NDArray[np.float64]) -> Iterator[tuple[int, int]]:
        """Right answers to the texts of units that the weights were not fitted to.

        Args:
            units: their texts, as in :meth:`release`.
            weights: released weights, shape (labels, d).

        Yields:
            For each unit with a usable text: the number of its texts that fit their own label best, and of all of them.
            Scores are exact, so other units change neither.
        """
        packed, wide = self.pack(units), _widened(weights)
        for texts, number in packed.pages():
            scores = packed.vectors[texts].astype(np.float64) @ wide
            hits = (scores.argmax(axis=1) == packed.labels[texts]).reshape(-1, number).sum(axis=1)
            yield from ((int(right), number) for right in hits)

    def gradient(self, packed: "PackedUnits", weights: npt.NDArray[np.float64]) -> FixedPoint:
        """The sum of what units contribute to a step at public weights: fixed point, shape (labels, d)."""
        wide = _widened(weights)
        to_logit = 2.0 ** -(_WEIGHT_BITS + packed.bits)
        total: FixedPoint = np.zeros((self.labels, self.dimension), dtype=np.int64)
        for texts, number in packed.pages():
            vectors = packed.vectors[texts].astype(np.float64)
            residuals = _residuals(vectors @ wide * to_logit, packed.labels[texts])
            scales = self._scales(residuals, vectors, number, packed.bits)
            scaled = np.trunc(residuals * np.repeat(scales, number)[:, None])
            for first, end in pairwise([*range(0, len(scaled), _PAGE), len(scaled)]):
                total += (scaled[first:end].T @ vectors[first:end]).astype(np.int64)
        # 2^26 units would not fill 63 bits; and clipping an exact sum never moves two sums apart.
        shift = FRACTION_BITS - _RESIDUAL_BITS - packed.bits
        return np.clip(total, -_LARGEST_SUM >> shift, _LARGEST_SUM >> shift) << shift

    def _scales(self, residuals: np.ndarray, vectors: np.ndarray, number: int, bits: int) -> np.ndarray:
        """Factors, at most 1, that bring each unit of `number` texts to norm C even after rounding; shape (units,)."""
        of_units = residuals.reshape(-1, number, self.labels), vectors.reshape(-1, number, self.dimension)
        if number == 1:
            squares = _sum_of_squares(of_units[0][:, 0]) * _sum_of_squares(of_units[1][:, 0])
        else:
            matrices = of_units[0].transpose(0, 2, 1) @ of_units[1]
            squares = _sum_of_squares(matrices.reshape(len(matrices), -1))
        norms = np.sqrt(squares) * 2.0 ** -(_RESIDUAL_BITS + bits)
        rounding = number * math.sqrt(self.labels) * _LONGEST_EMBEDDING * 2.0**-_RESIDUAL_BITS
        limit = CLIP * (1 - _ROUNDING) - rounding
        return limit / np.maximum(norms, limit)


@dataclass(frozen=True, eq=False)
class PackedUnits:
    """The usable texts of units, those of units with equally many texts beside each other.

    Attributes:
        vectors: embeddings as whole numbers of 2^-bits, int8 (texts, d).
        labels: index of each text's label, (texts,).
        sizes: numbers of texts that units have, and how many texts of such units there are, in the order of texts.
        bits: binary places of the embeddings.
    """

    vectors: npt.NDArray[np.int8]
    labels: npt.NDArray[np.int64]
    sizes: tuple[tuple[int, int], ...]
    bits: int

    @classmethod
    def of(cls, units: Iterable[Unit], labels: int, dimension: int) -> "PackedUnits":
        """Pack units; what has no label of these, or no embedding of norm 1, is passed over."""
        bits = min(math.floor(math.log2(_LEVELS * math.sqrt(dimension) / _WIDEST)), FRACTION_BITS - _RESIDUAL_BITS)
        by_size: dict[int, list[tuple[list[int], npt.NDArray[np.int8]]]] = {}
        for unit in units:
            usable = [(label, v) for label, v in unit if 0 <= label < labels and is_embedding(v, dimension)]
            if usable := usable[:MOST_TEXTS]:
                wide = np.stack([vector for _, vector in usable]).astype(np.float64)
                vectors = np.clip(np.rint(wide * 2.0**bits), -_LEVELS, _LEVELS).astype(np.int8)
                by_size.setdefault(len(usable), []).append(([label for label, _ in usable], vectors))
        packed = [one for size in sorted(by_size) for one in by_size[size]]
        return cls(
            np.concatenate([np.empty((0, dimension), np.int8), *(vectors for _, vectors in packed)]),
            np.array([label for of_one, _ in packed for label in of_one], np.int64),
            tuple((size, size * len(by_size[size])) for size in sorted(by_size)),
            bits,
        )

    def pages(self) -> Iterator[tuple[slice, int]]:
        """Texts of whole units, some thousand at a time, with the number of texts that each of these units has."""
        first = 0
        for size, texts in self.sizes:
            step = max(1, _PAGE // size // (1 if size == 1 else 16)) * size
            for begin in range(first, first + texts, step):
                yield slice(begin, min(begin + step, first + texts)), size
            first += texts


def _residuals(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """One-hot minus softmax, as whole numbers of 2^-30: each row by itself, whatever the other rows are."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = np.zeros(len(powers))
    for column in powers.T:  # in this order for every row
        total = total + column
    residuals = -powers / total[:, None]
    residuals[np.arange(len(labels)), labels] += 1
    return np.rint(residuals * 2.0**_RESIDUAL_BITS)


def _sum_of_squares(rows: np.ndarray) -> np.ndarray:
    """The sum of each row's squares, float64 (n,): each by itself."""
    return (rows * rows).sum(axis=1)


def _widened(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weights as whole numbers of 2^-20, shape (d, labels)."""
    whole: npt.NDArray[np.float64] = np.rint(_in_range(weights) * 2.0**_WEIGHT_BITS).T
    return whole


def _in_range(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(weights, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
