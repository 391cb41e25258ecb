"""Sets of words of texts, by the same rules for private outputs and for public domains; and word counts.

The rules, in order:

1. **Case and form**: Unicode NFKC with case folding and without invisible characters, and one character for those that
   are read as the same punctuation (:data:`spelling.lookalikes.KEYWORD`).
2. **Segmentation**: the default word boundaries of Unicode (UAX #29). So apostrophes and full stops inside a word stay
   (``don't``, ``u.s.a``, ``3.50``), hyphens and slashes part (``e-mail``: ``e``, ``mail``), and texts written without
   spaces fall into characters or runs of one script.
3. **Numbers**: digits joined by ``/ - : . ,`` are one word, so dates, times, prices and telephone numbers stay whole:
   ``25/12/2018``, ``10:30``, ``12,345.60``. Currency signs, percent signs and signs in front are punctuation: ``$3.50``
   is ``3.50``, as in a text that leaves the sign out.
4. **Punctuation** is dropped: a word begins with a letter or a digit, and underscores around it go. Emoji go.
5. **Possessive** ``'s`` is cut off, so ``Ada's`` is ``ada``; and ``he's`` is ``he``, a stop word.
6. **Stop words** of English (:data:`STOP_WORDS`) are dropped. Negations, ``yes`` and ``may`` (a month) are not among
   them: they may be the answer.
7. A word of more than :data:`LONGEST_WORD` characters is dropped: it is not a useful keyword, and releases stay small.

Words are not stemmed. Nothing depends on a locale. Whatever the text, no rule raises: the text may be private.
"""

from collections import Counter
from collections.abc import Iterable, Set

import regex

from spelling.lookalikes import KEYWORD

LONGEST_WORD = 64
"""Length in characters, after normalisation, edges included."""

_STOP_WORDS = """
    a about after again all also am an and any are as at be because been before being between both but by can could
    did do does doing done during each either else etc few for from further had has have having he her here hers
    herself him himself his how i i'd i'll i'm i've if in into is it it'd it'll its itself just let me might mine
    more most much must my myself of off oh ok on once only onto or other our ours ourselves out over own per
    quite rather really said same say says shall she she'd she'll should since so some such than that the their theirs
    them themselves then there these they they'd they'll they're they've this those though through thus to too under
    until up upon us very via was we we'd we'll we're we've well were what when where whether which while who whom
    whose why will with within would you you'd you'll you're you've your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that carry grammar rather than content."""

WordCounts = Counter[str]

_WORD = regex.compile(r"\p{Nd}+(?:[-/:.,]\p{Nd}+)++|[\p{L}\p{N}_].*?\b", regex.WORD | regex.DOTALL)
_EDGES = regex.compile(r"\A[^\p{L}\p{N}]+|(?:'s|[^\p{L}\p{N}\p{Mn}\p{Mc}])+\Z")


def keywords(text: str) -> frozenset[str]:
    """The words of a text that carry its meaning, by the rules above."""
    return frozenset(word for token in _WORD.findall(KEYWORD.fold(text)) if (word := _keyword(token)))


def count_words(contributions: Iterable[Set[str] | None]) -> WordCounts:
    """Number of slots in which each word occurs.

    A slot adds 1 to each of its words, whatever their number, so replacing its set by another moves every count by at
    most 1. Anything that is not a set of strings abstains.
    """
    counts: WordCounts = Counter()
    for words in contributions:
        if isinstance(words, Set) and all(isinstance(word, str) for word in words):
            counts.update(words)
    return counts


def _keyword(token: str) -> str | None:
    if len(token) > LONGEST_WORD:
        return None
    word: str = _EDGES.sub("", token)
    return None if word in STOP_WORDS else word or None
