import math
from collections import Counter

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import strategies as st
from scipy import stats

import aggregation.common_sentences as module
from aggregation.common_sentences import CommonSentences
from aggregation.noise import ONE
from tests.aggregation.contract import MechanismContract, PlanningContract
from tests.aggregation.test_noise import NO_NOISE
from tests.laws import ALPHA, p_value

TRIALS = 4_000
MOST = 2

said = st.lists(st.sampled_from("abcdef"), max_size=4)
anything = st.one_of(st.none(), said)


@pytest.mark.parametrize(("slots", "others"), [(1, 3), (4, 0), (7, 2)])
def test_a_sentence_leaves_with_the_closed_form_probability(slots: int, others: int) -> None:
    """Φ((c - τ)/σ), with noise of its own for each sentence."""
    releaser = CommonSentences(0.7, 0.1, MOST)
    contributions = [["a", "b"]] * slots + [["c"]] * others
    released = Counter(tuple(sorted(releaser.release(contributions).keys() & {"a", "b"})) for _ in range(TRIALS))
    one = stats.norm.sf((releaser.threshold - slots) / (0.7 * 2))
    assert releaser.probability_released(slots) == pytest.approx(one, rel=1e-9)
    outcomes = [(), ("a",), ("b",), ("a", "b")]
    law = np.array([(1 - one) ** 2, one * (1 - one), one * (1 - one), one**2])
    assert p_value(np.array([released[outcome] for outcome in outcomes]), TRIALS, law) > ALPHA


@pytest.mark.parametrize("delta0", [0.1, 1e-3, 1e-9, 1e-15])
@pytest.mark.parametrize("sentences", [1, 2, 5])
def test_any_of_a_slots_own_sentences_leaves_with_probability_delta0(delta0: float, sentences: int) -> None:
    alone = CommonSentences(1.3, delta0, sentences).probability_released(1)
    assert -math.expm1(sentences * math.log1p(-alone)) == pytest.approx(delta0, rel=1e-6)


@pytest.mark.parametrize(
    ("z", "delta0", "sentences"), [(1.45, 1e-6, 2), (3.0, 1e-7, 1), (0.8, 1e-4, 5), (2.0, 1e-9, 3)]
)
def test_opendp_finds_the_same_costs(z: float, delta0: float, sentences: int) -> None:
    """Its threshold for at most m sentences that only one side has, and its noise for 2m counts that differ.

    It asks for one number of both, and charges 2m for either; that each side has at most m is not known to it.
    """
    made = CommonSentences(z, delta0, sentences)
    counts = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=float, nan=False))
    space = counts, dp.l02inf_distance(dp.absolute_distance(T=float))
    theirs = dp.m.make_gaussian_threshold(*space, scale=made.sigma, threshold=made.threshold)
    (_, delta), (rho, _) = (theirs.map((most, math.sqrt(most), 1.0)) for most in (sentences, 2 * sentences))
    assert delta == pytest.approx(delta0, rel=1e-4)
    assert rho == pytest.approx(1 / (2 * z * z), rel=1e-9)


def test_noisy_counts_leave_too_the_largest_first() -> None:
    releaser = CommonSentences(0.05, 0.01, 3)
    released = releaser.release([["z", "a", "b"]] * 40 + [["z"]] * 20 + [["b"]] * 9 + [["rare"]])
    assert list(released) == ["z", "b", "a"]
    assert released == pytest.approx({"z": 60, "b": 49, "a": 40}, abs=2)
    assert all(count != round(count) for count in released.values())


def test_the_threshold_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a slot's own sentence would leave a little more often than δ₀ allows."""
    releaser = CommonSentences(0.7, 0.05, 1)
    for noisy, leaves in ((releaser.threshold, False), (releaser.threshold * (1 + 1e-11), True)):
        monkeypatch.setattr(module, "add_gaussian_noise", lambda *_, noisy=noisy: np.array([math.floor(noisy * ONE)]))
        assert bool(releaser.release([["a"]])) == leaves


@pytest.mark.parametrize("contributions", [[], [None] * 6, [["a"]] * 6, [["a", "b"], ["c", "d"], *[["e", "f"]] * 4]])
def test_noise_is_drawn_for_as_many_sentences_as_there_can_be(contributions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time would show how many different ones there are."""
    drawn = []

    def noting(values, sigma):
        drawn.append(values.size)
        return values

    monkeypatch.setattr(module, "add_gaussian_noise", noting)
    CommonSentences(0.7, 0.05, MOST).release(contributions)
    assert drawn == [MOST * len(contributions)]


def test_a_slot_counts_once_for_a_sentence_and_for_the_first_m() -> None:
    counter = CommonSentences(1.0, 0.05, MOST)
    assert counter.count([["a", "a", "b", "c"], ("b",), [], None]) == {"a": 1, "b": 2}


class TestCommonSentences(MechanismContract, PlanningContract):
    mechanism = CommonSentences(0.7, 0.05, MOST)
    noisier = CommonSentences(3.0, 0.05, MOST)
    wrong = [
        *({"noise_multiplier": z} for z in NO_NOISE),
        *({"delta0": delta0} for delta0 in (0.0, -0.1, 0.5, math.nan)),
        *({"sentences": m} for m in (0, -1)),
    ]
    contributions = anything
    usable = [["a", "b"], ["a"]]
    unusable = ["ab", b"ab", 3, None, {"a": 1}, {"a"}, ["a", 1], [["a"]], [b"a"], object()]
    squared = {"removed": MOST, "replaced": 2 * MOST}
    worst = [([["a", "b"]] * 3, [*[["a", "b"]] * 2, ["c", "d"]])]
    step = 1

    def statistic(self, contributions):
        counts = self.mechanism.count(contributions)
        return np.array([counts[one] for one in "abcdef"])

    def release(self, mechanism, contributions):
        return mechanism.release(contributions)

    def is_public(self, released):
        return list(released) == sorted(released, key=lambda one: (-released[one], one))

    def required(self, mechanism, *probability):
        return mechanism.required_slots(*probability)

    def probability(self, mechanism, agreement):
        return mechanism.probability_released(agreement)
