"""Copies of a word, drawn independently: noise can be averaged away."""

import math

import numpy as np
import pytest

from research.sanitization.copies import repeated
from sanitization.attacks import attack
from sanitization.response import RandomisedResponse
from tests.sanitization.made_up import vocabulary

pytestmark = pytest.mark.model

WORDS = vocabulary(40)
EVERY = np.arange(40)


def test_repeats_find_a_word_but_not_within_a_cell() -> None:
    """k-RR of single words reveals everything in the end; words that share a medoid are never distinguished."""
    alone = RandomisedResponse(WORDS.words, WORDS.words, EVERY[:, None], 3.0)
    assert attack(alone, WORDS, most=40).bayes < 0.5
    assert repeated(alone, WORDS, 30, most=40) > 0.95
    cells = RandomisedResponse(WORDS.words, WORDS.words[:4], EVERY[:, None] % 4, 3.0)
    best = sum(WORDS.shares[np.arange(cell, 40, 4)].max() for cell in range(4))
    found = repeated(cells, WORDS, 30, most=40, runs=4000)
    assert abs(found - best) < 5 * math.sqrt(best * (1 - best) / 4000) + 0.01
