"""Sensitive spans of a text: finding them, taking them out, and putting a profile's spans in their place.

Spans are places, not strings: the paper's code looks for the first substring, and so misses "pain" in "jaw pain and
pain". Here each occurrence is found once, longest first, at word boundaries. Spans with nothing but punctuation between
them share one placeholder, so the redacted text does not count them.

A word boundary is wanted only where a script shows one: between two letters that have capitals (Latin, Greek,
Cyrillic), which would make another word, and between two digits, which would make another number. Chinese, Japanese and
Thai have no spaces between words, Korean and Arabic glue particles to names, and ``klein_k`` names Klein: there every
occurrence counts.

What reads alike is one span (:data:`spelling.lookalikes.SPAN`): apostrophes, hyphens, spaces, accents, letters of one
shape, whatever the case; and here also a word with and without its apostrophe, parted by a hyphen, a space or the end
of a line, ``ü`` and ``ue``, and a number of six digits or more however its digits are grouped.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import regex

from spelling.lookalikes import SPAN

PLACEHOLDER = "___"

Offsets = tuple[int, int]
"""Begin and end of a span, in characters."""
Spans = Sequence[Offsets] | Sequence[str] | Callable[[str], Sequence[Offsets]]
"""Offsets; strings, of which every occurrence counts; or a detector that finds offsets in a text."""

_FOLDED = regex.IGNORECASE | regex.FULLCASE
_BETWEEN = regex.compile(r"[\s\p{P}]*")
# Without regard to case, \p{Lu} would be any letter that has one. "drKlein" has a boundary where its capital is.
_BOUNDARY = r"(?-i:(?!(?<=\p{N})(?=\p{N})|(?<=[\p{Lu}\p{Ll}\p{Lt}])(?=[\p{Lu}\p{Ll}\p{Lt}])(?!(?<=\p{Ll})(?=\p{Lu}))))"
_CAPITAL = r"(?-i:(?=[\p{Lu}\p{Lt}]))"
_SHORTEST_STEM = 4
"""Letters. Shorter words begin too many others: "The" and "There"."""
_LONG_NUMBER = 6
"""Digits from which on it makes no difference how they are grouped: in telephone numbers, dates, accounts."""
_IN_NUMBER = regex.compile(r"(?<=[0-9])[\s./()'-]{1,3}(?=[0-9])")
_PARTS = regex.compile(r"([\s'-]+)")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{M}]")
"""Scripts where a space, or the end of a line, may come within a name."""


class SpanNotFoundError(ValueError):
    """A span that is not in the text."""


class SpanLeftInTextError(ValueError):
    """A span that occurs once more, where it was not marked."""


@dataclass(frozen=True)
class Redacted:
    """A text without its spans.

    Attributes:
        text: text that may leave.
        whole: the text in NFC, with its spans.
        places: offsets of the spans in ``whole``, in order.
    """

    text: str
    whole: str
    places: tuple[Offsets, ...]

    @property
    def spans(self) -> tuple[str, ...]:
        """The spans, which may not leave."""
        return tuple(self.whole[start:end] for start, end in self.places)


def redact(text: str, spans: Spans, placeholder: str = PLACEHOLDER) -> Redacted:
    """Take spans out of a text.

    Args:
        text: text in any Unicode normal form for strings; in NFC for offsets.
        spans: see :data:`Spans`.
        placeholder: text that replaces each span.

    Raises:
        SpanNotFoundError: a string does not occur, or an offset is outside the text.
        SpanLeftInTextError: a span occurs once more in what would leave.
        ValueError: spans overlap, or the text is not in NFC and offsets would be ambiguous.
    """
    normal = unicodedata.normalize("NFC", text)
    strings = not callable(spans) and any(isinstance(span, str) for span in spans)
    if normal != text and not strings and (callable(spans) or len(spans)):
        raise ValueError("offsets need a text in Unicode's normal form NFC: unicodedata.normalize('NFC', text)")
    places = find(normal, spans) if strings else _checked(normal, spans(normal) if callable(spans) else spans)  # type: ignore[arg-type]
    kept = list(_kept(normal, places))
    redacted = Redacted(placeholder.join(kept), normal, tuple(places))
    for span in redacted.spans:
        if any(_is_left(span, piece) for piece in kept):
            raise SpanLeftInTextError(
                f"{span!r} occurs in the text once more, perhaps within a longer word or written in another way: mark "
                "that, too"
            )
    return redacted


def find(text: str, strings: Iterable[str]) -> list[Offsets]:
    """Every occurrence of each string, whatever its case; of two that overlap the longer.

    In scripts that show word boundaries, only whole words count.

    Raises:
        SpanNotFoundError: a string does not occur.
    """
    spans: list[Offsets] = []
    seen = SPAN.alignments(text)
    wanted = {unicodedata.normalize("NFC", string).strip() for string in strings}
    for string in sorted(wanted, key=lambda string: (-len(string), string)):
        places = [
            (origin[match.start()], _end(origin, match.end(), len(text)))
            for folded, origin in seen
            if (pattern := _pattern(string))
            for match in regex.finditer(_BOUNDARY + pattern + _BOUNDARY, folded, _FOLDED)
        ]
        if not places:
            raise SpanNotFoundError(f"{string!r} does not occur in the text as a whole word")
        for a, b in sorted(places, key=lambda place: (place[0], -place[1])):
            if not any(a < end and start < b for start, end in spans):
                spans.append((a, b))
    return sorted(spans)


def _end(places: Sequence[int], end: int, characters: int) -> int:
    """Where an occurrence ends in the text, with the accents and the characters not shown that follow it."""
    following = places[end] if end < len(places) else characters
    return max(following, places[end - 1] + 1)


def put_back(text: str, strings: Sequence[str], placeholder: str = PLACEHOLDER) -> str:
    """A redacted text with other spans in its placeholders: as evenly as possible, in their order.

    Placeholders beyond the number of strings stay; so does a text without placeholders.
    """
    kept = text.split(placeholder)
    gaps = len(kept) - 1
    shares = [strings[len(strings) * gap // gaps : len(strings) * (gap + 1) // gaps] for gap in range(gaps)]
    return kept[0] + "".join(
        (", ".join(share) or placeholder) + rest for share, rest in zip(shares, kept[1:], strict=True)
    )


def normal_form(span: str) -> str:
    """A span as it is compared with others, without differences of case, spaces and what reads alike."""
    return " ".join(SPAN.fold(span).casefold().split())


def _is_left(span: str, kept: str) -> bool:
    """The last look: whether a span, as it stood in the text, occurs in what would leave.

    It also notices the beginning of a longer word, if both begin with a capital: an inflected name.
    """
    pattern = _pattern(span)
    if not pattern:  # nothing visible, so it reveals nothing
        return False
    whole = _BOUNDARY + pattern + _BOUNDARY
    if len(span) >= _SHORTEST_STEM and regex.match(_CAPITAL, SPAN.fold(span)):
        whole += "|" + _BOUNDARY + _CAPITAL + pattern
    kept = unicodedata.normalize("NFC", kept)
    return any(regex.search(whole, folded, _FOLDED) for folded, _ in SPAN.alignments(kept))


def _pattern(string: str) -> str:
    """A pattern of what reads like a string in a folded text; empty if nothing of the string is shown."""
    spellings = {folded.strip() for folded, _ in SPAN.alignments(unicodedata.normalize("NFC", string))} - {""}
    patterns = [_words(spelling) for spelling in sorted(spellings)]
    return f"(?:{'|'.join(patterns)})" if patterns else ""


def _words(string: str) -> str:
    grouped = sum(map(str.isdecimal, string)) >= _LONG_NUMBER
    # Letters that have no case may be taken apart: full case folding compares several letters at once (ß and ss).
    parts = [part for part in _PARTS.split(_IN_NUMBER.sub("", string) if grouped else string) if part]
    return "".join(
        _between(part) if 0 < number < len(parts) - 1 and _PARTS.fullmatch(part) else _word(part, grouped)
        for number, part in enumerate(parts)
    )


def _between(mark: str) -> str:
    """A pattern of what may stand for a space, a hyphen or an apostrophe within a span."""
    return r"[\s'-]+" if mark.strip() != mark or not mark else r"[\s'-]{0,3}"


def _word(word: str, grouped: bool) -> str:
    parts = [regex.escape(character) for character in word]
    gaps = [_gap(one, other, grouped) for one, other in pairwise(word)]
    return "".join(part + gap for part, gap in zip(parts, [*gaps, ""], strict=True))


def _gap(one: str, other: str, grouped: bool) -> str:
    if _UNSPACED.match(one) and _UNSPACED.match(other):
        return r"\s*"
    if one.isalpha() and other.isalpha():
        return r"(?:-[^\S\n]*\n\s*)?"
    return r"[\s./()'-]{0,3}" if grouped and one.isdecimal() and other.isdecimal() else ""


def _checked(text: str, offsets: Sequence[Offsets]) -> list[Offsets]:
    places = sorted(offsets)
    end = 0
    for start, stop in places:
        if not 0 <= start < stop <= len(text):
            raise SpanNotFoundError(f"no span from {start} to {stop} in a text of {len(text)} characters")
        if start < end:
            raise ValueError(f"the span from {start} to {stop} overlaps the one before it")
        end = stop
    return places


def _kept(text: str, places: Sequence[Offsets]) -> Iterable[str]:
    """The text that is kept: the pieces between runs of spans."""
    end = 0
    for number, (start, stop) in enumerate(places):
        between = text[end:start]
        if number == 0 or not _BETWEEN.fullmatch(between):
            yield between
        end = stop
    yield text[end:]
