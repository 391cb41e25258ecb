"""The cost of an answer of many tokens, against exhaustive play, explicit pairs, and errors that are easy to make."""

import math

import numpy as np
import pytest
import yaml
from scipy import stats

from accounting.plans.plan import Budget, PlanError, calibrate_plan, load_plan
from accounting.privacy.accountants import compare, get_accountant
from accounting.privacy.calibration import GAUSSIAN, CalibrationError, Grant, calibrate, token_ensemble
from accounting.privacy.events import Event, Sampling, merge
from accounting.privacy.pairs import lower_epsilon
from accounting.privacy.profiles import BoundedRange
from accounting.privacy.token_ensemble import TokenEnsembleProfile
from tests.accounting.privacy.test_adaptive import played

DELTA = 1e-5


def test_one_token_is_a_bounded_range():
    losses = np.linspace(0, 0.5, 11)
    np.testing.assert_allclose(TokenEnsembleProfile(0.4, 1).delta(losses), BoundedRange(0.4).delta(losses), atol=5e-5)


@pytest.mark.parametrize(("width", "tokens", "size"), [(0.7, 2, 401), (0.5, 3, 81)])
def test_the_profile_is_the_value_of_the_best_strategy(width, tokens, size):
    losses = np.linspace(0, 0.9, 6) * tokens * width
    exact = np.array([played(width, 1.0, tokens, math.exp(x), True, size) for x in losses])
    found = TokenEnsembleProfile(width, tokens).delta(losses)
    assert np.all(exact <= found)
    np.testing.assert_allclose(found, exact, rtol=0.03, atol=2e-4)


def randomised_responses(width, tokens, losses):
    """The divergence of ``tokens`` responses with log-ratios of half the range either way, by enumeration."""
    likelier = 1 / (1 + math.exp(-width / 2))
    heads = np.arange(tokens + 1)
    present, absent = (stats.binom.pmf(heads, tokens, p) for p in (likelier, 1 - likelier))
    return np.array([np.maximum(present - math.exp(x) * absent, 0).sum() for x in losses])


@pytest.mark.slow
@pytest.mark.parametrize(("width", "tokens"), [(0.08, 100), (0.2, 40), (0.11, 320)])
def test_randomised_responses_nearly_attain_it(width, tokens):
    losses = np.linspace(0, 6, 25) * TokenEnsembleProfile(width, tokens).mu
    least, found = randomised_responses(width, tokens, losses), TokenEnsembleProfile(width, tokens).delta(losses)
    assert np.all(least <= found)
    assert least[:8] == pytest.approx(found[:8], rel=0.15)


def test_it_composes_where_every_unit_is_drawn():
    always = Sampling("units", 1.0)
    assert merge([Event(TokenEnsembleProfile(0.1, 30), always, 4)]) == [Event(BoundedRange(0.1), always, 120)]
    found = get_accountant("pld").upper([Event(TokenEnsembleProfile(0.1, 30), always, 4)], DELTA)
    assert found == get_accountant("pld").upper([Event(BoundedRange(0.1), always, 120)], DELTA)


# ε by Rényi divergence, 100 tokens, λ = τ = 1, computed elsewhere: one answer, then 100, 1,000 and 10,000 at q = 0.02.
FIGURES = {(100, 1): (0.79, 0.15, 0.50, 1.73), (100, 2): (1.68, 0.34, 1.11, 3.90), (100, 4): (3.64, 1.03, 2.88, 10.3)}


@pytest.mark.slow
@pytest.mark.parametrize("case", FIGURES)
def test_it_costs_what_was_computed_elsewhere(case):
    (slots, clip), figures = case, FIGURES[case]
    mechanism = TokenEnsembleProfile(4 * clip / slots, 100)
    plans = [(1.0, 1), (0.02, 100), (0.02, 1_000), (0.02, 10_000)]
    for (q, answers), figure in zip(plans, figures, strict=True):
        events = [Event(mechanism, Sampling("units", q), answers)]
        assert get_accountant("rdp").upper(events, DELTA) == pytest.approx(figure, rel=0.02, abs=0.006)
        bounds = compare(events, DELTA)
        assert bounds["pld"].upper < bounds["rdp"].upper
        assert bounds["pld"].lower > 0.9 * bounds["pld"].upper
        assert "prv" not in bounds


def test_blocks_cost_more_than_units():
    units, blocks = (
        compare([Event(TokenEnsembleProfile(0.1, 30), Sampling(kind, 0.05), 50)], DELTA)["pld"]
        for kind in ("units", "blocks")
    )
    assert units.upper < blocks.upper
    assert blocks.lower <= blocks.upper


