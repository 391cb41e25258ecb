"""The noisy votes for public candidates, attacked with a unit that holds as much as it can.

The attacker adds up the noisy votes for the candidates that are the unit's, which is all that it can move, and puts a
threshold half-way: no attack on Gaussian noise does better at a loss of 0.
"""

from __future__ import annotations

import numpy as np
import pytest

from accounting.privacy.profiles import Gaussian
from aggregation.embeddings import Unit
from aggregation.exemplar_votes import ExemplarVotes
from aggregation.noise import ONE
from tests.privacy.audit import Counts, caught, claim, judge, observe, signed_once

TRIALS = 1_500
Z = 0.4
LABELS = 4
CLAIM = claim(Gaussian(Z))
EAST = np.array([1.0, 0.0])
CANDIDATES = np.array([EAST, -EAST] * LABELS)
CANDIDATE_LABELS = [label for label in range(LABELS) for _ in range(2)]
ONE_TEXT = [(0, EAST)]
MANY_TEXTS = [(0, EAST)] * 40
MANY_LABELS = [(label, EAST) for label in range(LABELS)]
OTHERS = [[(label % LABELS, -EAST)] for label in range(7)]


def counts(mechanism: type[ExemplarVotes], unit: Unit, z: float = Z) -> Counts:
    made = mechanism(z, CANDIDATES, CANDIDATE_LABELS)
    own = (made.votes([unit]) > 0) / np.sqrt((made.votes([unit]) > 0).sum())
    return observe(
        lambda: bool(own @ made.release(OTHERS) > 0.5),
        lambda: bool(own @ made.release([*OTHERS, unit]) > 0.5),
        TRIALS,
    )


@pytest.mark.parametrize("unit", [ONE_TEXT, MANY_TEXTS, MANY_LABELS], ids=["one text", "many texts", "many labels"])
def test_the_claim_survives_whatever_a_unit_holds(unit: Unit) -> None:
    """1.5 times the noise that there is escapes with probability 4e-12."""
    found = counts(ExemplarVotes, unit)
    assert not caught(found, CLAIM), judge(found, CLAIM)
    assert caught(found, claim(Gaussian(1.5 * Z))), found


def test_a_plan_s_promise_survives_a_unit_s_whole_vote() -> None:
    """With the noise of what everybody takes part in; were it accounted as drawn, z would be 0.43 in place of 3.73."""
    candidates = ", ".join(f"{{text: {text}, label: {label}}}" for label in "abcd" for text in ("east", "west"))
    signed, as_if_drawn, promise = signed_once(f"{{type: synthetic_exemplars, candidates: [{candidates}]}}")
    assert not caught(counts(ExemplarVotes, ONE_TEXT, signed), promise, (1.0,))
    assert caught(counts(ExemplarVotes, ONE_TEXT, as_if_drawn), promise, (1.0,))


class EachText(ExemplarVotes):
    """Every text of a unit votes as if it were a unit."""

    def votes(self, units):
        return super().votes([text] for unit in units for text in unit)


class EachLabel(ExemplarVotes):
    """A unit has a vote for each of its labels: √4 for four of them."""

    def votes(self, units):
        total = np.zeros(len(self.labels), np.int64)
        for unit in units:
            for label in {label for label, _ in unit}:
                total[self._vote([text for text in unit if text[0] == label])] += ONE
        return total


@pytest.mark.parametrize(("wrong", "unit"), [(EachText, MANY_TEXTS), (EachLabel, MANY_LABELS)])
def test_a_unit_of_more_than_one_vote_is_caught(wrong: type[ExemplarVotes], unit: Unit) -> None:
    assert caught(counts(wrong, unit), CLAIM)
