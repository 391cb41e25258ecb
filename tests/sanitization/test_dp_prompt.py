"""DP-Prompt's ε, by enumeration of all logits on small vocabularies."""

import math
from itertools import product

import numpy as np
import pytest

from sanitization.audit import audit
from sanitization.published.dp_prompt import (
    DpPrompt,
    WorstContexts,
    clipped_law,
    temperature_for,
    true_epsilon,
)
from tests.sanitization.made_up import Rows


@pytest.mark.parametrize("tokens", [2, 3, 4])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_all_logits(tokens: int, temperature: float) -> None:
    """Every context is one of 4^V logits, of which some are outside the limits."""
    logits = np.array([*product([-9.0, -1.0, 0.5, 7.0], repeat=tokens)])
    found = audit(Rows(clipped_law(logits, -1, 2, temperature))).epsilon
    assert found == pytest.approx(true_epsilon(tokens, -1, 2, temperature), abs=1e-9)
    assert found == pytest.approx(audit(WorstContexts(tokens, -1, 2, temperature)).epsilon, abs=1e-9)
    assert found < 2 * 3 / temperature, "the claim holds"


def test_a_large_vocabulary_needs_all_of_the_claim() -> None:
    assert 1.999 < true_epsilon(49_152, 0, 1, 1) < 2
    assert true_epsilon(2, 0, 1, 1) == pytest.approx(1)


def test_tokens_add_up() -> None:
    """Two tokens, the second of which depends on the first: all 4² · 4⁴ ways of choosing logits at the corners."""
    corners = np.array([*product([0.0, 1.0], repeat=2)])
    laws = clipped_law(corners, 0, 1, 0.5)
    texts = [
        np.concatenate([first[0] * after_0, first[1] * after_1]) for first, after_0, after_1 in product(laws, repeat=3)
    ]
    assert audit(Rows(np.array(texts))).epsilon == pytest.approx(2 * true_epsilon(2, 0, 1, 0.5), abs=1e-9)


def test_the_auditor_finds_what_usual_sampling_would_do() -> None:
    """Top-k after the clipping rules tokens out; a limit that is not applied makes ε larger than claimed."""
    logits = np.array([*product([-9.0, 0.0, 7.0], repeat=3)])
    law = clipped_law(logits, 0, 1, 1.0)
    best = law >= np.sort(law, axis=1)[:, -2:-1]
    top = np.where(best, law, 0)
    assert audit(Rows(top / top.sum(axis=1, keepdims=True))).epsilon == math.inf
    assert audit(Rows(clipped_law(logits, -math.inf, 1, 1.0))).epsilon > 2


def test_privacyrestores_table_6() -> None:
    """Of its three temperatures for a budget of 150 one is 2n/150; the others are 150/n."""
    assert temperature_for(150, 106, 0, 1) == pytest.approx(1.41, abs=0.005)
    for tokens, temperature, spent in ((72, 2.08, 69), (193, 0.78, 495)):
        assert temperature == pytest.approx(150 / tokens, abs=0.005)
        assert temperature_for(150, tokens, 0, 1) != pytest.approx(temperature, rel=0.5)
        assert 2 * tokens / temperature == pytest.approx(spent, abs=0.5)


def test_the_promise_of_a_text() -> None:
    class Model:
        tokens = 1000

        def draw_clipped(self, prompts, *, most: int, low: float, high: float, temperature: float) -> list[str]:
            return [f"{prompt}|{most}|{low}|{high}|{temperature}" for prompt in prompts]

    mechanism = DpPrompt(Model(), 0, 1, 2.0, 30)
    assert mechanism.claimed == 30
    assert 29.9 < mechanism.true_epsilon < 30
    (said,) = mechanism.paraphrase(["Who pays?"])
    assert said == "Document: Who pays?\nParaphrase of the document:|30|0|1|2.0"
