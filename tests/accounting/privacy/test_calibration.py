"""The least noise within a budget."""

import math
from dataclasses import is_dataclass
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accounting.privacy.accountants import get_accountant
from accounting.privacy.bounds import UnsupportedEventsError
from accounting.privacy.calibration import (
    BALL,
    BOUNDED_RANGE,
    GAUSSIAN,
    VOTES,
    CalibrationError,
    Family,
    Grant,
    Variants,
    calibrate,
    gaussian_threshold,
    guided_tokens,
    propose_test_release,
    token_ensemble,
)
from accounting.privacy.events import Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease


def units(q):
    return Sampling("units", q)


FOUR_TASKS = [
    Grant(GAUSSIAN, units(400 / 14732), 1000),
    Grant(VOTES, Sampling("blocks", 0.01), 10_000, share=2.0),
    Grant(BOUNDED_RANGE, units(0.03), 200),
    Grant(propose_test_release(delta0=1e-7), units(0.02), 500, share=0.5),
]


class TestFit:
    @pytest.mark.slow
    @pytest.mark.parametrize("accountant", ["pld", "rdp"])
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-4), (20.0, 1e-5)])
    def test_four_tasks_fill_the_budget_and_do_not_exceed_it(self, accountant, epsilon, delta):
        events = calibrate(FOUR_TASKS, epsilon, delta, accountant)
        assert [type(e.mechanism) for e in events] == [Gaussian, Gaussian, BoundedRange, ProposeTestRelease]
        assert [(e.sampling, e.count) for e in events] == [(g.sampling, g.answers) for g in FOUR_TASKS]
        assert 0.995 * epsilon <= get_accountant(accountant).bounds(events, delta).upper <= epsilon
        if accountant == "pld":
            assert PldAccountant(3).bounds(events, delta).upper <= epsilon

    def test_prv_fills_it_too(self):
        events = calibrate([Grant(GAUSSIAN, units(0.05), 50)], 2.0, 1e-5, "prv")
        assert 0.995 * 2.0 <= get_accountant("prv").bounds(events, 1e-5).upper <= 2.0

    @pytest.mark.slow
    @given(
        q=st.floats(1e-5, 1.0),
        answers=st.integers(1, 100_000),
        family=st.sampled_from([GAUSSIAN, VOTES, BALL, BOUNDED_RANGE, propose_test_release(1e-15)]),
        kind=st.sampled_from(["units", "blocks"]),
        epsilon=st.floats(0.01, 30),
        log_delta=st.floats(-9, -3),
    )
    @settings(max_examples=10, deadline=None)
    def test_any_single_task(self, q, answers, family, kind, epsilon, log_delta):
        assume(-math.expm1(answers * math.log1p(-min(q, 0.999))) > 3 * 10**log_delta)
        grant = Grant(family, Sampling(kind, q), answers)
        events = calibrate([grant], epsilon, 10**log_delta)
        assert 0.995 * epsilon <= PldAccountant().bounds(events, 10**log_delta).upper <= epsilon

    def test_the_noise_of_one_gaussian_is_the_exact_one(self):
        (event,) = calibrate([Grant(GAUSSIAN, units(1.0), 1)], 1.0, 1e-5)
        assert event.mechanism.delta(1.0) == pytest.approx(1e-5, rel=0.03)
        assert event.mechanism.delta(1.0) <= 1e-5

    def test_equal_shares_have_equal_central_limit_costs(self):
        """The cost is answers q² (e^(1/z²) - 1), whatever q and the number of answers."""
        grants = [Grant(GAUSSIAN, units(q), answers) for q, answers in ((0.01, 1000), (0.2, 30), (0.05, 400))]
        costs = [
            e.count * e.sampling.probability**2 * math.expm1(e.mechanism.noise_multiplier**-2)
            for e in calibrate(grants, 2.0, 1e-5)
        ]
        assert costs == pytest.approx([costs[0]] * 3)


