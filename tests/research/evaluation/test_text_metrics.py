"""The measures of texts against values worked out by hand, and what they ignore."""

import pytest

from research.evaluation.text_metrics import MEAN_METRICS, corpus_bleu, similarities


def measured(text: str, right: str) -> dict[str, float]:
    return dict(zip(MEAN_METRICS, similarities(text, right), strict=True))


def test_rouge_by_hand() -> None:
    """The texts "the cat sat" and "the cat lay down" share two of 3 and 4 words, and one of 2 and 3 pairs."""
    found = measured("the cat sat", "the cat lay down")
    assert found["rouge1"] == pytest.approx(100 * 2 * 2 / (3 + 4))
    assert found["rouge2"] == pytest.approx(100 * 2 * 1 / (2 + 3))
    assert found["rougeL"] == pytest.approx(found["rouge1"])
    assert measured("cat the sat", "the cat lay down")["rougeL"] == pytest.approx(100 * 2 * 1 / (3 + 4))


def test_levenshtein_by_hand() -> None:
    """Three changes lead from kitten to sitting, which has seven letters."""
    assert measured("kitten", "sitting")["levenshtein"] == pytest.approx(100 * 4 / 7)


def test_bleu_by_hand() -> None:
    """5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples; as long as the right text."""
    found = corpus_bleu(["the cat sat on the mat"], ["the cat sat on a mat"])
    assert found == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_bleu_is_of_all_texts_together() -> None:
    texts = ["the cat sat on the mat", "a dog"]
    right = ["the cat sat on a mat", "a bird"]
    assert corpus_bleu(texts, right) == pytest.approx(100 * (6 / 8 * 3 / 6 * 2 / 4 * 1 / 3) ** 0.25)


def test_case_and_the_bounds() -> None:
    assert measured("JOHOR BAHRU 25/12", " Johor Bahru 25/12") == dict.fromkeys(MEAN_METRICS, 100)
    assert corpus_bleu(["PASTE IT INTO THE BOX"], ["paste it into the box"]) == pytest.approx(100)
    assert measured("", "a soup") == dict.fromkeys(MEAN_METRICS, 0)


@pytest.mark.parametrize(("texts", "right"), [([], []), (["a"], ["a", "b"])])
def test_bleu_needs_pairs(texts: list[str], right: list[str]) -> None:
    with pytest.raises(ValueError, match="compared"):
        corpus_bleu(texts, right)
