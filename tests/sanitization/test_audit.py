"""The auditor: the definition, closed forms, and mechanisms broken on purpose."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sanitization.audit import BrokenChannelError, RefusedChannelError, admit, audit
from sanitization.published.santext import SanText
from tests.sanitization.made_up import Rows, random_rows, vocabulary


def by_definition(law: np.ndarray) -> float:
    """The least ε with P(S|x) ≤ e^ε·P(S|x′) for *every set* S of outputs and all x, x′."""
    worst = 0.0
    for size in range(1, law.shape[1] + 1):
        for chosen in combinations(range(law.shape[1]), size):
            chance = law[:, chosen].sum(axis=1)
            if chance.max() > 0:
                worst = max(worst, math.inf if chance.min() == 0 else math.log(chance.max() / chance.min()))
    return worst


@pytest.mark.parametrize("seed", range(20))
def test_the_definition_over_all_sets_of_outputs(seed: int) -> None:
    channel = random_rows(5, 6, seed, zeros=0.3 * (seed % 2))
    assert audit(channel).epsilon == pytest.approx(by_definition(channel.law), rel=1e-12)


def test_an_output_that_rules_an_input_out() -> None:
    found = audit(Rows(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])))
    assert found.epsilon == math.inf
    assert found.zero_outputs == 1, "the third never comes out, and tells nothing"
    assert (found.worst_output, found.worst_pair) == ("y1", ("x0", "x1"))
    assert found.per_output == (0, 0, pytest.approx(math.log(2)), math.inf, math.inf)


def test_classes_are_public() -> None:
    law = np.array([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
    found = audit(Rows(law), classes=["word", "word", "kept"])
    assert found.epsilon == math.inf
    assert found.by_class == {"word": pytest.approx(math.log(1.5)), "kept": 0}


def test_blocks_make_no_difference() -> None:
    channel = random_rows(1300, 7, 1)
    ratios = np.log(channel.law.max(axis=0) / channel.law.min(axis=0))
    found = audit(channel)
    assert (found.complete, found.zero_outputs) == (True, 0)
    assert found.epsilon == pytest.approx(ratios.max(), rel=1e-12)
    most, least = (channel.inputs.index(name) for name in found.worst_pair)
    output = channel.outputs.index(found.worst_output)
    assert math.log(channel.law[most, output] / channel.law[least, output]) == pytest.approx(found.epsilon)


def test_some_inputs_give_a_lower_bound_that_is_not_announced() -> None:
    channel = random_rows(30, 4, 2)
    found = audit(channel, inputs=np.arange(10))
    assert not found.complete
    assert found.epsilon <= audit(channel).epsilon
    with pytest.raises(RefusedChannelError, match="10 of 30"):
        admit(found, 100)


def test_the_audited_epsilon_is_announced_or_refused() -> None:
    found = audit(random_rows(4, 4, 3))
    assert admit(found, found.epsilon + 1) == found.epsilon
    assert admit(found, found.epsilon) == found.epsilon
    with pytest.raises(RefusedChannelError, match="more than"):
        admit(found, found.epsilon * (1 - 1e-12))
    with pytest.raises(RefusedChannelError, match="infinite"):
        admit(replace(found, epsilon=math.inf), 100)
    with pytest.raises(RefusedChannelError):
        admit(replace(found, epsilon=math.nan), 100)


# Mechanisms broken on purpose. The right one passes the same check.

VOCABULARY = vocabulary(60)
NOMINAL = 3.0


def bound() -> float:
    """The ε that SANTEXT promises for words a diameter apart; the exact ε is about half of it."""
    return NOMINAL * VOCABULARY.diameter


def test_the_right_mechanism_keeps_its_bound() -> None:
    assert 0.4 * bound() < audit(SanText(VOCABULARY, NOMINAL)).epsilon < bound()


def test_epsilon_for_half_of_it_is_caught() -> None:
    assert audit(SanText(VOCABULARY, 4 * NOMINAL)).epsilon > bound()


def test_a_dropped_normaliser_is_caught() -> None:
    weights = np.exp(-NOMINAL / 2 * VOCABULARY.distances(np.arange(60)))
    with pytest.raises(BrokenChannelError, match="'x0'"):
        audit(Rows(weights))


@pytest.mark.parametrize("bad", [-0.1, math.nan])
def test_a_value_that_is_not_a_probability_is_caught(bad: float) -> None:
    with pytest.raises(BrokenChannelError):
        audit(Rows(np.array([[1 - bad, bad], [0.5, 0.5]])))


def test_one_word_sent_as_it_is_is_caught() -> None:
    law = SanText(VOCABULARY, NOMINAL).rows(np.arange(60))
    law[17] = np.eye(60)[17]
    found = audit(Rows(law))
    assert found.epsilon == math.inf
    assert (found.zero_outputs, found.worst_pair[1]) == (59, "x17")