class TestFamilies:
    """A cost is the logarithm of the second moment of the worst likelihood ratio."""

    @pytest.mark.parametrize("cost", [1e-8, 0.3, 4.0])
    def test_gaussian(self, cost):
        assert math.exp(1 / GAUSSIAN.mechanism(cost).noise_multiplier ** 2) == pytest.approx(math.exp(cost))

    @pytest.mark.parametrize("variance", [1e-3, 0.3, 20.0])
    @pytest.mark.parametrize(("family", "scale", "cosine"), [(VOTES, math.sqrt(2), 0), (BALL, 2, -1)])
    def test_noise_by_blocks(self, family, scale, cosine, variance):
        """The variance of the difference of two likelihood ratios, at a right angle or opposite, without the noise."""
        mechanism = Grant(family, Sampling("blocks", 0.5), 8).event(8 * 0.5**2 * variance).mechanism
        mu = 1 / (scale * mechanism.noise_multiplier)
        assert 2 * math.exp(mu**2) - 2 * math.exp(cosine * mu**2) == pytest.approx(variance)

    @pytest.mark.parametrize("cost", [1e-8, 0.3, 4.0])
    def test_bounded_range(self, cost):
        width = BOUNDED_RANGE.mechanism(cost).epsilon
        # (e^t - 1)(1 - e^(t-ε)) is the variance of a worst pair's ratio; its largest is at e^t = (e^ε + 1)/2.
        t = math.log((math.exp(width) + 1) / 2)
        assert math.expm1(t) * -math.expm1(t - width) == pytest.approx(math.expm1(cost))

    def test_propose_test_release_splits_it(self):
        mechanism = propose_test_release(1e-6, choice_share=0.25).mechanism(0.8)
        assert mechanism.delta0 == 1e-6
        assert mechanism.noise_multiplier == pytest.approx(1 / math.sqrt(0.6))
        assert 2 * math.log(math.cosh(mechanism.epsilon / 2)) == pytest.approx(0.2)


PTR = propose_test_release(delta0=1e-7, choice_share=0.3)
EVERY_FAMILY = [
    GAUSSIAN,
    VOTES,
    BALL,
    BOUNDED_RANGE,
    PTR,
    gaussian_threshold(1e-7),
    token_ensemble(20, math.inf, sampled=False),
    guided_tokens(PTR, token_ensemble(20, math.inf, sampled=False), 0.2),
]


FOUR_SMALL_TASKS = [
    Grant(GAUSSIAN, units(0.03), 300),
    Grant(VOTES, Sampling("blocks", 0.01), 2000, share=2.0),
    Grant(BOUNDED_RANGE, units(0.03), 20),
    Grant(propose_test_release(delta0=1e-7), units(0.02), 50, share=0.5),
]


def numbers(mechanism):
    """The parameters of a mechanism, and of those that it consists of."""
    return [
        number
        for value in vars(mechanism).values()
        for number in (numbers(value) if is_dataclass(value) else [value])
        if isinstance(number, float)
    ]


