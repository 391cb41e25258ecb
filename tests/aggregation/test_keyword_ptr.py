import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import aggregation.keyword_ptr as module
from aggregation.keyword_ptr import GAP_SENSITIVITY, KeywordPtr, gap, top_words
from aggregation.keywords import count_words
from aggregation.noise import ONE
from tests.aggregation.contract import MechanismContract, PlanningContract
from tests.aggregation.test_keywords import NO_SETS
from tests.aggregation.test_noise import NO_NOISE
from tests.laws import ALPHA, p_value

TRIALS = 4_000
K_MAX = 5

words = st.frozensets(st.sampled_from("abcdefg"))
anything = st.one_of(st.none(), words)
repeated = st.lists(st.tuples(words, st.integers(1, 5)), max_size=4).map(
    lambda runs: [w for w, n in runs for _ in range(n)]
)
TALLY = [{"a", "b", "c"}] * 3 + [{"a", "b"}] * 5 + [{"a"}] * 3 + [None]  # counts 11, 8 and 3


def mechanism(
    epsilon: float = 1.0, noise_multiplier: float = 0.7, delta0: float = 0.05, k_min: int = 1, k_max: int = 3
):
    return KeywordPtr(epsilon, noise_multiplier, delta0, k_min, k_max)


def counts_in_order(contributions) -> list[int]:
    return sorted(count_words(contributions).values(), reverse=True) + [0] * (K_MAX + 1)


def gaps(contributions) -> np.ndarray:
    ordered = counts_in_order(contributions)
    return np.array([gap(ordered, k) for k in range(1, K_MAX + 1)])


def softmax(scores: np.ndarray) -> np.ndarray:
    return special.softmax(np.asarray(scores, dtype=float))


# --- Sensitivity ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=500)
@given(before=anything, after=anything, others=repeated)
def test_a_gap_above_two_fixes_the_top_words(before, after, others) -> None:
    """The proof of the test's first case: equal sets at every k whose gap exceeds 2 on either side."""
    one, other = [*others, before], [*others, after]
    for k in range(1, K_MAX + 1):
        if max(gaps(one)[k - 1], gaps(other)[k - 1]) > GAP_SENSITIVITY:
            assert set(top_words(count_words(one), k)) == set(top_words(count_words(other), k))


def test_equal_counts_are_ordered_by_the_words_whichever_slot_named_them_first() -> None:
    """A guard that is not part of the proof: where words tie, the gap is 0, so δ₀ pays for any set of them."""
    slots = [{"c"}, {"a"}, {"d"}, {"b"}, {"d"}]
    for named in itertools.permutations(slots):
        assert top_words(count_words(named), 3) == ["d", "a", "b"]


# --- Choosing k -------------------------------------------------------------------------------------------------------


def test_k_is_drawn_by_the_exponential_mechanism() -> None:
    """Noise of scale 2/ε, as in the code published with DP-ICL, escapes with less than 1e-100."""
    ordered = [30, 30, 27, 21, 21, 20, 0]  # gaps 3, 6, 0 and 1 at 2 to 5
    chooser = mechanism(epsilon=1.0, k_min=2, k_max=5)
    chosen = np.bincount([chooser.choose_k(ordered) for _ in range(TRIALS)], minlength=6)[2:]
    assert p_value(chosen, TRIALS, softmax(np.array([3, 6, 0, 1]) / 4)) > ALPHA
    assert p_value(chosen, TRIALS, softmax(np.array([3, 6, 0, 1]) / 2)) < ALPHA


# --- The test ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("the_gap", [0, 2, 3, 6])
def test_a_gap_passes_with_the_closed_form_probability(the_gap: int) -> None:
    """Φ((max(2, d) - 2)/2σ - Φ⁻¹(1 - δ₀))."""
    tester = mechanism()
    exact = stats.norm.cdf((max(2, the_gap) - 2) / 1.4 - stats.norm.isf(0.05))
    assert tester.probability_passes(the_gap) == pytest.approx(exact, rel=1e-12)
    passed = sum(tester.passes(the_gap) for _ in range(TRIALS))
    assert p_value(np.array([passed]), TRIALS, exact) > ALPHA


