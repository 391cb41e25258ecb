"""The noisy sums of prototypes, attacked where their sensitivity is attained.

The attacker adds up the noisy sums along what the attacked unit contributes, and puts a threshold half-way: no attack
on Gaussian noise does better at a loss of 0.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.privacy.profiles import Gaussian
from aggregation.noise import to_fixed_point
from aggregation.prototypes import PrototypeSums, Unit
from tests.privacy.audit import Counts, caught, claim, judge, observe, signed_once

TRIALS = 1_500
Z = 0.4
LABELS = 4
CLAIM = claim(Gaussian(Z))
EAST = np.array([1.0, 0.0])
ONE_TEXT = [(0, EAST)]
MANY_TEXTS = [(0, EAST)] * 40
MANY_LABELS = [(label, EAST) for label in range(LABELS)]
OTHERS = [[(label % LABELS, -EAST)] for label in range(7)]


def counts(mechanism: PrototypeSums, unit: Unit) -> Counts:
    own = mechanism._contribution(unit)
    towards = np.zeros((LABELS, 2))
    for label, row in own.items():
        towards[label] = row / np.linalg.norm(np.concatenate([*own.values()]).astype(np.float64))
    middle = (towards * PrototypeSums(Z, LABELS, 2).sum(OTHERS) / 2**40).sum() + 0.5
    return observe(
        lambda: bool((towards * mechanism.release(OTHERS)).sum() > middle),
        lambda: bool((towards * mechanism.release([*OTHERS, unit])).sum() > middle),
        TRIALS,
    )


@pytest.mark.parametrize("unit", [ONE_TEXT, MANY_TEXTS, MANY_LABELS], ids=["one text", "many texts", "many labels"])
def test_the_claim_survives_whatever_a_unit_holds(unit: Unit) -> None:
    """1.5 times the noise that there is escapes with probability 4e-12."""
    found = counts(PrototypeSums(Z, LABELS, 2), unit)
    assert not caught(found, CLAIM), judge(found, CLAIM)
    assert caught(found, claim(Gaussian(1.5 * Z))), found


def test_a_plan_s_promise_survives_a_unit_of_full_norm() -> None:
    """With the noise of what everybody takes part in; were it accounted as drawn, z would be 0.43 in place of 3.73."""
    signed, as_if_drawn, promise = signed_once("{type: prototypes}")
    assert not caught(counts(PrototypeSums(signed, LABELS, 2), ONE_TEXT), promise, (1.0,))
    assert caught(counts(PrototypeSums(as_if_drawn, LABELS, 2), ONE_TEXT), promise, (1.0,))


class EachText(PrototypeSums):
    """Every text of a unit counts as if it were a unit."""

    def _contribution(self, unit):
        rows = {label: np.zeros(self.dimension, np.int64) for label, _ in unit}
        for label, vector in unit:
            rows[label] = rows[label] + to_fixed_point(vector)
        return rows


class EachLabel(PrototypeSums):
    """A unit's row of each label is clipped by itself: √2 for four labels' worth of two."""

    def _contribution(self, unit):
        whole = {label: sum(vector for at, vector in unit if at == label) for label, _ in unit}
        return {label: to_fixed_point(row / max(1.0, math.hypot(*row))) for label, row in whole.items()}


@pytest.mark.parametrize(("wrong", "unit"), [(EachText, MANY_TEXTS), (EachLabel, MANY_LABELS)])
def test_a_unit_that_counts_for_more_is_caught(wrong: type[PrototypeSums], unit: Unit) -> None:
    assert caught(counts(wrong(Z, LABELS, 2), unit), CLAIM)
