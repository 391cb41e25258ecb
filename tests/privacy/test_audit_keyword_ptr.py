"""Propose-test-release of keywords, attacked step by step and whole, on the worst cases of its proof."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

import opendp.prelude as dp
import pytest

import aggregation.keyword_ptr as keyword_ptr
from accounting.privacy import profiles
from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from aggregation.keyword_ptr import KeywordPtr
from tests.privacy.audit import LOSSES, Claim, Counts, caught, claim, judge, observe

pytestmark = pytest.mark.slow

TRIALS = 1_500
Slots = Sequence[Set[str] | None]


def made_by(mechanism: KeywordPtr) -> Claim:
    return claimed(mechanism.epsilon, mechanism.noise_multiplier, mechanism.delta0)


def claimed(epsilon: float, noise_multiplier: float, delta0: float) -> Claim:
    return claim(profiles.ProposeTestRelease(epsilon, noise_multiplier, delta0))


def counts(mechanism: KeywordPtr, before: Slots, after: Slots, trials: int = TRIALS) -> Counts:
    return observe(lambda: mechanism.release(before), lambda: mechanism.release(after), trials)


# --- The test: one word, whose lead falls by 2 when its slot names another. -------------------------------------------

TESTING = KeywordPtr(epsilon=0.01, noise_multiplier=0.4, delta0=0.1, k_min=1, k_max=1)
LEAD: Slots = [{"a"}] * 3
TEST_WORST = ([*LEAD, {"a"}], [*LEAD, {"b"}])
TIE = ([{"a"}, {"b"}, {"a"}], [{"a"}, {"b"}, {"b"}])


class SmallerTestNoise(KeywordPtr):
    """Noise for a gap of sensitivity 1."""

    @property
    def sigma(self) -> float:
        return self.noise_multiplier


class SafeFromOne(KeywordPtr):
    """Takes a gap of 2 for safe: floors the gap at 1, and requires more than 1."""

    def passes(self, the_gap: int) -> bool:
        return super().passes(the_gap + 1 if the_gap >= 2 else 0)


class NoQuantile(KeywordPtr):
    """Subtracts the distribution function where its quantile is meant, as DP-ICL's algorithm 6 prints it."""

    @property
    def threshold(self) -> float:
        return 2 + 0.5 * (1 + math.erf((1 - self.delta0) / (self.sigma * math.sqrt(2))))


def test_the_claim_survives_where_the_gap_moves_by_two() -> None:
    """A claim for 1.5 times the noise escapes with probability 5e-12."""
    found = counts(TESTING, *TEST_WORST)
    assert not caught(found, made_by(TESTING)), judge(found, made_by(TESTING))
    assert caught(found, claimed(0.01, 0.6, 0.1)), found


@pytest.mark.parametrize("other", [None, {"a", 1}, ["a"]], ids=["removed", "no words", "no set"])
def test_the_claim_survives_removals_and_additions(other) -> None:
    """The attack tries both directions, so it tests adding with removing. A grossly wrong claim escapes with 5e-20."""
    found = counts(TESTING, [*LEAD, {"a"}], [*LEAD, other])
    assert not caught(found, made_by(TESTING)), judge(found, made_by(TESTING))
    assert caught(found, claimed(0.01, 3.0, 0.1)), found


def test_the_claim_survives_a_tie() -> None:
    """Neither gap is safe, and the tops are disjoint: any release gives the slot away. δ₀ pays for that."""
    tested = KeywordPtr(0.01, 1.0, 0.1, 1, 1)
    verdicts = judge(counts(tested, *TIE), made_by(tested), losses=(0.5, 2.0, 10.0))
    assert not any(verdict.caught for verdict in verdicts), verdicts
    assert all(verdict.delta >= 0.1 for verdict in verdicts)


# --- The choice of k: one slot makes one gap 2 smaller and another 2 larger. ------------------------------------------

CHOOSING = KeywordPtr(epsilon=4.0, noise_multiplier=5.0, delta0=0.01, k_min=1, k_max=3)
RANKED: Slots = [{"a", "b", "c"}] * 50 + [{"a"}] * 50  # gaps of 50, 0 and 50: which of the first and the third?
CHOICE_WORST = ([*RANKED, {"a", "d"}], [*RANKED, {"b", "c"}])


class SmallerGumbel(KeywordPtr):
    """Gumbel noise of scale 2/ε, as in the code published with DP-ICL."""

    @property
    def gumbel_scale(self) -> float:
        return 2 / self.epsilon


