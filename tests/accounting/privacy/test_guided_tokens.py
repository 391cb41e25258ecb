"""The cost of words and tokens of one sample, against the composition of both, an explicit mechanism, and errors."""

import itertools
import math

import numpy as np
import pytest
from scipy import special

from accounting.privacy.accountants import compare, get_accountant
from accounting.privacy.calibration import (
    Grant,
    calibrate,
    guided_tokens,
    propose_test_release,
    token_ensemble,
)
from accounting.privacy.events import Event, Sampling
from accounting.privacy.guided_tokens import GuidedTokens
from accounting.privacy.pairs import lower_epsilon
from accounting.privacy.profiles import ProposeTestRelease
from accounting.privacy.token_ensemble import TokenEnsembleProfile
from aggregation.keyword_ptr import KeywordPtr

DELTA = 1e-5
ALWAYS = Sampling("units", 1.0)
WORDS, TOKENS = ProposeTestRelease(0.4, 4.0, 1e-7), TokenEnsembleProfile(0.1, 40)


def guided(words=WORDS, tokens=TOKENS):
    return GuidedTokens(tokens.epsilon, tokens.tokens, words)


def test_it_is_what_either_release_costs_where_the_other_costs_nothing():
    losses = np.linspace(-1, 2, 13)
    for answer, alone in (
        (guided(ProposeTestRelease(1e-5, 1e5, 0.0)), TOKENS),
        (guided(tokens=TokenEnsembleProfile(1e-6, 5)), WORDS),
    ):
        assert np.all(answer.delta(losses) >= alone.delta(losses) * (1 - 1e-12))
        np.testing.assert_allclose(answer.delta(losses), alone.delta(losses), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 2e-6])
def test_it_is_the_composition_of_both_where_every_unit_is_drawn(delta):
    pld = get_accountant("pld")
    together = pld.upper([Event(guided(), ALWAYS)], delta)
    assert together == pytest.approx(pld.upper([Event(WORDS, ALWAYS), Event(TOKENS, ALWAYS)], delta), rel=3e-4)


def test_a_test_that_passes_wrongly_is_lost_once_an_answer():
    answer = guided()
    assert answer.certain_loss == pytest.approx(WORDS.delta0, rel=1e-6)
    assert answer.delta(50.0) == answer.certain_loss
    assert answer.delta(3.0) < 1.1 * WORDS.delta0


@pytest.mark.parametrize("delta0", [0.0, 1e-12, 1e-4, 0.1])
def test_its_grid_ends_where_only_certain_loss_is_left(delta0):
    """This holds for any delta0: rounding errors are not taken for a loss of the words."""
    answer = guided(ProposeTestRelease(0.4, 4.0, delta0))
    largest = 0.4 + min(answer.words.test.crossover, 5.0) + TOKENS.epsilon * TOKENS.tokens
    assert answer.delta(largest + 1) == pytest.approx(answer.certain_loss, abs=1e-18)
    assert answer.certain_loss == pytest.approx(delta0, rel=1e-9, abs=1e-18)


def law(scores, gaps, sets, heads, tokens):
    """Every outcome's probability: the words or none, and which of two tokens was drawn each time."""
    mechanism = KeywordPtr(WORDS.epsilon, WORDS.noise_multiplier, WORDS.delta0, 1, 2)
    chosen = special.softmax(np.array(scores) / mechanism.gumbel_scale)
    passes = [mechanism.probability_passes(gap) for gap in gaps]
    words: dict[object, float] = {}
    for probability, passing, which in zip(chosen, passes, sets, strict=True):
        words[which] = words.get(which, 0.0) + probability * passing
        words["none"] = words.get("none", 0.0) + probability * (1 - passing)
    return {
        (which, said): probability * math.prod(heads(which, said[:at])[token] for at, token in enumerate(said))
        for which, probability in words.items()
        for said in itertools.product(range(2), repeat=tokens)
    }


def test_a_mechanism_written_out_costs_no_more_and_nearly_as_much():
    """Two neighbours: a unit makes its word lead by more or less, and tips tokens depending on what was released."""
    width, tokens = 0.5, 6
    profile, losses = guided(tokens=TokenEnsembleProfile(width, tokens)), np.linspace(0, 3, 13)
    likelier = special.expit(width / 2)

    def tipped(sign):
        def heads(which, said):
            first = likelier if (sum(said) + (which == "none") + sign) % 2 else 1 - likelier
            return first, 1 - first

        return heads

    best = np.zeros(losses.size)
    for gaps in ([(4, 2), (6, 4)], [(3, 1), (5, 3)], [(8, 6), (9, 7)], [(1, 0), (1, 0)]):
        one, other = ([pair[side] for pair in gaps] for side in (0, 1))
        p = law(one, one, ["a", "ab"], tipped(0), tokens)
        r = law(other, other, ["a", "ab"], tipped(1), tokens)
        for x, y in ((p, r), (r, p)):
            found = [sum(max(x[key] - math.exp(loss) * y[key], 0.0) for key in x) for loss in losses]
            best = np.maximum(best, found)
    found = profile.delta(losses)
    assert np.all(best <= found)
    assert np.all(best[:4] > 0.5 * found[:4])


@pytest.mark.parametrize("kind", ["units", "blocks"])
@pytest.mark.parametrize(("q", "answers"), [(0.02, 100), (1.0, 3)])
def test_accountants_agree(kind, q, answers):
    bounds = compare([Event(guided(ProposeTestRelease(0.4, 4.0, 1e-8)), Sampling(kind, q), answers)], DELTA)
    assert bounds["pld"].lower <= bounds["pld"].upper < bounds["rdp"].upper < 1.25 * bounds["pld"].upper
    assert bounds["pld"].lower > 0.9 * bounds["pld"].upper
    assert "prv" not in bounds


@pytest.mark.slow
def test_amplifying_the_two_releases_apart_would_promise_too_little():
    """One sample serves both: a reader who learns from the words that a unit was drawn learns more from the tokens."""
    drawn = Sampling("units", 0.02)
    words, tokens = ProposeTestRelease(0.8, 1.2, 1e-9), TokenEnsembleProfile(0.25, 40)
    once = [Event(guided(words, tokens), drawn, 20)]
    apart = [Event(words, drawn, 20), Event(tokens, drawn, 20)]
    assert lower_epsilon(once, DELTA) > 1.05 * get_accountant("pld").upper(apart, DELTA)
    assert lower_epsilon(once, DELTA) <= get_accountant("pld").upper(once, DELTA)


@pytest.mark.slow
def test_calibration_splits_the_budget_by_the_share():
    def grant(share, largest=0.5):
        family = guided_tokens(propose_test_release(1e-8), token_ensemble(40, largest), share)
        return Grant(family, Sampling("units", 0.05), 50)

    events = [calibrate([grant(share)], 1.0, DELTA)[0] for share in (0.2, 0.6)]
    for event in events:
        assert 0.995 <= get_accountant("pld").upper([event], DELTA) <= 1.0
    few, many = (event.mechanism for event in events)
    assert many.words.noise_multiplier < few.words.noise_multiplier
    assert many.words.epsilon > few.words.epsilon
    assert many.epsilon < few.epsilon
    (capped,) = calibrate([grant(0.2, largest=0.05)], 2.0, DELTA)  # words get what tokens may not use
    assert capped.mechanism.epsilon == pytest.approx(0.05)
    assert get_accountant("pld").upper([capped], DELTA) >= 1.99
