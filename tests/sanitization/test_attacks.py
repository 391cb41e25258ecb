"""Attacks: enumerated by hand on small channels."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sanitization.attacks import attack
from sanitization.mechanisms import CORRECTED, RESPONSES, serve
from sanitization.response import RandomisedResponse
from sanitization.vocabulary import Vocabulary
from tests.sanitization.made_up import vocabulary

WORDS = vocabulary(40)
EVERY = np.arange(40)


@pytest.mark.parametrize("name", [*CORRECTED, *RESPONSES])
def test_by_hand(name: str, tmp_path: Path) -> None:
    words = vocabulary(40, 16)
    channel = serve(name, words, 3.0, tmp_path).channel
    found = attack(channel, words, most=40, top=3)
    law = channel.rows(EVERY)
    places = [words.index[word] for word in channel.outputs]
    near = {y: set(np.argsort(words.distances(np.array([y]))[0], kind="stable")[:3]) for y in places}
    cosine = kept = inversion = 0.0
    for x, (column, y) in product(range(40), enumerate(places)):
        chance = words.shares[x] * law[x, column]
        cosine += chance * float(words.vectors[x] @ words.vectors[y])
        kept += chance * (x == y)
        inversion += chance * (x in near[y])
    posterior = np.sort(words.shares[:, None] * law, axis=0)
    assert found.cosine == pytest.approx(cosine)
    assert found.kept == pytest.approx(kept)
    assert found.inversion == pytest.approx(inversion)
    assert found.bayes == pytest.approx(posterior[-1].sum())
    assert found.bayes_top == pytest.approx(posterior[-3:].sum())
    assert found.prior == words.shares.max()


def test_only_the_most_frequent_inputs() -> None:
    words = Vocabulary(WORDS.words, WORDS.vectors, np.arange(40) + 1)
    channel = RandomisedResponse(words.words, words.words, EVERY[:, None], 50 / 10)
    found = attack(channel, words, most=2)
    assert found.prior == pytest.approx(40 / 79)
