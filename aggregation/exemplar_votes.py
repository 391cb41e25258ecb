"""Public exemplars chosen by the votes of private units: a one-time release that every later answer uses.

There are public candidates, each of a label. A unit, whatever it holds, has one vote: for the candidate that is the
most similar to any of its texts, of those with that text's label. A unit without a usable text does not vote.

Privacy. Which candidate a unit votes for depends on the unit and on public things alone. So adding or removing a unit
moves one candidate's number of votes by 1 and no other, all of them by at most 1 in the L2 norm: with noise σ = z on
each this is a Gaussian mechanism of noise multiplier z, once. Numbers of votes are kept within what integers hold,
which never moves two of them apart.

For each label the same number of candidates is chosen, those with the most noisy votes: post-processing. This is
the first round of private evolution (Xie et al. 2024, arXiv 2403.01749), label by label, with a vote for each unit
instead of each text.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from aggregation.embeddings import Unit, Vector, is_embedding
from aggregation.noise import ONE, FixedPoint, add_gaussian_noise, check_sigma, from_fixed_point

SENSITIVITY = 1.0
"""Largest L2 change of the votes when one unit is added or removed."""

_LARGEST = 2**62  # of a number of votes: there is room for noise above


@dataclass(frozen=True, eq=False)
class ExemplarVotes:
    """The mechanism with its parameters fixed.

    Attributes:
        noise_multiplier: z, noise standard deviation over L2 sensitivity.
        candidates: their embeddings, of norm 1, shape (candidates, d).
        labels: index of each candidate's label.

    Raises:
        ValueError: the noise is too small for the lattice it is drawn on.
    """

    noise_multiplier: float
    candidates: Vector
    labels: Sequence[int]

    def __post_init__(self) -> None:
        check_sigma(self.sigma, "noise_multiplier")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each candidate's votes."""
        return SENSITIVITY * self.noise_multiplier

    def release(self, units: Iterable[Unit]) -> npt.NDArray[np.float64]:
        """The noisy votes, shape (candidates,): all that may be known of the units."""
        return from_fixed_point(add_gaussian_noise(self.votes(units), self.sigma))

    def votes(self, units: Iterable[Unit]) -> FixedPoint:
        """Count the units' votes.

        Args:
            units: their texts. What has no candidate's label, or no embedding of norm 1, is passed over; nothing that a
                unit holds raises.

        Returns:
            Fixed-point votes, shape (candidates,).
        """
        total: FixedPoint = np.zeros(len(self.labels), dtype=np.int64)
        for unit in units:
            vote = self._vote(unit)
            if vote is not None:
                total[vote] = min(total[vote] + ONE, _LARGEST)
        return total

    def _vote(self, unit: Unit) -> int | None:
        """The candidate that a unit votes for."""
        nearest, vote = -math.inf, None
        for label, vector in unit:
            if label in self._by_label and is_embedding(vector, self.candidates.shape[1]):
                numbers, directions = self._by_label[label]
                similarities = directions @ vector.astype(np.float64)
                first = int(similarities.argmax())
                if similarities[first] > nearest:
                    nearest, vote = similarities[first], int(numbers[first])
        return vote

    @cached_property
    def _by_label(self) -> dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]]:
        """Each label's candidates: their numbers and embeddings."""
        labels = np.asarray(self.labels)
        numbers = {label: np.flatnonzero(labels == label) for label in set(self.labels)}
        return {label: (places, self.candidates[places].astype(np.float64)) for label, places in numbers.items()}


def chosen(noisy_votes: npt.NDArray[np.float64], labels: Sequence[int], per_label: int) -> list[int]:
    """The candidates with the most noisy votes, equally many for each label: the first of every label, then the second.

    Args:
        noisy_votes: from :meth:`ExemplarVotes.release`.
        labels: index of each candidate's label.
        per_label: number of candidates to choose for each label.
    """
    ranked = np.argsort(-noisy_votes, kind="stable")
    by_label = [[int(number) for number in ranked if labels[number] == label] for label in sorted(set(labels))]
    return [numbers[place] for place in range(per_label) for numbers in by_label]
