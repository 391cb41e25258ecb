"""Sensitive spans of a text: finding them, taking them out, and putting a profile's spans in their place.

Spans are places, not strings: the paper's code looks for the first substring, and so misses "pain" in "jaw pain and
pain". Here each occurrence is found once, longest first, at word boundaries. Spans with nothing but punctuation between
them share one placeholder, so the redacted text does not count them.

A word boundary is wanted only where a script shows one: between two letters that have capitals (Latin, Greek,
Cyrillic), which would make another word, and between two digits, which would make another number. Chinese, Japanese and
Thai have no spaces between words, Korean and Arabic glue particles to names, and ``klein_k`` names Klein: there every
occurrence counts. Characters that show nothing, such as a soft hyphen, hide no occurrence.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import regex

PLACEHOLDER = "___"

Offsets = tuple[int, int]
"""Begin and end of a span, in characters."""
Spans = Sequence[Offsets] | Sequence[str] | Callable[[str], Sequence[Offsets]]
"""Offsets; strings, of which every occurrence counts; or a detector that finds offsets in a text."""

_FOLDED = regex.IGNORECASE | regex.FULLCASE
_BETWEEN = regex.compile(r"[\s\p{P}]*")
_SHOWS_NOTHING = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}]|(?!\s)\p{Cc}")
# Without regard to case, \p{Lu} would be any letter that has one. "drKlein" has a boundary where its capital is.
_BOUNDARY = r"(?-i:(?!(?<=\p{N})(?=\p{N})|(?<=[\p{Lu}\p{Ll}\p{Lt}])(?=[\p{Lu}\p{Ll}\p{Lt}])(?!(?<=\p{Ll})(?=\p{Lu}))))"
_CAPITAL = r"(?-i:(?=[\p{Lu}\p{Lt}]))"
_SHORTEST_STEM = 4
"""Letters. Shorter words begin too many others: "The" and "There"."""
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
                f"{span!r} occurs in the text once more, perhaps within a longer word, or with characters that are not "
                "shown: mark that, too"
            )
    return redacted


def find(text: str, strings: Iterable[str]) -> list[Offsets]:
    """Every occurrence of each string, whatever its case; of two that overlap the longer.

    In scripts that show word boundaries, only whole words count.

    Raises:
        SpanNotFoundError: a string does not occur.
    """
    spans: list[Offsets] = []
    shown = [at for at, character in enumerate(text) if not _SHOWS_NOTHING.match(character)]
    seen = "".join(text[at] for at in shown)
    wanted = {_SHOWS_NOTHING.sub("", unicodedata.normalize("NFC", string)).strip() for string in strings}
    for string in sorted(wanted, key=lambda string: (-len(string), string)):
        found = regex.finditer(_BOUNDARY + _words(string) + _BOUNDARY, seen, _FOLDED) if string else ()
        places = [(shown[match.start()], shown[match.end() - 1] + 1) for match in found]
        if not places:
            raise SpanNotFoundError(f"{string!r} does not occur in the text as a whole word")
        spans += [(a, b) for a, b in places if not any(a < end and start < b for start, end in spans)]
    return sorted(spans)


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
    """The visible text of a span, to be compared, without differences of case, width, accents' encoding and spaces."""
    return " ".join(unicodedata.normalize("NFKC", _SHOWS_NOTHING.sub("", span)).casefold().split())


def _is_left(span: str, kept: str) -> bool:
    """The last look: whether a span, as it stood in the text, occurs in what would leave.

    It also notices the beginning of a longer word, if both begin with a capital: an inflected name.
    """
    span, kept = (unicodedata.normalize("NFKC", _SHOWS_NOTHING.sub("", text)) for text in (span, kept))
    words = _words(span)
    if not words:  # nothing visible, so it reveals nothing
        return False
    pattern = _BOUNDARY + words + _BOUNDARY
    if len(span) >= _SHORTEST_STEM and regex.match(_CAPITAL, span):
        pattern += "|" + _BOUNDARY + _CAPITAL + words
    return regex.search(pattern, kept, _FOLDED) is not None


def _words(string: str) -> str:
    """A pattern of a string's words, whatever is white space between them."""
    return r"\s+".join(map(_word, string.split()))


def _word(word: str) -> str:
    # Letters that have no case may be taken apart: full case folding compares several letters at once (ß and ss).
    parts = [regex.escape(character) for character in word]
    spaces = [r"\s*" if all(map(_UNSPACED.match, pair)) else "" for pair in pairwise(word)]
    return "".join(part + space for part, space in zip(parts, [*spaces, ""], strict=True))


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
