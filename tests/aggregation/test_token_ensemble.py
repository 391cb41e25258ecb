"""Tokens from the slots' opinions: the law against its formula, and the range against adversarial slots."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import aggregation.token_ensemble as module
from aggregation.exponential_weights import shares
from aggregation.token_ensemble import GRID, TokenEnsemble
from tests.aggregation.contract import MechanismContract

PUBLIC = np.log([0.5, 0.3, 0.15, 0.05])


def law(mechanism, public, opinions, monkeypatch):
    """The probabilities that a draw is made with, as exact as the whole numbers that it compares."""
    found = []

    def record(weights):
        found.append(shares(weights))
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(module, "draw", record)
        mechanism.draw(public, opinions)
    total = sum(found[0])
    return [Decimal(share) / total for share in found[0]]


@pytest.mark.parametrize(("pull", "temperature"), [(0.05, 1.0), (0.4, 0.7), (3.0, 2.0)])
def test_the_law_is_the_formula(pull, temperature, monkeypatch):
    mechanism = TokenEnsemble(pull, 2.0, temperature)
    opinions = [np.array([-1024, 0, 512, 1024]), None, np.array([1, 2, 3, -4])]
    weights = np.exp(PUBLIC / temperature + pull * np.array([-1023, 2, 515, 1020]) / GRID)
    found = law(mechanism, PUBLIC, opinions, monkeypatch)
    np.testing.assert_allclose([float(p) for p in found], weights / weights.sum(), rtol=1e-12)


def test_draws_follow_the_law():
    mechanism = TokenEnsemble(0.5, 2.0, 1.0)
    opinion = np.array([-1024, 0, 512, 1024])
    weights = np.exp(PUBLIC + 0.5 * opinion / GRID)
    counts = Counter(mechanism.draw(PUBLIC, [opinion]) for _ in range(4000))
    assert stats.chisquare([counts[i] for i in range(4)], 4000 * weights / weights.sum()).pvalue > 1e-7


EXTREME = [np.array(signs) * GRID for signs in itertools.product((-1, 0, 1), repeat=3)]


def test_one_slot_moves_log_likelihood_ratios_by_the_range_and_no_more(monkeypatch):
    """All extreme opinions of the slot that changes, beside extreme others: the largest span is four pulls, reached."""
    pull, public = 0.3, np.log([0.6, 0.3, 0.1])
    mechanism, widest = TokenEnsemble(pull, 2.0, 1.0), 0.0
    laws = {}
    for others in (EXTREME[0], EXTREME[-1]):
        for number, opinion in enumerate(EXTREME):
            laws[number] = law(mechanism, public, [others, opinion], monkeypatch)
        for before, after in itertools.permutations(laws.values(), 2):
            ratios = [float(p / q) for p, q in zip(before, after, strict=True)]
            widest = max(widest, math.log(max(ratios)) - math.log(min(ratios)))
            assert min(ratios) <= 1 <= max(ratios)
    assert 0.99 * 4 * pull <= widest <= 4 * pull * (1 + 1e-12)


class Kept(TokenEnsemble):
    """A private top-k: a token that no slot finds likely cannot be drawn."""

    def draw(self, public, opinions):
        likely = np.sum([o for o in opinions if o is not None], axis=0) > -GRID
        return super().draw(np.where(likely, public, -1e4), opinions)


class PerLiveSlot(TokenEnsemble):
    """Divides by the number of slots that answered, as if there were ten."""

    def draw(self, public, opinions):
        live = [opinion for opinion in opinions if opinion is not None]
        return TokenEnsemble(self.pull * 10 / max(len(live), 1), self.clip, self.temperature).draw(public, live)


@pytest.mark.parametrize(
    ("broken", "before", "after"),
    [
        (Kept, [EXTREME[13]] * 2, [EXTREME[13], np.array([-2 * GRID, 0, 0])]),
        (PerLiveSlot, [np.array([GRID, -GRID, 0])], [np.array([GRID, -GRID, 0]), np.array([-GRID, GRID, 0])]),
    ],
)
def test_planted_errors_exceed_the_range(broken, before, after, monkeypatch):
    pull, public = 0.3, np.log([0.6, 0.3, 0.1])

    def span(kind):
        laws = [law(kind(pull, 2.0, 1.0), public, opinions, monkeypatch) for opinions in (before, after)]
        ratios = [float((p / q).ln()) for p, q in zip(*laws, strict=True)]
        return max(ratios) - min(ratios)

    assert span(TokenEnsemble) <= 4 * pull * (1 + 1e-12)
    assert span(broken) > 4.5 * pull


class TestOpinions:
    mechanism = TokenEnsemble(0.1, 2.0, 1.0)

    def test_it_is_the_clipped_difference_less_its_median(self):
        slot = PUBLIC + np.array([0.5, 0.0, 3.5, -9.0])
        moved = np.array([0.5, 0.0, 3.5, -9.0]) - 0.25
        expected = np.rint(np.clip(moved, -2, 2) * 512)
        np.testing.assert_array_equal(self.mechanism.opinion(slot, PUBLIC), expected)

    def test_a_slot_that_agrees_or_is_less_sure_alike_has_none(self):
        assert not self.mechanism.opinion(PUBLIC, PUBLIC).any()
        assert not self.mechanism.opinion(PUBLIC - 7, PUBLIC).any()

    def test_impossible_tokens_are_the_least_likely(self):
        opinion = self.mechanism.opinion(np.array([0.0, -math.inf, -math.inf, -math.inf]), PUBLIC)
        assert opinion[0] == GRID
        assert np.abs(opinion).max() <= GRID


class TestTokenEnsemble(MechanismContract):
    mechanism = TokenEnsemble(0.1, 2.0, 1.0)
    wrong = [{name: value} for name in ("pull", "clip", "temperature") for value in (0.0, -1.0, math.inf, math.nan)]
    contributions = st.none() | arrays(np.float64, 4, elements=st.floats(allow_nan=True, allow_infinity=True))
    usable = [PUBLIC + np.array([0.5, 0.0, 3.5, -9.0]), PUBLIC, np.array([1e308, 1.5e308, 1e308, 1e308])]
    unusable = [
        None,
        np.array([math.nan, 0, 0, 0]),
        np.array([math.inf, 0, 0, 0]),
        np.zeros(3),
        np.zeros((4, 1)),
        ["a", "b", "c", "d"],
    ]
    squared = {"removed": GRID**2, "replaced": (2 * GRID) ** 2}
    worst = [([PUBLIC + 50 * np.eye(4)[0]], [PUBLIC - 50 * np.eye(4)[0]])]
    euclidean = False

    def opinions(self, contributions):
        return [self.mechanism.opinion(slot, PUBLIC) for slot in contributions]

    def statistic(self, contributions):
        """The sum of opinions."""
        heard = [opinion for opinion in self.opinions(contributions) if opinion is not None]
        return sum(heard, np.zeros(4, np.int64))

    def release(self, mechanism, contributions):
        return mechanism.draw(PUBLIC, self.opinions(contributions))

    def is_public(self, released):
        return released in range(4)
