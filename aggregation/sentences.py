"""Sentences of texts, by the same rules for every slot.

The rules, in order. Each looks at one text alone, and none raises: the text may be private.

1. **Form**: Unicode NFC, and each run of white space inside a sentence becomes one space. Nothing else is folded, so a
   sentence leaves as its writers spelt it.
2. **Segmentation**: the default sentence boundaries of Unicode (UAX #29), which know the full stops, question marks and
   exclamation marks of all scripts, with spaces after them or not; and every line break. Two things are added, which
   the standard leaves to its users: no boundary follows an abbreviated title (``Dr. Smith``), and an opening bracket or
   quotation mark belongs to what follows.
3. **What counts**: sentences of at least :data:`FEWEST_WORDS` words and at most :data:`LONGEST` characters, without
   control characters. Words are those of UAX #29 that hold a letter or a digit. Where a script sets no spaces between
   words (Chinese, Japanese, Thai, Lao, Khmer, Burmese), every two of its letters count as a word.
4. **Limits**: a sentence counts once in a text, and the first :data:`MOST` count. After :data:`LONGEST_TEXT`
   characters, or 200 sentences that do not count, a text is not read on, so that none takes much longer than others.
"""

import math
import unicodedata
from collections.abc import Iterator
from itertools import islice

import regex

from aggregation.keywords import keywords

FEWEST_WORDS = 3
LONGEST = 500
"""Most characters of a sentence; a longer one would rarely be the same twice."""
MOST = 20
"""Most sentences of a text."""
LONGEST_TEXT = 4000
"""Most characters of a text that are read."""
_MOST_PARTS = 10 * MOST

_TERM, _STOP, _CLOSE, _SPACE, _ON = (
    rf"\p{{Sentence_Break={kind}}}" for kind in ("STerm", "ATerm", "Close", "Sp", "SContinue")
)
_UPPER, _LOWER, _LETTER = (rf"\p{{Sentence_Break={kind}}}" for kind in ("Upper", "Lower", "OLetter"))
_EXTEND = r"[\p{Sentence_Break=Extend}\p{Sentence_Break=Format}]*+"
_TITLE = r"(?<!\b(?:Dr|Mr|Mrs|Ms|Mx|Prof|Mme|Mlle|Hr|Fr|Sr|Sra)\.)"
# Rules SB6 to SB8 are about full stops alone, SB8a to SB11 about all ends of sentences.
_END = regex.compile(
    rf"""
    (?: {_TERM} (?! [{_TERM}{_STOP}] )
      | {_STOP} (?! [{_TERM}{_STOP}] ) {_TITLE}
        (?! {_EXTEND} \p{{Sentence_Break=Numeric}} )
        (?! (?<=[{_UPPER}{_LOWER}]{_STOP}) {_EXTEND} {_UPPER} )
        (?! [^{_LETTER}{_UPPER}{_LOWER}{_TERM}{_STOP}\n]*+ {_LOWER} )
    )
    {_EXTEND} (?: (?! [\p{{Ps}}\p{{Pi}}] ) {_CLOSE} {_EXTEND} )*+ (?: {_SPACE} {_EXTEND} )*+
    (?! [{_ON}{_TERM}{_STOP}] )
    """,
    regex.VERBOSE | regex.V0,
)
_LINE = regex.compile(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_WORD = regex.compile(r"[\p{L}\p{N}_].*?\b", regex.WORD | regex.DOTALL)
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Bopomofo}&&[\p{L}\p{N}]]", regex.V1
)
_CONTROL = regex.compile(r"[\p{Cc}\p{Cs}]")


def sentences(text: str) -> list[str]:
    """The different sentences of a text that count, in their order."""
    counted: dict[str, None] = {}
    for part in islice(_parts(unicodedata.normalize("NFC", text[:LONGEST_TEXT])), _MOST_PARTS):
        sentence = _one_line(part)
        if sentence and sentence not in counted and _counts(sentence):
            counted[sentence] = None
            if len(counted) == MOST:
                break
    return list(counted)


def fold(sentence: str) -> str:
    """A sentence with its form and case folded, to compare it with public ones that are left out."""
    return _one_line(unicodedata.normalize("NFC", sentence)).casefold()


def nearest(counted: list[str], question: frozenset[str], most: int) -> list[str]:
    """The sentences of a slot that resemble a question most, by the keywords that they share with it.

    Of equals the longest are taken, which are seldom greetings, and of equally long ones the first.

    Args:
        counted: sentences of the slot.
        question: keywords of the question.
        most: number of sentences to choose.
    """
    return sorted(counted, key=lambda one: (-_likeness(keywords(one), question), -len(one)))[:most]


def _likeness(words: frozenset[str], question: frozenset[str]) -> float:
    return len(words & question) / math.sqrt(len(words) or 1)


def _parts(text: str) -> Iterator[str]:
    """The text, cut at the boundaries of its sentences."""
    for line in _LINE.split(text):
        start = 0
        for end in _END.finditer(line):
            yield line[start : end.end()]
            start = end.end()
        yield line[start:]


def _one_line(part: str) -> str:
    return " ".join(part.split())


def _counts(sentence: str) -> bool:
    if len(sentence) > LONGEST or _CONTROL.search(sentence):
        return False
    unspaced = len(_UNSPACED.findall(sentence))
    return unspaced // 2 + len(_WORD.findall(_UNSPACED.sub(" ", sentence))) >= FEWEST_WORDS
