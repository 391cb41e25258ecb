"""Sentences that many slots share, attacked where the proof's bounds are attained, with every way to get it wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest

import aggregation.common_sentences as common_sentences
from accounting.privacy.profiles import Gaussian, GaussianThreshold
from aggregation.common_sentences import CommonSentences
from aggregation.noise import ONE, add_gaussian_noise, from_fixed_point
from tests.privacy.audit import Claim, Counts, caught, claim, judge, observe

pytestmark = pytest.mark.slow

Slots = Sequence[Sequence[str] | None]


def claimed(noise_multiplier: float, delta0: float) -> Claim:
    return claim(GaussianThreshold(Gaussian(noise_multiplier), delta0))


def made_by(mechanism: CommonSentences) -> Claim:
    return claimed(mechanism.noise_multiplier, mechanism.delta0)


# --- Sentences of other slots, too: two counts move, one up and one down, or 2m. --------------------------------------

COUNTED = CommonSentences(noise_multiplier=0.5, delta0=0.001, sentences=1)
OTHERS: Slots = [["a"]] * 7 + [["b"]] * 7
TURNS = ([*OTHERS, ["a"]], [*OTHERS, ["b"]])
LEAVES = ([*OTHERS, ["a"]], [*OTHERS, None])


def lead(released: dict[str, float]) -> int:
    """By how much a's noisy count leads b's, in half slots, cut off."""
    return max(-3, min(3, round(2 * (released.get("a", 0.0) - released.get("b", 0.0)))))


def leads(mechanism: CommonSentences, before: Slots, after: Slots, trials: int) -> Counts:
    return observe(lambda: lead(mechanism.release(before)), lambda: lead(mechanism.release(after)), trials)


def test_an_attack_comes_near_to_the_claim_and_does_not_pass_it() -> None:
    """A claim for 1.3 times the noise escapes with probability 1e-17."""
    found = leads(COUNTED, *TURNS, trials=20_000)
    verdicts = judge(found, made_by(COUNTED), losses=(2.0,))
    assert not verdicts[0].caught, verdicts
    assert verdicts[0].lower_bound >= 0.8 * 2.0, verdicts
    assert caught(found, claimed(0.65, 0.001)), found


def test_a_removal_costs_less() -> None:
    found = leads(COUNTED, *LEAVES, trials=2_000)
    assert not caught(found, made_by(COUNTED)), judge(found, made_by(COUNTED))
    assert caught(found, claimed(3.0, 0.001)), found


# --- Sentences of one slot alone: that they leave at all gives it away. -----------------------------------------------

UNKNOWN = CommonSentences(noise_multiplier=2.0, delta0=0.1, sentences=3)
ALONE = ([["a"], ["x", "y", "z"]], [["a"], ["u", "v", "w"]])
SURE = (1.0, 2.0)


def own(released: dict[str, float]) -> tuple[bool, bool]:
    return not released.keys().isdisjoint("xyzstr"), not released.keys().isdisjoint("uvw")


def owns(mechanism: CommonSentences, before: Slots, after: Slots, trials: int) -> Counts:
    return observe(lambda: own(mechanism.release(before)), lambda: own(mechanism.release(after)), trials)


def test_what_one_slot_alone_contributes_leaves_no_more_often_than_delta0() -> None:
    """It leaves as often as that: a claim for 0.07 escapes with probability 1e-11."""
    found = owns(UNKNOWN, *ALONE, trials=20_000)
    assert not caught(found, made_by(UNKNOWN), SURE), judge(found, made_by(UNKNOWN), SURE)
    rate = found[0][True, False] / 20_000
    assert rate == pytest.approx(0.1, abs=6 * math.sqrt(0.1 * 0.9 / 20_000))
    assert caught(found, claimed(2.0, 0.07), SURE), found


# --- Broken variants. -------------------------------------------------------------------------------------------------


class RootOfM(CommonSentences):
    """A sensitivity of √m: as if a slot could only be removed."""

    @property
    def sigma(self) -> float:
        return math.sqrt(self.sentences) * self.noise_multiplier


class NotOne(CommonSentences):
    """Forgets that the count of a slot's own sentence is 1, and not 0."""

    @property
    def threshold(self) -> float:
        return super().threshold - 1