@pytest.mark.parametrize("delta0", [0.1, 1e-3, 1e-9, 1e-15])
def test_an_unsafe_gap_passes_with_probability_delta0(delta0: float) -> None:
    tester = mechanism(delta0=delta0)
    assert tester.probability_passes(2) == pytest.approx(delta0, rel=1e-9)
    assert tester.probability_passes(0) == tester.probability_passes(2)


def test_the_threshold_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an unsafe gap would pass a little more often than δ₀ allows."""
    tester = mechanism()
    for noisy, passes in ((tester.threshold, False), (tester.threshold * (1 + 1e-11), True)):
        monkeypatch.setattr(module, "add_gaussian_noise", lambda *_, noisy=noisy: np.array([math.floor(noisy * ONE)]))
        assert tester.passes(0) == passes


def test_beyond_the_last_word_counts_are_zero() -> None:
    tested = []

    class Noting(KeywordPtr):
        def passes(self, the_gap: int) -> bool:
            tested.append(the_gap)
            return False

    for k in (1, 2):
        assert Noting(1.0, 0.7, 0.05, k, k).release([{"a"}] * 5) is None
    assert tested == [5, 0]


# --- The release ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_outcome_has_its_exact_probability() -> None:
    """Gaps 3, 5 and 3: P(top k) = softmax(ε·gap/4) · P(passes), and the rest falls back."""
    releaser = mechanism()
    likely = softmax(np.array([3, 5, 3]) / 4) * [releaser.probability_passes(d) for d in (3, 5, 3)]
    outcomes = [("a",), ("a", "b"), ("a", "b", "c"), None]
    seen = Counter(releaser.release(TALLY) for _ in range(TRIALS))
    assert set(seen) == set(outcomes)
    law = np.append(likely, 1 - likely.sum())
    assert p_value(np.array([seen[o] for o in outcomes]), TRIALS, law) > ALPHA


def test_clear_winners_are_released_and_nothing_else() -> None:
    contributions = [{"a", "b", f"only-{i}"} for i in range(100)]
    assert mechanism(k_min=1, k_max=30).release(contributions) == ("a", "b")


@pytest.mark.parametrize("contributions", [[], [None] * 5, [set()] * 5, [{"a"}] * 50])
def test_fewer_words_than_k_fall_back(contributions) -> None:
    """All counts beyond the last word are 0, so the gap is 0 and the test passes with probability δ₀ only."""
    releaser = mechanism(k_min=2, k_max=4)
    released = [release for _ in range(2_000) if (release := releaser.release(contributions)) is not None]
    assert p_value(np.array([len(released)]), 2_000, 0.05) > ALPHA
    assert all(len(release) < 2 for release in released)


# --- The contract -----------------------------------------------------------------------------------------------------


class TestKeywordPtr(MechanismContract, PlanningContract):
    mechanism = KeywordPtr(1.0, 0.7, 0.05, 1, 3)
    noisier = KeywordPtr(1.0, 3.0, 0.05, 1, 3)
    wrong = [
        *({"epsilon": epsilon} for epsilon in (0.0, -1.0, math.inf, math.nan)),
        *({"noise_multiplier": z} for z in NO_NOISE),
        *({"delta0": delta0} for delta0 in (0.0, -0.1, 0.5, math.nan)),
        *({"k_min": low, "k_max": high} for low, high in ((0, 3), (4, 3), (-1, -1))),
    ]
    contributions = anything
    others = repeated
    usable = [{"a", "b"}, {"a"}]
    unusable = NO_SETS
    squared = {"removed": 1, "replaced": GAP_SENSITIVITY**2}
    worst = [([{"a"}] * 4, [*[{"a"}] * 3, {"b"}])]
    euclidean = False
    refused = (*PlanningContract.refused, 0.05, 0.04)
    step = 1

    def statistic(self, contributions):
        return gaps(contributions)

    def release(self, mechanism, contributions):
        return mechanism.release(contributions)

    def is_public(self, released):
        return released is None or released == tuple(sorted({*released}))

    def required(self, mechanism, *probability):
        return mechanism.required_gap(*probability)

    def probability(self, mechanism, agreement):
        return mechanism.probability_passes(agreement)
