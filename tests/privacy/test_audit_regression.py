"""Softmax regression attacked with all that its steps release, which is more than leaves, and a unit that holds much.

The weights of every step are released, so the attacker computes what the unit would contribute to the next one, and
projects that step's noisy sums on it. The sum over all steps is compared with a threshold half-way: by the lemma of
Neyman and Pearson no attack does better at a loss of 0. There are four steps, each with noise for four, instead of 40.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from accounting.privacy.profiles import Gaussian
from aggregation import softmax_regression
from aggregation.embeddings import Unit
from aggregation.noise import from_fixed_point, to_fixed_point
from aggregation.softmax_regression import CLIP, SoftmaxRegression
from tests.privacy.audit import Counts, caught, claim, judge, observe, signed_once

pytestmark = pytest.mark.slow

TRIALS = 1_500
STEPS = 4
Z = 0.4
LABELS = 4
CLAIM = claim(Gaussian(Z))
EAST = np.array([1.0, 0.0])
ONE_TEXT = [(0, EAST)]
MANY_TEXTS = [(0, EAST), (1, -EAST)] * 20
MANY_LABELS = [(label, EAST) for label in range(LABELS)] + [(0, EAST)] * 9
OTHERS = [[(label % LABELS, -EAST)] for label in range(7)]
START = np.zeros((LABELS, 2))


@pytest.fixture(autouse=True)
def four_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_regression, "STEPS", STEPS)


@dataclass(frozen=True)
class Watched(SoftmaxRegression):
    """Keeps each step's weights and noisy sums."""

    steps: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    at: list[np.ndarray] = field(default_factory=list)

    def gradient(self, packed, weights):
        self.at.append(weights)
        return super().gradient(packed, weights)

    def with_noise(self, sums, sigma):
        noisy = super().with_noise(sums, sigma)
        self.steps.append((self.at[-1], from_fixed_point(noisy)))
        return noisy


def evidence(mechanism: SoftmaxRegression, kind: type[SoftmaxRegression], units: Sequence[Unit], unit: Unit) -> float:
    """The log-likelihood ratio of the unit's presence, up to a factor, from what all steps of one release show."""

    class Wrong(Watched, kind):
        pass

    watched = Wrong(mechanism.noise_multiplier, LABELS, 2, mechanism.public_size)
    watched.release(units, START)
    right = SoftmaxRegression(1.0, LABELS, 2, 1)
    rest, alone = right.pack(OTHERS), right.pack([unit])
    found = 0.0
    for weights, noisy in watched.steps:
        own = from_fixed_point(right.gradient(alone, weights))
        found += float((own * (noisy - from_fixed_point(right.gradient(rest, weights)) - own / 2)).sum())
    return found


def counts(mechanism: SoftmaxRegression, unit: Unit, kind: type[SoftmaxRegression] = SoftmaxRegression) -> Counts:
    return observe(
        lambda: evidence(mechanism, kind, OTHERS, unit) > 0,
        lambda: evidence(mechanism, kind, [*OTHERS, unit], unit) > 0,
        TRIALS,
    )


def regression(z: float, public_size: int = 8) -> SoftmaxRegression:
    return SoftmaxRegression(z, LABELS, 2, public_size)


@pytest.mark.parametrize("unit", [MANY_TEXTS, MANY_LABELS], ids=["many texts", "many labels"])
def test_the_claim_survives_whatever_a_unit_holds(unit: Unit) -> None:
    """A claim for 1.5 times the noise escapes with probability 4e-12."""
    found = counts(regression(Z), unit)
    assert not caught(found, CLAIM), judge(found, CLAIM)
    assert caught(found, claim(Gaussian(1.5 * Z))), found


@pytest.mark.lengthy
def test_a_signed_plan_keeps_its_promise() -> None:
    """The noise is that of a release of every unit. If it were accounted as drawn, z would be 0.43 instead of 3.73."""
    signed, as_if_drawn, promise = signed_once("{type: softmax_regression}")
    assert not caught(counts(regression(signed), MANY_TEXTS), promise, (1.0,))
    assert caught(counts(regression(as_if_drawn), MANY_TEXTS), promise, (1.0,))


class ClippedTexts(SoftmaxRegression):
    """Every text is clipped by itself, as if it were a unit."""

    def pack(self, units):
        return super().pack([text] for unit in units for text in unit)


class OneStepOfNoise(SoftmaxRegression):
    """The noise of one step of the whole release's multiplier: without the root of the number of steps."""

    @property
    def sigma(self):
        return self.noise_multiplier * CLIP