def test_amplifying_each_token_would_promise_too_little():
    """The sample is drawn once: 40 tokens of it reveal more than 40 samples would cost."""
    drawn = Sampling("units", 0.02)
    once = [Event(TokenEnsembleProfile(0.3, 40), drawn, 20)]
    each_token = [Event(BoundedRange(0.3), drawn, 20 * 40)]
    assert lower_epsilon(once, DELTA) > 1.15 * get_accountant("pld").upper(each_token, DELTA)
    assert lower_epsilon(once, DELTA) <= get_accountant("pld").upper(once, DELTA)


def test_charging_realised_tokens_would_promise_too_little():
    assert lower_epsilon([Event(TokenEnsembleProfile(0.2, 40), Sampling("units", 1.0))], DELTA) > (
        get_accountant("pld").upper([Event(TokenEnsembleProfile(0.2, 10), Sampling("units", 1.0))], DELTA)
    )


class TestCalibration:
    def grant(self, tokens=40, largest=0.5, answers=50):
        return Grant(token_ensemble(tokens, largest), Sampling("units", 0.05), answers)

    def test_it_finds_the_range_that_fits(self):
        (event,) = calibrate([self.grant()], 1.0, DELTA)
        assert 0.995 <= get_accountant("pld").upper([event], DELTA) <= 1.0
        assert event.mechanism.tokens == 40

    def test_it_gives_no_more_than_can_be_used(self):
        with pytest.raises(CalibrationError, match="lower epsilon"):
            calibrate([self.grant(largest=0.02)], 8.0, DELTA)
        with pytest.raises(CalibrationError, match="lower epsilon"):  # though the clip would allow more
            calibrate([self.grant(largest=10.0, answers=1)], 24.0, DELTA)

    def test_others_get_what_it_leaves(self):
        token, votes = calibrate([self.grant(largest=0.02), Grant(GAUSSIAN, Sampling("units", 0.05), 50)], 4.0, DELTA)
        assert token.mechanism.epsilon == pytest.approx(0.02)
        assert get_accountant("pld").upper([token, votes], DELTA) >= 3.98


def plan(**mechanism):
    drawn = {"shots": 4, "ensemble": 40, "answers": 50}
    prompt = {"exemplar": "{text} {response}", "query": "{text}"}
    task = {"kind": "generate", "prompt": prompt, **drawn, "mechanism": {"type": "token_ensemble", **mechanism}}
    plan = {"knowledge_base": "kb", "budget": {"epsilon": 0.5, "delta": DELTA}, "tasks": {"task": task}}
    return load_plan(yaml.safe_dump(plan, sort_keys=False))


def test_a_signed_plan_states_what_it_pays_and_keeps_it_when_read_again():
    calibrated = calibrate_plan(plan(tokens=30), 3200)
    noise = calibrated.noise["task"].mechanism
    assert noise.tokens == 30
    assert noise.mu <= 1
    assert "prv" in calibrated.unsupported
    assert type(calibrated).model_validate_json(calibrated.model_dump_json()) == calibrated


def test_mu_may_be_large_for_a_small_sample_if_every_unit_is_surely_drawn():
    written = plan(tokens=30, weight=10)
    assert calibrate_plan(written, 3200).noise["task"].mechanism.mu <= 1
    task = written.tasks["task"].model_copy(update={"answers": 1})
    everybody = written.model_copy(update={"tasks": {"task": task}, "budget": Budget(epsilon=8, delta=DELTA)})
    assert calibrate_plan(everybody, 160).noise["task"].mechanism.mu > 1


def test_what_the_budget_leaves_lets_a_slot_move_a_token_further():
    mechanism = plan(clip=2.0, weight=0.5).tasks["task"].mechanism
    for epsilon, pull, reach in ((0.04, 0.01, 2.0), (0.2, 0.05, 4.0), (9.0, 0.25, 20.0)):
        assert mechanism.pull(epsilon, 40) == pytest.approx(pull)
        assert mechanism.reach(pull, 40) == pytest.approx(reach)


def test_rules_of_answers_are_signed_where_there_are_some():
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    document = plan(banned=[" no way "], json_schema=schema).tasks["task"].mechanism.model_dump_json()
    assert '"banned":["no way"],"json_schema":{"type":"object","properties":{"b":{},"a":{}}}' in document
    assert "banned" not in plan().tasks["task"].mechanism.model_dump_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 0},
        {"tokens": 321},
        {"max_tokens": 10},
        {"clip": 0},
        {"top_k": 128},
        {"gate": 1.5},
        {"banned": [" "]},
        {"regex": ""},
        {"json_schema": {}, "regex": "a"},
    ],
)
def test_a_plan_names_what_is_wrong(wrong):
    with pytest.raises(PlanError, match=next(iter(wrong))):
        plan(**wrong)
