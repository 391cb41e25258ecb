"""Texts cut into tokens, and what of them is public.

A token is a *number*, a *punctuation* mark, a *placeholder* such as ``<NAME_1>``, a *stopword*, or a *word*, which is
whatever else comes without white space: letters of any script, emoji, control characters. What is not known to be
harmless is a word, and so replaced.

Public by declaration are the number and order of tokens, the class of each, and white space; and what is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import regex

from sanitization.stopwords import STOPWORDS
from sanitization.vocabulary import Vocabulary

Kind = Literal["word", "number", "stopword", "punctuation", "placeholder"]
Keepable = Literal["stopwords", "punctuation", "placeholders", "case"]
KEEPABLE: tuple[Keepable, ...] = get_args(Keepable)
KEPT: tuple[Keepable, ...] = ("stopwords", "punctuation")
"""Classes that are kept by default."""

_MARKS = r"\p{P}$+<=>^`|~"
PLACEHOLDER = regex.compile(r"<[A-Z][A-Z0-9_]*>")
_OTHERS = rf"(?P<number>\p{{N}}+(?:[.,:/-]\p{{N}}+)*)|(?P<punctuation>[{_MARKS}])|(?P<word>[^\s\p{{N}}{_MARKS}]+)"


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: class of the token.
        before: the white space before it.
        text: text of the token.
    """

    kind: Kind
    before: str
    text: str


@dataclass(frozen=True)
class Partition:
    """The classes of a text's tokens.

    Args:
        keep: classes that are public as they are, and ``case``: whether a word begins with a capital, or is all
            capitals. What is not kept counts as words; a placeholder then as two marks and a word.

    Raises:
        ValueError: something else is to be kept.
    """

    keep: frozenset[Keepable]

    def __init__(self, keep: Iterable[str] = ()) -> None:
        kept = frozenset(keep)
        if unknown := sorted(kept.difference(KEEPABLE)):
            raise ValueError(f"{', '.join(map(repr, unknown))} cannot be kept: only {', '.join(KEEPABLE)} can")
        object.__setattr__(self, "keep", kept)

    @cached_property
    def _pattern(self) -> regex.Pattern[str]:
        placeholder = f"(?P<placeholder>{PLACEHOLDER.pattern})|" if "placeholders" in self.keep else ""
        return regex.compile(placeholder + _OTHERS)

    def tokens(self, text: str) -> tuple[list[Token], str]:
        """The tokens of a text in their order, and the white space after the last of them."""
        tokens, end = [], 0
        for match in self._pattern.finditer(text):
            start = match.start()
            tokens.append(Token(self._kind(match.lastgroup, match[0]), text[end:start], match[0]))
            end = match.end()
        return tokens, text[end:]

    def replaceable(self, vocabulary: Vocabulary) -> Vocabulary:
        """The words of a vocabulary that are tokens of the class ``word``: what may go in, and come out.

        Raises:
            sanitization.vocabulary.VocabularyError: fewer than two are.
        """
        chosen = [at for at, word in enumerate(vocabulary.words) if self._is_word(word)]
        words = [vocabulary.words[at] for at in chosen]
        return Vocabulary(words, vocabulary.vectors[np.array(chosen, int)], vocabulary.shares[np.array(chosen, int)])

    def _is_word(self, word: str) -> bool:
        match = self._pattern.fullmatch(word)
        return match is not None and match.lastgroup == "word" and self._kind("word", word) == "word"

    def _kind(self, group: Kind, text: str) -> Kind:
        """The class of what a group of the pattern matched."""
        if group == "word" and "stopwords" in self.keep and text.lower() in STOPWORDS:
            return "stopword"
        if group == "punctuation" and "punctuation" not in self.keep:
            return "word"
        return group


def cased_like(word: str, example: str) -> str:
    """A word with the case of another one: all capitals, a capital first, or as it is."""
    if len(example) > 1 and all(map(str.isupper, example)):
        return word.upper()
    return word[:1].upper() + word[1:] if example[:1].isupper() else word