class OneOfThem(CommonSentences):
    """δ₀ for each of m sentences."""

    @property
    def threshold(self) -> float:
        return CommonSentences(self.noise_multiplier * math.sqrt(self.sentences), self.delta0, 1).threshold


class TwiceAsMany(CommonSentences):
    """A slot contributes up to 2m sentences."""

    def count(self, contributions) -> Counter[str]:
        return Counter(
            text for given in contributions for text in list(dict.fromkeys(given or ()))[: 2 * self.sentences]
        )


class FoldedByOthers(CommonSentences):
    """Sentences are counted without case, and leave as the first slot spelt them."""

    def count(self, contributions) -> Counter[str]:
        spelt: dict[str, str] = {}
        return Counter(spelt.setdefault(text.casefold(), text) for given in contributions for text in given or ())


class SureOfOne(CommonSentences):
    """A count of one gets no noise, as it would hardly ever leave."""

    def release(self, contributions) -> dict[str, float]:
        counts = self.count(contributions)
        return super().release([given for given in contributions if given and max(counts[text] for text in given) > 1])


class TrueThreshold(CommonSentences):
    """The counts are compared with the threshold before noise is added."""

    def release(self, contributions) -> dict[str, float]:
        counts = {text: count for text, count in self.count(contributions).items() if count > self.threshold}
        values = common_sentences.np.array([*counts.values()], dtype=common_sentences.np.int64) * ONE
        return dict(zip(counts, from_fixed_point(add_gaussian_noise(values, self.sigma)), strict=True))


EDGE = CommonSentences(0.5, 0.05, 1).threshold
SIX = ([["a"], ["a"], list("xyzstr")], [["a"], ["a"], None])
SPELT = ([["X"], *[["x"]] * 9], [None, *[["x"]] * 9])
PAIR = ([["x"], ["x"]], [["x"], None])
AT_THE_EDGE = ([["x"]] * math.ceil(EDGE), [*[["x"]] * (math.ceil(EDGE) - 1), None])


def spelling(released: dict[str, float]) -> tuple[str, ...]:
    return tuple(sorted(released.keys() & {"x", "X"}))


@pytest.mark.parametrize(
    ("wrong", "parameters", "setting", "outcome", "trials"),
    [
        (RootOfM, (0.5, 0.001, 1), TURNS, lead, 4_000),  # missed with probability 1e-20
        (NotOne, (2.0, 0.1, 3), ALONE, own, 12_000),  # 1e-13
        (OneOfThem, (2.0, 0.1, 3), ALONE, own, 4_000),  # 1e-30
        (TwiceAsMany, (2.0, 0.1, 3), SIX, own, 4_000),  # 1e-13
        (FoldedByOthers, (0.5, 0.05, 1), SPELT, spelling, 500),  # 1e-50
        (SureOfOne, (1.0, 0.05, 1), PAIR, spelling, 4_000),  # 1e-13
        (TrueThreshold, (0.5, 0.05, 1), AT_THE_EDGE, spelling, 500),  # 1e-50
    ],
)
def test_a_broken_variant_is_caught(wrong: type[CommonSentences], parameters, setting, outcome, trials) -> None:
    """The claim of the right mechanism is true of it, and false of the wrong one with the same parameters."""
    before, after = setting
    losses = SURE if outcome is not lead else (0.0, 1.0, 2.0)

    def counts(mechanism: CommonSentences) -> Counts:
        return observe(lambda: outcome(mechanism.release(before)), lambda: outcome(mechanism.release(after)), trials)

    right = CommonSentences(*parameters)
    found = counts(wrong(*parameters))
    assert caught(found, made_by(right), losses), judge(found, made_by(right), losses)
    assert not caught(counts(right), made_by(right), losses)
