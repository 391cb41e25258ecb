"""Sensitive spans of a text: finding them, taking them out, and putting a profile's spans in their place.

Spans are places, not strings: the paper's code looks for the first substring, and so misses "pain" in "jaw pain and
pain". Here each occurrence is found once, longest first, at word boundaries. Spans with nothing but punctuation between
them share one placeholder, so the redacted text does not count them.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import regex

PLACEHOLDER = "___"

Offsets = tuple[int, int]
"""Where a span begins and where it ends, in characters."""
Spans = Sequence[Offsets] | Sequence[str] | Callable[[str], Sequence[Offsets]]
"""Offsets; strings, of which every occurrence counts; or a detector that finds offsets in a text."""

_FOLDED = regex.IGNORECASE | regex.FULLCASE
_BETWEEN = regex.compile(r"[\s\p{P}]*")


class SpanNotFoundError(ValueError):
    """A span that is not in the text."""


class SpanLeftInTextError(ValueError):
    """A span that occurs once more, where it was not marked."""


@dataclass(frozen=True)
class Redacted:
    """A text without its spans.

    Attributes:
        text: what may leave.
        whole: the text in NFC, with its spans.
        places: where these are in it, in order.
    """

    text: str
    whole: str
    places: tuple[Offsets, ...]

    @property
    def spans(self) -> tuple[str, ...]:
        """What may not leave."""
        return tuple(self.whole[start:end] for start, end in self.places)


def redact(text: str, spans: Spans, placeholder: str = PLACEHOLDER) -> Redacted:
    """Take spans out of a text.

    Args:
        text: in any normal form for strings; in NFC for offsets.
        spans: see :data:`Spans`.
        placeholder: what takes their place.

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
    redacted = Redacted("".join(_pieces(normal, places, placeholder)), normal, tuple(places))
    kept = unicodedata.normalize("NFKC", redacted.text)
    for span in redacted.spans:
        if _occurrences(unicodedata.normalize("NFKC", span)).search(kept):
            raise SpanLeftInTextError(f"{span!r} occurs in the text once more: mark that, too")
    return redacted


def find(text: str, strings: Iterable[str]) -> list[Offsets]:
    """Every occurrence of each string, whatever its case, as a whole word; of two that overlap the longer.

    Raises:
        SpanNotFoundError: a string does not occur.
    """
    spans: list[Offsets] = []
    wanted = {unicodedata.normalize("NFC", string).strip() for string in strings}
    for string in sorted(wanted, key=lambda string: (-len(string), string)):
        places = [match.span() for match in _occurrences(string).finditer(text)] if string else []
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
    """A span as it is compared: without differences of case, width, accents' encoding and white space."""
    return " ".join(unicodedata.normalize("NFKC", span).casefold().split())


def _occurrences(string: str) -> regex.Pattern[str]:
    words = r"\s+".join(regex.escape(word) for word in string.split())
    return regex.compile(rf"(?<!\w){words}(?!\w)", _FOLDED)


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


def _pieces(text: str, places: Sequence[Offsets], placeholder: str) -> Iterable[str]:
    """What is kept, and one placeholder for each run of spans."""
    end = 0
    for number, (start, stop) in enumerate(places):
        between = text[end:start]
        if number == 0 or not _BETWEEN.fullmatch(between):
            yield between
            yield placeholder
        end = stop
    yield text[end:]
