"""Choosing among public texts by released words: post-processing, which sees nothing private."""

from collections.abc import Sequence

from aggregation.keywords import keywords as words_of

COVERED = "the public candidate that covers the released keywords best"
BARE = "the released keywords as they are: no public candidate has any of them"


def best_covering(texts: Sequence[str], keywords: Sequence[str], ordered: bool) -> str | None:
    """Choose among public texts by released words.

    A text scores the weights of the keywords it has, as :mod:`aggregation.keywords` reads it. A keyword weighs 1, or
    1 / (1 + its place, from 0) if they are ranked. Of equal texts the one with fewer other words wins, then the
    first.

    Args:
        texts: the public candidates.
        keywords: the released words, as :func:`aggregation.keywords.keywords` spells them.
        ordered: whether they are ranked, the most important first.

    Returns:
        The text; None where no text has any of them.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(keywords):
        places.setdefault(word, place)
    best, best_rank = None, (0.0, 0)
    for text in texts:
        words = words_of(text)
        covered = sorted(place for word, place in places.items() if word in words)
        rank = (sum(1 / (1 + place) if ordered else 1.0 for place in covered), len(covered) - len(words))
        if covered and (best is None or rank > best_rank):
            best, best_rank = text, rank
    return best
