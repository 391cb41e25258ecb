"""Questions of one conversation: personal data become placeholders, then words are drawn; answers get the data back.

A value has the same placeholder throughout, so a language model can follow who is meant. The values stay in the memory
of the holder of the conversation. What a detector does not find is a word like others, and is drawn.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import regex

from sanitization.text import Sanitized, TextSanitizer
from sanitization.tokens import PLACEHOLDER

_QUOTED = "QUOTED"
"""Kind of text that already looks like a placeholder: it must neither leave as it is nor be taken for one of ours."""
_BEGUN = regex.compile(r"<[A-Z0-9_]*\Z")


class Found(Protocol):
    """Personal data in a text, such as a ``RecognizerResult`` of Presidio."""

    entity_type: str
    """Kind of the data: capital letters, digits, underscores."""
    start: int
    """Offset of its first character."""
    end: int
    """Offset after its last character."""


Find = Callable[[str], Iterable[Found]]


class Conversation:
    """Sanitises questions and restores answers; threads may share it.

    An equal question is not drawn again. Besides what the sanitiser leaves public, these are: where values stand, their
    kinds, and which of them are equal.

    Args:
        sanitizer: keeps ``placeholders``.
        find: a detector of personal data; None finds none.

    Raises:
        ValueError: the sanitiser would draw placeholders, too.
    """

    def __init__(self, sanitizer: TextSanitizer, find: Find | None = None) -> None:
        if "placeholders" not in sanitizer.partition.keep:
            raise ValueError("a conversation needs a sanitiser that keeps placeholders")
        self._sanitizer = sanitizer
        self._find = find
        self._sent: dict[str, Sanitized] = {}
        self._placeholders: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._counting = threading.Lock()

    @property
    def epsilon(self) -> float:
        """ε of all its questions together."""
        return sum(question.epsilon_text for question in self._sent.values())

    def sanitize(self, question: str) -> Sanitized:
        """The question as it may leave.

        Raises:
            sanitization.text.TextError: the question is too long.
            ValueError: a kind cannot be the name of a placeholder.
        """
        values = list(self._find(question)) if self._find else []
        with self._counting:
            if question not in self._sent:
                self._sent[question] = self._sanitizer.sanitize(self._hide(question, values))
            return self._sent[question]

    def restore(self, answer: str) -> str:
        """The answer with values for placeholders. Others than this conversation's stay as they are."""
        return PLACEHOLDER.sub(lambda match: self._values.get(match[0], match[0]), answer)

    def _hide(self, text: str, values: Iterable[Found]) -> str:
        spans = [(value.start, value.end, value.entity_type) for value in values]
        spans += [(*match.span(), _QUOTED) for match in PLACEHOLDER.finditer(text)]
        parts, at = [], 0
        for start, end, kind in _apart(spans):
            parts += [text[at:start], self._placeholder(kind, text[start:end])]
            at = end
        return "".join([*parts, text[at:]])

    def _placeholder(self, kind: str, value: str) -> str:
        if (kind, value) not in self._placeholders:
            number = 1 + sum(other == kind for other, _ in self._placeholders)
            name = f"<{kind}_{number}>"
            if not PLACEHOLDER.fullmatch(name):
                raise ValueError(f"{name} cannot be a placeholder: capital letters, digits and underscores only")
            self._placeholders[kind, value] = name
            self._values[name] = value
        return self._placeholders[kind, value]


class StreamRestorer:
    """Restores an answer that arrives in parts, wherever it is cut.

    Args:
        conversation: conversation whose values are restored.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._begun = ""

    def add(self, part: str) -> str:
        """The text that is ready: all but a placeholder that has only begun."""
        text = self._begun + part
        begun = _BEGUN.search(text)
        end = begun.start() if begun else len(text)
        self._begun = text[end:]
        return self._conversation.restore(text[:end])

    def end(self) -> str:
        """The rest of the answer, when no part follows."""
        rest, self._begun = self._begun, ""
        return rest


def _apart(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Spans in their order; those that overlap become one, of the kind that begins first."""
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]), apart[-1][2])
        elif start < end:
            apart.append((start, end, kind))
    return apart
