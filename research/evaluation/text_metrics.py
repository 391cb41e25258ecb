"""Similarity of a text to the right answer, by the measures of DP-ICL's tables 3 and 4.

All of them ignore case: released words are folded, while answers read off a receipt are all capitals. ROUGE-1, ROUGE-2
and ROUGE-L are F1 (``rouge-score``, without stemming; it sees letters a to z and digits only), BLEU is that of the
whole corpus with up to 4-grams and exponential smoothing (``sacrebleu``, its default tokens), and Levenshtein
similarity is ``1 - distance / length of the longer`` in characters (``rapidfuzz``). All are percentages.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rapidfuzz.distance import Levenshtein

MEAN_METRICS = ("rouge1", "rouge2", "rougeL", "levenshtein")
"""Measures taken text by text, in the order of :func:`similarities`."""

_ROUGE = ("rouge1", "rouge2", "rougeL")


@lru_cache(maxsize=1 << 18)
def similarities(text: str, right: str) -> tuple[float, ...]:
    """The measures of :data:`MEAN_METRICS` of one text against its right answer, in percent."""
    scores = _scorer().score(right, text)
    distance = Levenshtein.normalized_similarity(text.lower().strip(), right.lower().strip())
    return (*(100 * scores[name].fmeasure for name in _ROUGE), 100 * distance)


def corpus_bleu(texts: Sequence[str], right: Sequence[str]) -> float:
    """BLEU of texts taken together, one right answer each; a percentage.

    Raises:
        ValueError: there are no texts, or not as many as right answers.
    """
    if not texts or len(texts) != len(right):
        raise ValueError(f"{len(texts)} texts cannot be compared with {len(right)} right answers")
    return float(_bleu().corpus_score(list(texts), [list(right)]).score)


# Both take half a second to import, which no other command of the command line should wait for.
@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(_ROUGE))


@lru_cache(maxsize=1)
def _bleu() -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=True, smooth_method="exp")
