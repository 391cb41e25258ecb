"""A prototype of each label: the noisy sum of embeddings of its texts, a one-time release that all answers use.

A unit, whatever it holds, contributes one matrix of shape (labels, d): at each label the sum of its embeddings there,
the whole scaled down to Frobenius norm 1 if it is longer.

Privacy. Adding or removing a unit moves the sum by its matrix, so by at most 1 in the L2 norm: with noise σ = z on each
coordinate this is a Gaussian mechanism of noise multiplier z, once. Each unit is brought to the lattice by itself: it
is scaled to just below norm 1 and rounded towards zero, so its integers have a norm of at most 1 and depend on nothing
else. The sum is kept within what its integers hold by clipping every coordinate after each unit. Projecting on a box
never moves two points apart, so two runs that differ in one unit end no further apart than that unit's matrix is long.

Prototypes. Let N(σ√d · e_y, σ²·I) be the prior of label y's sum, e_y being the public embedding of the label's
sentence: it points as far along the label as noise alone is long, and is as vague as the noise. The posterior's mean,
given the noisy sum V_y, is (V_y + σ√d · e_y) / 2. So a label that few units have stays near its sentence, and one that
many have leaves it. A question's embedding q is then compared by the cosine with these means m_y:

    P(y | q) = softmax(cos(q, m_y) / temperature) at y

Everything from the noisy sums on is post-processing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from aggregation.embeddings import Unit, Vector, is_embedding
from aggregation.noise import FixedPoint, add_gaussian_noise, check_sigma, from_fixed_point, to_fixed_point

SENSITIVITY = 1.0
"""Largest L2 change of the sum when one unit is added or removed."""

_ROUNDING = 2.0**-48  # more than the norm and the scaling of a matrix can err by, relatively
_LARGEST = 2**62  # of a coordinate: there is room for noise above


@dataclass(frozen=True)
class PrototypeSums:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z, noise standard deviation over L2 sensitivity.
        labels: number of labels.
        dimension: d, number of coordinates of an embedding.

    Raises:
        ValueError: the noise is too small for the lattice it is drawn on.
    """

    noise_multiplier: float
    labels: int
    dimension: int

    def __post_init__(self) -> None:
        check_sigma(self.sigma, "noise_multiplier")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        return SENSITIVITY * self.noise_multiplier

    def release(self, units: Iterable[Unit]) -> npt.NDArray[np.float64]:
        """The noisy sums, shape (labels, d): all that may be known of the units."""
        noisy = add_gaussian_noise(self.sum(units).ravel(), self.sigma)
        return from_fixed_point(noisy).reshape(self.labels, self.dimension)

    def sum(self, units: Iterable[Unit]) -> FixedPoint:
        """Add up what the units contribute.

        Args:
            units: their texts. What has no label of these, or no embedding of norm 1, is passed over; nothing that a
                unit holds raises.

        Returns:
            Fixed-point sums, shape (labels, d).
        """
        total: FixedPoint = np.zeros((self.labels, self.dimension), dtype=np.int64)
        for unit in units:
            for label, row in self._contribution(unit).items():
                total[label] = np.clip(total[label] + row, -_LARGEST, _LARGEST)
        return total

    def _contribution(self, unit: Unit) -> dict[int, FixedPoint]:
        """The rows of a unit's matrix that are not 0, by label: of norm 1 together at most."""
        rows: dict[int, npt.NDArray[np.float64]] = {}
        for label, vector in unit:
            if 0 <= label < self.labels and is_embedding(vector, self.dimension):
                rows[label] = rows.get(label, 0.0) + vector.astype(np.float64)
        limit = SENSITIVITY * (1 - _ROUNDING)
        norm = math.hypot(*(coordinate for row in rows.values() for coordinate in row.tolist()))
        return {label: to_fixed_point(row * (limit / max(norm, limit))) for label, row in rows.items()}


@dataclass(frozen=True)
class Prototypes:
    """The label probabilities that noisy sums give to a question.

    Attributes:
        directions: unit vectors, shape (labels, d), from :func:`shrunk`.
        temperature: temperature of the softmax, public; a lower one makes probabilities more extreme.
    """

    directions: npt.NDArray[np.float64]
    temperature: float

    def cosines(self, question: Vector) -> npt.NDArray[np.float64]:
        """Cosine of each direction with a question, shape (labels,); the argument as of :meth:`probabilities`."""
        return self.directions @ question.astype(np.float64)

    def probabilities(self, question: Vector) -> npt.NDArray[np.float64]:
        """The model's probability that each label is right, shape (labels,).

        As far as the temperature was fitted to such questions, that is how often it is right.

        Args:
            question: embedding of the question, of norm 1, shape (d,).
        """
        return special.softmax(self.cosines(question) / self.temperature)


def shrunk(
    noisy_sums: npt.NDArray[np.float64], sentences: npt.NDArray[np.float64], sigma: float
) -> npt.NDArray[np.float64]:
    """Directions of the posterior's means, shape (labels, d).

    Args:
        noisy_sums: from :meth:`PrototypeSums.release`.
        sentences: unit vectors of the labels' public sentences, shape (labels, d).
        sigma: standard deviation of the noise on each coordinate.
    """
    means = (noisy_sums + sigma * math.sqrt(noisy_sums.shape[1]) * sentences) / 2
    return means / np.linalg.norm(means, axis=1, keepdims=True)
