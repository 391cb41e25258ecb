"""A one-time release that measures itself, attacked with all that its steps and its count release, before rounding.

The store divides the units. The canary is in the part that the release is made of, or in the one that is left out; both
are tried. The attacker knows the service's code, planted bugs included, all other units, and the key that divides them.
Each noisy sum is projected on the difference that the canary makes to it, given what was released before; the total is
the logarithm of the likelihood ratio, and is compared with 0: by the lemma of Neyman and Pearson no attack does better
at a loss of 0. There are two steps, each with noise for two, instead of 40.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from accounting.privacy.profiles import Gaussian
from aggregation import softmax_regression
from aggregation.accuracy import RightAnswers
from aggregation.embeddings import Unit
from aggregation.noise import add_gaussian_noise, from_fixed_point
from aggregation.softmax_regression import PackedUnits, SoftmaxRegression
from exemplar_store import Part
from exemplar_store.encryption import KnowledgeBaseKeys
from tests.privacy.audit import Counts, caught, claim, judge, observe
from tests.privacy.test_audit_regression import EAST, LABELS, MANY_LABELS, MANY_TEXTS, OTHERS, START, Watched, Z

pytestmark = pytest.mark.slow

TRIALS = 1_000
STEPS = 2
CLAIM = claim(Gaussian(Z))
NEARLY = claim(Gaussian(1.25 * Z))
"""A claim of .8 of the distance of the Gaussian pair: answers that reach it refute this one."""
CANARY = "canary"
ALIKE: Unit = [(1, EAST)] * 20

Units = dict[str, Unit]
Divide = Callable[[Units, str], tuple[list[Unit], list[Unit]]]
"""The units that a release, by its name, is made of, and those that it is measured on."""


@pytest.fixture(autouse=True)
def two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_regression, "STEPS", STEPS)


KEYS = KnowledgeBaseKeys(bytes(range(32)), bytes(16))


def divided(units: Units, release: str) -> tuple[list[Unit], list[Unit]]:
    """As the store divides them."""

    def part(left_out: bool) -> list[Unit]:
        own = Part(release, 0.4, left_out)
        return [unit for name, unit in units.items() if own.has(KEYS, KEYS.unit_tag(name))]

    return part(False), part(True)


@dataclass(frozen=True)
class Seen(RightAnswers):
    """Keeps the noisy pair, of which an estimate shows less."""

    noisy: list[np.ndarray] = field(default_factory=list)

    def release(self, units: Iterable[tuple[int, int]]) -> None:
        self.noisy.append(from_fixed_point(add_gaussian_noise(self.sum(units), self.sigma)))


@dataclass(frozen=True)
class World:
    """The two parts of a knowledge base, and what they are for the steps."""

    made_of: PackedUnits
    left_out: list[Unit]


RIGHT = SoftmaxRegression(Z, LABELS, 2, 8)


def counts(
    release: str, unit: Unit, divide: Divide = divided, kind: type[RightAnswers] = RightAnswers, trials: int = TRIALS
) -> Counts:
    """How often the evidence is for the canary, without it and with it."""

    class Count(Seen, kind):
        pass

    others: Units = {f"u{number}": one for number, one in enumerate(OTHERS)}
    parts = [divide(others, release), divide({**others, CANARY: unit}, release)]
    worlds = [World(RIGHT.pack(made_of), left_out) for made_of, left_out in parts]

    def found(world: World) -> bool:
        watched, counted = Watched(Z, LABELS, 2, 8), Count(Z)
        weights = watched.descend(world.made_of, START, watched.sigma)
        counted.release(RIGHT.right(world.left_out, weights))
        total = 0.0
        for at, noisy in watched.steps:
            total += ratio([from_fixed_point(RIGHT.gradient(one.made_of, at)) for one in worlds], noisy, RIGHT.sigma)
        pairs = [from_fixed_point(counted.sum(RIGHT.right(one.left_out, weights))) for one in worlds]
        return total + ratio(pairs, counted.noisy[0], counted.sigma) > 0

    return observe(lambda: found(worlds[0]), lambda: found(worlds[1]), trials)


def ratio(means: Sequence[np.ndarray], noisy: np.ndarray, sigma: float) -> float:
    """The logarithm of the likelihood ratio of the second mean to the first."""
    without, there = means
    return float(((there - without) * (noisy - (there + without) / 2)).sum()) / sigma**2


def named(divide: Divide = divided, *, left_out: bool) -> str:
    """A release that leaves the canary out, or not, and some of the others, too.

    Where the canary can move others, it does.
    """
    others: Units = {f"u{number}": [(number, EAST)] for number in range(len(OTHERS))}
    canary: Unit = [(len(OTHERS), EAST)] * 20
    for number in itertools.count():
        release = f"toys.task@{number}"
        made_of, away = divide(others, release)
        now, now_away = divide({**others, CANARY: canary}, release)
        moves = [unit for unit in now if unit is not canary] != made_of
        if made_of and away and (canary in now_away) == left_out and moves == (divide in (by_rank, by_contents)):
            return release
    raise AssertionError


@pytest.mark.parametrize(
    ("left_out", "unit"), [(False, MANY_TEXTS), (True, MANY_LABELS)], ids=["made of it", "measured on it"]
)
def test_the_claim_survives_in_whichever_part_a_unit_is(left_out: bool, unit: Unit) -> None:
    found = counts(named(left_out=left_out), unit)
    assert not caught(found, CLAIM), judge(found, CLAIM)


@pytest.mark.lengthy
def test_the_claim_is_nearly_reached_by_a_unit_that_is_measured_on() -> None:
    found = counts(named(left_out=True), ALIKE, trials=5 * TRIALS)
    assert not caught(found, CLAIM), judge(found, CLAIM)
    assert caught(found, NEARLY), judge(found, NEARLY)


def in_both(units: Units, release: str) -> tuple[list[Unit], list[Unit]]:
    """A unit that is left out is also learnt from."""
    return list(units.values()), divided(units, release)[1]


def by_rank(units: Units, release: str) -> tuple[list[Unit], list[Unit]]:
    """The share is exact: it is one of the units that there are, and those of the smallest lots are left out.

    So one unit more moves another from one part to the other.
    """
    lots = sorted(units, key=lambda name: KEYS.lot(KEYS.unit_tag(name), release))
    away = set(lots[: round(0.45 * len(lots))])
    return [unit for name, unit in units.items() if name not in away], [units[name] for name in away]


def by_contents(units: Units, release: str) -> tuple[list[Unit], list[Unit]]:
    """As many are left out as have many texts: who is large decides where the others are."""
    large = sum(len(list(unit)) > 5 for unit in units.values())
    share = min(1.0, 0.1 + 0.8 * large)
    away = {name for name in units if Part(release, share, left_out=True).has(KEYS, KEYS.unit_tag(name))}
    return [unit for name, unit in units.items() if name not in away], [units[name] for name in away]


class Unclamped(RightAnswers):
    """Every text counts as a unit."""

    def sum(self, units):
        return super().sum((int(one < hits), 1) for hits, texts in units for one in range(texts))


class TooQuiet(RightAnswers):
    """The noise of two parts is shared between them, as if a budget were."""

    @property
    def sigma(self):
        return self.noise_multiplier / 2


class Doubled(RightAnswers):
    """Right and wrong answers are counted as two whole numbers: a unit that has both moves each by 1."""

    def sum(self, units):
        both = [(int(hits > 0), int(hits < texts)) for hits, texts in units]
        return np.array([sum(right for right, _ in both), sum(wrong for _, wrong in both)], np.int64) << 40


BUGS: dict[str, tuple[bool, Unit, Divide, type[RightAnswers], int]] = {
    "a unit is in both parts": (True, ALIKE, in_both, RightAnswers, 2 * TRIALS),
    "each text counts": (True, ALIKE, divided, Unclamped, TRIALS),
    "the count has too little noise": (True, ALIKE, divided, TooQuiet, TRIALS),
    "right and wrong both count": (True, MANY_LABELS, divided, Doubled, 2 * TRIALS),
    "the share is one of the units that there are": (False, ALIKE, by_rank, RightAnswers, TRIALS),
    "the share follows what units hold": (False, ALIKE, by_contents, RightAnswers, TRIALS),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_caught(name: str) -> None:
    left_out, unit, divide, kind, trials = BUGS[name]
    found = counts(named(divide, left_out=left_out), unit, divide, kind, trials)
    assert caught(found, CLAIM), judge(found, CLAIM)