class TestVariants:
    @pytest.mark.parametrize("kind", ["units", "blocks"])
    @pytest.mark.parametrize("budget", [1e-3, 0.8, 7.0])
    def test_the_cost_of_a_plan_follows_from_its_noise(self, kind, budget):
        capped = Grant(token_ensemble(20, 1e-6), units(0.5), 100)  # its noise does not depend on the cost
        for family in EVERY_FAMILY:
            grants = [capped, Grant(family, Sampling(kind, 0.03), 1000, share=2.5)]
            events = [grant.event(budget**2 * grant.share / 3.5) for grant in grants]
            found = Variants(grants, events, 2.0, 1e-5, "rdp").roughly(grants)
            assert found[0] == events[0]
            noise, expected = (numbers(each[1].mechanism) for each in (found, events))
            assert noise == pytest.approx(expected, rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize(("accountant", "epsilon"), [("pld", 0.3), ("pld", 8.0), ("rdp", 2.0)])
    def test_a_variant_fills_the_budget_and_hardly_differs_from_its_rough_noise(self, accountant, epsilon):
        grants, delta = FOUR_SMALL_TASKS, 1e-5
        variants = Variants(grants, calibrate(grants, epsilon, delta, accountant), epsilon, delta, accountant)
        for changed in (
            [Grant(GAUSSIAN, units(0.06), 300), *grants[1:]],
            [*grants, Grant(GAUSSIAN, units(1.0), 1, share=0.25)],
        ):
            found = variants.calibrate(changed)
            assert 0.995 * epsilon <= get_accountant(accountant).upper(found, delta) <= 1.0005 * epsilon
            noise, rough, full = (
                [event.mechanism.noise_multiplier for event in events if isinstance(event.mechanism, Gaussian)]
                for events in (found, variants.roughly(changed), calibrate(changed, epsilon, delta, accountant))
            )
            assert noise == pytest.approx(full, rel=3e-3)
            assert noise == pytest.approx(rough, rel=0.05)

    def test_a_variant_that_cannot_be_kept_is_refused(self):
        grants = [Grant(GAUSSIAN, units(0.05), 50)]
        variants = Variants(grants, calibrate(grants, 2.0, 1e-5), 2.0, 1e-5)
        lost = Grant(propose_test_release(1e-6), units(0.1), 1000)
        for noise in (variants.roughly, variants.calibrate):
            with pytest.raises(CalibrationError, match="delta0 counts once per answer"):
                noise([*grants, lost])


class TestTargetsThatCannotBeMet:
    def test_delta0_of_all_answers_exceeds_delta(self):
        grant = Grant(propose_test_release(delta0=0.99 * 5e-5 * 14732 / 400), units(400 / 14732), 100)
        with pytest.raises(CalibrationError, match=r"0\.0049.*5e-05"):
            calibrate([grant], 3.0, 5e-5)

    def test_a_delta_that_would_allow_publishing_a_unit(self):
        """Two answers that draw a unit with probability 5.6e-5 each: above that delta no noise would be needed."""
        with pytest.raises(CalibrationError, match="delta"):
            calibrate([Grant(GAUSSIAN, units(5.6e-5), 2)], 3.0, 1.5e-4)

    def test_an_epsilon_too_small_for_the_accountant(self):
        with pytest.raises(CalibrationError, match=r"0\.0001"):
            calibrate([Grant(GAUSSIAN, units(0.5), 10)], 1e-4, 1e-9, "rdp")

    def test_prv_refuses_a_tiny_delta_and_other_mechanisms(self):
        with pytest.raises(UnsupportedEventsError):
            calibrate([Grant(GAUSSIAN, units(0.1), 10)], 1.0, 1e-12, "prv")
        with pytest.raises(UnsupportedEventsError, match="BoundedRange"):
            calibrate([Grant(BOUNDED_RANGE, units(0.1), 10)], 1.0, 1e-6, "prv")

    @pytest.mark.parametrize(
        ("call", "wrong", "named"),
        [
            (partial(propose_test_release, 1e-6), [(0.0,), (1.0,), (-0.5,)], "choice_share"),
            (partial(Grant, GAUSSIAN, units(0.1)), [(0,), (-3,), (1.5,), (True,)], "answers"),
            (partial(Grant, GAUSSIAN, units(0.1), 1), [(0.0,)], "share"),
            (partial(calibrate, FOUR_TASKS), [(0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)], "must be"),
            (calibrate, [([], 1.0, 1e-5)], "grant"),
            (calibrate, [(FOUR_TASKS, 1.0, 1e-5, "moments")], "choose"),
        ],
    )
    def test_what_is_out_of_range_is_named(self, call, wrong, named):
        for arguments in wrong:
            with pytest.raises(ValueError, match=named):
                call(*arguments)


@pytest.mark.parametrize("family", [GAUSSIAN, BOUNDED_RANGE, propose_test_release(1e-6)])
def test_the_largest_budget_a_plan_may_have_is_met(family: Family) -> None:
    (event,) = calibrate([Grant(family, Sampling("units", 1.0), 3)], 100.0, 1e-4)
    assert 99.5 < get_accountant("pld").bounds([event], 1e-4).upper <= 100
