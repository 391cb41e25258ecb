"""Labels as they are compared: by what people read (:data:`spelling.lookalikes.LABEL`).

Private exemplars come from many hands. ``Réclamation`` typed on a Mac has another letter é, a word processor writes
``Can’t log in``, and lists have ``billing`` beside ``Billing``, with a space or a byte order mark around it. All of
these are the plan's one label.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from spelling.lookalikes import LABEL

_SPACES = 20
"""Characters that a label's spelling may have beside its letters, each in up to three parts."""


def plain(label: str) -> str:
    """The text that a label is compared by."""
    return LABEL.fold(label)


def check_distinct(key: str, labels: Iterable[str], each: str = "each") -> None:
    """Refuse labels that would be compared as one, and labels without a visible character.

    Args:
        key: key of the plan that lists them.
        labels: labels, as the plan writes them.
        each: name for any one of them in the message.

    Raises:
        ValueError: a label is empty, not in NFC, or equal to another; names the key and the first such label.
    """
    seen: dict[str, str] = {}
    for label in labels:
        compared = plain(label)
        if not compared:
            raise ValueError(f"{key}: {label!r} is empty; write what can be read")
        if compared in seen:
            raise ValueError(
                f"{key}: {each} may appear once, and {seen[compared]!r} and {label!r} are one, since they are compared "
                "without regard to case, spaces and characters that look alike; leave out one of them"
            )
        if label != unicodedata.normalize("NFC", label).strip():
            raise ValueError(f"{key}: {label!r} is not in Unicode NFC without surrounding white space")
        seen[compared] = label


def codes(labels: Sequence[str]) -> list[str]:
    """Labels that read as codes: with a digit, and without a word of small letters, such as ``A12`` or ``E11.9``.

    None if fewer than half do: ``COVID-19`` among names of diseases is one of them.
    """
    found = [label for label in labels if re.search(r"\d", label) and not _WORD.search(label)]
    return found if 2 * len(found) >= len(labels) else []


_WORD = re.compile(r"[a-z]{3}|[^\W\d_A-Za-z]")  # or a letter of another script


class Spellings:
    """Finds the label that a text means.

    Args:
        labels: all different, as of :func:`check_distinct`.

    Attributes:
        compared: the labels as they are compared.
        longest: characters of the longest text that is compared, as it is and with its ligatures taken apart: how long
            a comparison takes must hardly depend on the text of an exemplar that was drawn.
    """

    def __init__(self, labels: tuple[str, ...]):
        self._labels = labels
        self.compared = tuple(map(plain, labels))
        self.longest = 3 * max((len(label) for label in (*labels, *self.compared)), default=0) + _SPACES
        self._exact = {label: number for number, label in enumerate(labels)}
        self._plain = {label: number for number, label in enumerate(self.compared)}

    def number(self, text: str | None) -> int | None:
        """The number of the label that a text means, from 0; None if it means none of them."""
        if text is None or len(text) > self.longest:
            return None
        exact = self._exact.get(text)
        if exact is None and len(unicodedata.normalize("NFKC", text)) <= self.longest:
            return self._plain.get(plain(text))
        return exact

    def spelt(self, text: str) -> str:
        """The label that a text means, as the plan writes it; a text that means none, as it is."""
        number = self.number(text)
        return text if number is None else self._labels[number]


@lru_cache(maxsize=256)
def spellings(labels: tuple[str, ...]) -> Spellings:
    """The :class:`Spellings` of these labels, cached."""
    return Spellings(labels)
