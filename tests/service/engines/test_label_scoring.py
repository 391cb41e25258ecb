from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engines.vllm.label_scoring import LabelTrie, calibrated, reference

END = 99


def answer(trie: LabelTrie, model):
    """Log-probabilities as ``model(prefix) -> {token: probability}`` gives them."""
    return [{t: np.log(model(q.prefix)[t]) for t in q.tokens} for q in trie.questions]


def test_labels_that_differ_at_once_cost_one_question():
    trie = LabelTrie([[5], [6, 7], [8]], [END])
    assert [(q.prefix, q.tokens) for q in trie.questions] == [((), (5, 6, 8))]
    assert trie.probabilities([{5: np.log(0.1), 6: np.log(0.3), 8: np.log(0.1)}]) == pytest.approx([0.2, 0.6, 0.2])


def test_a_label_that_another_begins_with_is_weighed_by_the_end():
    trie = LabelTrie([[5], [5, 6]], [END, 98])
    assert [(q.prefix, q.tokens) for q in trie.questions] == [((5,), (6, END, 98))]
    reply = {6: np.log(0.2), END: np.log(0.1), 98: np.log(0.5)}
    assert trie.probabilities([reply]) == pytest.approx([0.75, 0.25])


def test_the_log_probabilities_may_be_as_low_as_they_like():
    trie = LabelTrie([[1], [2], [3]], [END])
    assert trie.probabilities([{1: -1000.0, 2: -1000.0 + np.log(3), 3: -np.inf}]) == pytest.approx([0.25, 0.75, 0])
    with pytest.raises(ValueError, match="labels"):
        trie.probabilities([{1: -np.inf, 2: -np.inf, 3: -np.inf}])


def test_a_label_that_is_favoured_whatever_is_asked_is_favoured_no_longer():
    biased = np.array([0.6, 0.3, 0.1])
    assert calibrated(biased) is biased
    assert calibrated(biased, biased) == pytest.approx([1 / 3] * 3)
    both = [np.array([0.8, 0.1, 0.1]), np.array([0.2, 0.4, 0.4])]
    assert reference(both) == pytest.approx([0.4, 0.2, 0.2])
    assert reference(both, [0.75, 0.25]) == pytest.approx([0.8**0.75 * 0.2**0.25, *[0.1**0.75 * 0.4**0.25] * 2])
    assert calibrated(biased, reference(both)) == pytest.approx(np.array([1.5, 1.5, 0.5]) / 3.5)
    assert calibrated(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == pytest.approx([0, 1])  # nothing is divided by 0


def test_zero_shot_counts_a_quarter_beside_a_slot():
    even, sure = np.array([0.5, 0.5]), np.array([0.8, 0.2])
    pooled = calibrated(sure, even, np.array([0.16, 0.84]))
    assert pooled[0] / pooled[1] == pytest.approx(4 * (0.16 / 0.84) ** 0.25)
    assert calibrated(sure, even, even) == pytest.approx(sure)
    assert calibrated(sure, None, np.array([0.16, 0.84])) is sure
    assert calibrated(sure, even, np.array([0.0, 1.0])).min() > 0


@pytest.mark.parametrize(
    ("labels", "ends", "message"),
    [([[1], [1]], [END], "same tokens"), ([[], [1]], [END], "no tokens"), ([[1], [1, 2]], [], "no token ends")],
)
def test_labels_that_cannot_be_distinguished_are_refused(labels, ends, message):
    with pytest.raises(ValueError, match=message):
        LabelTrie(labels, ends)


@given(st.sets(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=2, max_size=8), st.integers(0))
def test_it_is_sampling_constrained_to_the_labels(labels, seed):
    """Compared with a walk through every sequence of tokens of a random model that writes nothing but labels."""
    labels = sorted(labels)
    tokens = [0, 1, 2, END]
    weights = {
        prefix: np.random.default_rng([seed % 2**32, *prefix]).dirichlet(np.ones(4))
        for length in range(5)
        for prefix in itertools.product(range(3), repeat=length)
    }

    def allowed(prefix):
        return [
            t
            for t in tokens
            if (t == END and prefix in labels) or any(label[: len(prefix) + 1] == (*prefix, t) for label in labels)
        ]

    def probability(label):
        result = 1.0
        for depth, token in enumerate((*label, END)):
            prefix = label[:depth]
            result *= weights[prefix][tokens.index(token)] / sum(
                weights[prefix][tokens.index(t)] for t in allowed(prefix)
            )
        return result

    trie = LabelTrie(labels, [END])
    replies = answer(trie, lambda prefix: dict(zip(tokens, weights[prefix], strict=True)))
    assert trie.probabilities(replies) == pytest.approx([probability(label) for label in labels], abs=1e-12)
    assert trie.probabilities(replies).sum() == pytest.approx(1)
