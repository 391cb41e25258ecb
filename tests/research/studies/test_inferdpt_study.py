"""The measures of the study of InferDPT, against values by hand."""

import numpy as np
import pytest

from research.studies.inferdpt import diversity, leaks, measured


def test_diversity_is_a_product() -> None:
    assert diversity("one two three four five") == 1
    assert diversity("a a a a a") == pytest.approx(1 / 4 * 1 / 3 * 1 / 2)
    assert diversity("too short") == diversity("") == 0


def test_leaks_are_words_and_pairs_without_stopwords() -> None:
    text = "The landlord in Boston keeps the deposit."
    assert leaks(text, text) == (1, 1)
    assert leaks(text, "A LANDLORD of Boston, and his deposit") == (3 / 4, 1 / 3)
    assert leaks(text, "the in") == leaks("", "Boston") == (0, 0)


def test_means_and_standard_errors() -> None:
    def embed(texts: object) -> np.ndarray:
        return np.eye(2)[[len(str(text)) % 2 for text in list(texts)]]

    found = measured(["a b c d", "a b c"], ["a b c d", ""], ["a b c d", "x"], embed)
    assert found["rouge1"] == (50, 50)
    assert found["diversity"] == (0.5, 0.5)
    assert found["coherence"] == (1, 0)
    assert found["words leaked"] == (0.5, 0.5)
