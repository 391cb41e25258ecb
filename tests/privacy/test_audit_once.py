"""Noisy sums of prototypes, and noisy votes for public candidates, attacked with a unit that holds as much as it can.

The attacker projects the release on the unit's contribution, the only direction that the unit moves, and sets a
threshold half-way: no attack on Gaussian noise does better at a loss of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from accounting.privacy.profiles import Gaussian
from aggregation.embeddings import Unit
from aggregation.exemplar_votes import ExemplarVotes
from aggregation.noise import ONE, from_fixed_point, to_fixed_point
from aggregation.prototypes import PrototypeSums
from tests.privacy.audit import Counts, caught, claim, judge, observe, signed_once

pytestmark = pytest.mark.slow

TRIALS = 1_500
Z = 0.4
LABELS = 4
CLAIM = claim(Gaussian(Z))
EAST = np.array([1.0, 0.0])
ONE_TEXT = [(0, EAST)]
MANY_TEXTS = [(0, EAST)] * 40
MANY_LABELS = [(label, EAST) for label in range(LABELS)]
OTHERS = [[(label % LABELS, -EAST)] for label in range(7)]
Mechanism = ExemplarVotes | PrototypeSums


def sums(z: float, kind: type[PrototypeSums] = PrototypeSums) -> PrototypeSums:
    return kind(z, LABELS, 2)


def votes(z: float, kind: type[ExemplarVotes] = ExemplarVotes) -> ExemplarVotes:
    """Votes for two candidates of each label."""
    return kind(z, np.array([EAST, -EAST] * LABELS), [label for label in range(LABELS) for _ in range(2)])


def noiseless(mechanism: Mechanism, units: Sequence[Unit]) -> np.ndarray:
    return from_fixed_point(mechanism.sum(units) if isinstance(mechanism, PrototypeSums) else mechanism.votes(units))


def counts(mechanism: Mechanism, unit: Unit) -> Counts:
    own = noiseless(mechanism, [unit])
    own /= np.linalg.norm(own)
    middle = (own * noiseless(mechanism, OTHERS)).sum() + 0.5
    return observe(
        lambda: bool((own * mechanism.release(OTHERS)).sum() > middle),
        lambda: bool((own * mechanism.release([*OTHERS, unit])).sum() > middle),
        TRIALS,
    )


@pytest.mark.parametrize("made", [sums, votes])
@pytest.mark.parametrize("unit", [ONE_TEXT, MANY_TEXTS, MANY_LABELS], ids=["one text", "many texts", "many labels"])
def test_the_claim_survives_whatever_a_unit_holds(made: Callable[[float], Mechanism], unit: Unit) -> None:
    """A claim for 1.5 times the noise escapes with probability 4e-12."""
    found = counts(made(Z), unit)
    assert not caught(found, CLAIM), judge(found, CLAIM)
    assert caught(found, claim(Gaussian(1.5 * Z))), found


CANDIDATES = ", ".join(f"{{text: {text}, label: {label}}}" for label in "abcd" for text in ("east", "west"))


@pytest.mark.parametrize(
    ("made", "mechanism"),
    [(sums, "{type: prototypes}"), (votes, f"{{type: synthetic_exemplars, candidates: [{CANDIDATES}]}}")],
    ids=["sums", "votes"],
)
def test_a_signed_plan_keeps_its_promise(made: Callable[[float], Mechanism], mechanism: str) -> None:
    """The noise is that of a release of every unit. If it were accounted as drawn, z would be 0.43 instead of 3.73."""
    signed, as_if_drawn, promise = signed_once(mechanism)
    assert not caught(counts(made(signed), ONE_TEXT), promise, (1.0,))
    assert caught(counts(made(as_if_drawn), ONE_TEXT), promise, (1.0,))


class SumOfEachText(PrototypeSums):
    """Every text of a unit counts as if it were a unit."""

    def _contribution(self, unit):
        rows = {label: np.zeros(self.dimension, np.int64) for label, _ in unit}
        for label, vector in unit:
            rows[label] = rows[label] + to_fixed_point(vector)
        return rows


class SumOfEachLabel(PrototypeSums):
    """A unit's row of each label is clipped by itself: four labels have a norm of √4."""

    def _contribution(self, unit):
        whole = {label: sum(vector for at, vector in unit if at == label) for label, _ in unit}
        return {label: to_fixed_point(row / max(1.0, math.hypot(*row))) for label, row in whole.items()}


class VoteOfEachText(ExemplarVotes):
    """Every text of a unit votes as if it were a unit."""

    def votes(self, units):
        return super().votes([text] for unit in units for text in unit)


class VoteOfEachLabel(ExemplarVotes):
    """A unit has a vote for each of its labels: four labels have a norm of √4."""

    def votes(self, units):
        total = np.zeros(len(self.labels), np.int64)
        for unit in units:
            for label in {label for label, _ in unit}:
                total[self._vote([text for text in unit if text[0] == label])] += ONE
        return total


@pytest.mark.parametrize(
    ("wrong", "unit"),
    [
        (sums(Z, SumOfEachText), MANY_TEXTS),
        (sums(Z, SumOfEachLabel), MANY_LABELS),
        (votes(Z, VoteOfEachText), MANY_TEXTS),
        (votes(Z, VoteOfEachLabel), MANY_LABELS),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_unit_that_counts_for_more_is_caught(wrong: Mechanism, unit: Unit) -> None:
    assert caught(counts(wrong, unit), CLAIM)