class ExponentialNoise(KeywordPtr):
    """Exponential noise of the right scale: ε-DP too, but its log-ratios span up to 2ε (permute and flip)."""

    def choose_k(self, ordered: list[int]) -> int:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
        noisy_max = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=self.gumbel_scale)
        return 1 + int(noisy_max([keyword_ptr.gap(ordered, k) for k in (1, 2, 3)]))


def test_the_claim_survives_where_two_gaps_move_apart() -> None:
    """A claim for half of ε escapes with probability 7e-37."""
    found = counts(CHOOSING, *CHOICE_WORST)
    assert not caught(found, made_by(CHOOSING)), judge(found, made_by(CHOOSING))
    assert caught(found, claimed(2.0, 5.0, 0.01)), found


UNSAFE: Slots = [{"b"}] * 3 + [{"a"}] * 2
LEAD_OF_TWO = ([*UNSAFE, {"b"}], [*UNSAFE, {"a"}])
"""A lead of 2 that one slot can turn into a tie, which goes to the other word."""


@pytest.mark.parametrize(
    ("wrong", "parameters", "setting", "losses", "trials"),
    [
        (SmallerTestNoise, (0.01, 0.4, 0.1, 1, 1), TEST_WORST, LOSSES, 750),  # missed with probability 1e-17
        (SafeFromOne, (0.01, 0.8, 0.1, 1, 1), LEAD_OF_TWO, LOSSES, 3_000),  # 2e-21
        (NoQuantile, (0.01, 1.0, 0.01, 1, 1), TIE, LOSSES, 1_000),  # 5e-22
        (SmallerGumbel, (4.0, 5.0, 0.01, 1, 3), CHOICE_WORST, LOSSES, 2_000),  # 2e-12
        (ExponentialNoise, (2.0, 5.0, 0.01, 1, 3), CHOICE_WORST, (0.0, 0.25, 0.5), 3_000),  # 4e-12
    ],
)
def test_a_broken_variant_is_caught(wrong: type[KeywordPtr], parameters, setting, losses, trials) -> None:
    """The claim of the right mechanism is true of it, and false of the wrong one with the same parameters."""
    right = KeywordPtr(*parameters)
    found = counts(wrong(*parameters), *setting, trials=trials)
    assert caught(found, made_by(right), losses), judge(found, made_by(right), losses)
    assert not caught(counts(right, *setting, trials=500), made_by(right), losses)


# --- What is released: a set. -----------------------------------------------------------------------------------------


def by_count_only(items, **order):
    """``sorted``, except for the released words, which stay in the order of their counts."""
    return sorted(items, **order) if order else list(items)


def test_an_ordered_release_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two words stand out, and one slot decides which of them is first."""
    mechanism = KeywordPtr(epsilon=0.5, noise_multiplier=0.5, delta0=0.01, k_min=2, k_max=2)
    both: Slots = [{"a", "b"}] * 12
    setting = ([*both, {"a"}], [*both, {"b"}])
    assert not caught(counts(mechanism, *setting, trials=500), made_by(mechanism))
    monkeypatch.setattr(keyword_ptr, "sorted", by_count_only, raising=False)
    assert caught(counts(mechanism, *setting, trials=500), made_by(mechanism))


# --- Many answers: δ₀ counts for each of them. ------------------------------------------------------------------------

ANSWERS = 20
MANY = KeywordPtr(epsilon=0.05, noise_multiplier=20.0, delta0=0.05, k_min=1, k_max=1)


@pytest.fixture(scope="module")
def ever_released() -> Counts:
    """How often the word that only one of the neighbours can release is among all answers."""
    before, after = TIE

    def ever(slots: Slots) -> bool:
        return any(MANY.release(slots) == ("a",) for _ in range(ANSWERS))

    return observe(lambda: ever(before), lambda: ever(after), trials=300)


def composed(delta0: float) -> float:
    """The δ of all answers at ε = 1."""
    event = Event(profiles.ProposeTestRelease(0.05, 20.0, delta0), Sampling("units", 1.0), ANSWERS)
    return PldAccountant().delta([event], 1.0)


def test_delta0_for_every_answer_survives(ever_released: Counts) -> None:
    assert not caught(ever_released, lambda _: composed(MANY.delta0), losses=(1.0,))


def test_delta0_once_for_all_answers_is_caught(ever_released: Counts) -> None:
    """The code published with DP-ICL does this. It is missed with probability 4e-24."""
    assert caught(ever_released, lambda _: composed(0.0) + MANY.delta0, losses=(1.0,))