class PrivateMean(SoftmaxRegression):
    """A step's sums are divided by the true number of units before the noise: one unit changes what the rest weigh."""

    def gradient(self, packed, weights):
        units = sum(texts // size for size, texts in packed.sizes)
        return super().gradient(packed, weights) * 8 // units


class Unclipped(SoftmaxRegression):
    """No unit is clipped."""

    def _scales(self, residuals, vectors, number, bits):
        return np.ones(len(residuals) // number)


@pytest.mark.parametrize("wrong", [ClippedTexts, OneStepOfNoise, Unclipped])
def test_a_unit_that_counts_for_more_is_caught(wrong: type[SoftmaxRegression]) -> None:
    found = counts(regression(Z), MANY_TEXTS, wrong)
    assert caught(found, CLAIM), judge(found, CLAIM)


def test_a_private_mean_is_caught() -> None:
    """A unit that alone is right among texts that all are wrong changes the weight of each of them."""

    def shown(units: Sequence[Unit]) -> bool:
        class Wrong(Watched, PrivateMean):
            pass

        watched = Wrong(Z, LABELS, 2, 8)
        watched.release(units, START)
        rest = SoftmaxRegression(1.0, LABELS, 2, 1)
        found = 0.0
        for weights, noisy in watched.steps:
            others = from_fixed_point(rest.gradient(rest.pack(crowd), weights))
            with_unit = 8 / (len(crowd) + 1)
            without = 8 / len(crowd)
            found += float((others * (with_unit - without) * (noisy - others * (with_unit + without) / 2)).sum())
        return found > 0

    crowd = [[(0, -EAST)] * 20] * 3
    empty: Unit = [(0, EAST), (0, -EAST)] * 20  # it contributes nothing itself
    found = observe(lambda: shown(crowd), lambda: shown([*crowd, empty]), TRIALS)
    assert caught(found, CLAIM), judge(found, CLAIM)


def released_after(kind: type[SoftmaxRegression], units: Sequence[Unit]) -> np.ndarray:
    """The released weights where every step's noisy sums are the same, whatever the units are."""
    drawn = np.random.default_rng(5)

    class Given(kind):
        def with_noise(self, sums, sigma):
            return to_fixed_point(drawn.normal(size=sums.shape))

    return Given(1.0, LABELS, 2, 100).release(units, START)


def is_chosen_by_noisy_sums_alone(kind: type[SoftmaxRegression]) -> bool:
    """Whether weights follow from noisy sums alone: their number, each step's length, and the step that is returned."""
    crowds: list[list[Unit]] = [[], OTHERS, [*OTHERS, MANY_TEXTS], [ONE_TEXT] * 3, [MANY_TEXTS] * 50]
    expected, *others = (released_after(kind, units) for units in crowds)
    return all(np.array_equal(expected, other) for other in others)


class Choosing(SoftmaxRegression):
    """Descends as it should, but for what is chosen by the units themselves."""

    def descend(self, packed, start, sigma):
        weights, velocity, seen = start, np.zeros_like(start), [(-1.0, start)]
        for _ in range(STEPS):
            noisy = from_fixed_point(self.with_noise(self.gradient(packed, weights), sigma))
            velocity = 0.8 * velocity + self.length(packed) / self.public_size * noisy
            weights = weights + velocity
            scores = packed.vectors.astype(float) @ weights.T
            seen.append((float(np.mean(scores.argmax(axis=1) == packed.labels)) if len(scores) else 0.0, weights))
            if self.ends(seen):
                break
        return self.chosen(seen)

    def length(self, packed):
        return self.step_length

    def ends(self, seen):
        return False

    def chosen(self, seen):
        return seen[-1][1]


class PrivateLength(Choosing):
    """A step's length counts on the true number of units."""

    def length(self, packed):
        return self.step_length * sum(texts // size for size, texts in packed.sizes) / self.public_size


class EarlyEnd(Choosing):
    """It stops as soon as a tenth of the texts have their labels."""

    def ends(self, seen):
        return seen[-1][0] >= 0.1


class BestStep(Choosing):
    """It returns the weights that suit most texts."""

    def chosen(self, seen):
        return max(seen, key=lambda step: step[0])[1]


def test_steps_end_and_are_chosen_by_noisy_sums_alone() -> None:
    assert is_chosen_by_noisy_sums_alone(SoftmaxRegression)
    assert is_chosen_by_noisy_sums_alone(Choosing)
    assert math.isclose(regression(Z).sigma, Z * CLIP * math.sqrt(STEPS))


@pytest.mark.parametrize("wrong", [PrivateLength, EarlyEnd, BestStep])
def test_a_choice_by_the_units_themselves_is_caught(wrong: type[SoftmaxRegression]) -> None:
    assert not is_chosen_by_noisy_sums_alone(wrong)
