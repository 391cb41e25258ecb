"""Questions of one conversation: personal data become placeholders, then words are drawn; answers get the data back.

A value has the same placeholder throughout, so a language model can follow who is meant. The values stay in the memory
of the holder of the conversation. What a detector does not find is a word like others, and is drawn.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import regex

from sanitization.text import Sanitized, TextSanitizer
from sanitization.tokens import PLACEHOLDER

_QUOTED = "QUOTED"
"""Kind of text that already looks like a placeholder: it must neither leave as it is nor be taken for one of ours."""
_WRITTEN = r"\s?(?P<kind>[A-Za-z](?:[A-Za-z0-9]|\\?_| |-){0,60})(?:\\?_| |-)(?P<number>[1-9][0-9]{0,8})\s?"
_ANY_WAY = regex.compile(
    rf"(?:\\?<{_WRITTEN}\\?>|\\u003[cC]{_WRITTEN}\\u003[eE]|＜{_WRITTEN}＞|&lt;{_WRITTEN}&gt;|\\?\[{_WRITTEN}\\?\]|\{{{_WRITTEN}\}})"
)
"""A placeholder as language models write it again: in small letters, escaped, or between other brackets."""
_JSON = regex.compile(r"[{\[]\s*(?:[\"{\[]|\Z)")
"""The beginning of an object or a list that may hold texts, or the end of a text where one may begin."""


class Found(Protocol):
    """Personal data in a text, such as a ``RecognizerResult`` of Presidio."""

    entity_type: str
    """Kind of the data: capital letters, digits, underscores."""
    start: int
    """Offset of its first character."""
    end: int
    """Offset after its last character."""


Offsets = tuple[int, int]
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
        return sum(question.epsilon_text for question in list(self._sent.values()))  # others may ask meanwhile

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
        """The answer with values for placeholders. Others than this conversation's stay as they are.

        A placeholder is known in small letters, escaped and between other brackets, too.

        Within JSON, also in the middle of a text, values are written as JSON writes them.
        """
        parts, at = [], 0
        for begin, end in _objects(answer):
            parts += [self._with_values(answer[at:begin]), self._with_values(answer[begin:end], escaped=True)]
            at = end
        return "".join([*parts, self._with_values(answer[at:])])

    def _with_values(self, text: str, *, escaped: bool = False) -> str:
        def value(match: regex.Match[str]) -> str:
            kind = match["kind"].replace("\\", "").replace(" ", "_").replace("-", "_").upper()
            found = self._values.get(f"<{kind}_{match['number']}>")
            if found is None:
                return match[0]
            return json.dumps(found, ensure_ascii=False)[1:-1] if escaped else found

        return _ANY_WAY.sub(value, text)

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
        """The text that is ready: all but a placeholder, an object or a list that has only begun."""
        text = self._begun + part
        end = _whole(text)
        self._begun = text[end:]
        return self._conversation.restore(text[:end])

    def end(self) -> str:
        """The rest of the answer, when no part follows."""
        rest, self._begun = self._begun, ""
        return self._conversation.restore(rest)


def _objects(text: str) -> Iterator[Offsets]:
    """The places of the objects and lists of JSON in a text."""
    at = 0
    while begin := _JSON.search(text, at):
        end = _end(text, begin.start())
        if end is None:
            at = begin.start() + 1
        else:
            yield begin.start(), end
            at = end


def _whole(text: str) -> int:
    """The number of characters that no later part can change the meaning of."""
    begun = next((match.start() for match in _ANY_WAY.finditer(text, partial=True) if match.partial), len(text))
    at = 0
    while begin := _JSON.search(text, at):
        end = _end(text, begin.start())
        if end is None:
            return min(begun, begin.start())
        at = end
    return begun


def _end(text: str, begin: int) -> int | None:
    """Where the object or list ends that begins there, if it is whole."""
    try:
        return json.JSONDecoder().raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return None


def _apart(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Spans in their order; those that overlap become one, of the kind that begins first."""
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]), apart[-1][2])
        elif start < end:
            apart.append((start, end, kind))
    return apart
