"""Types of spans: that of a span's own phrase, else that of the phrase nearest to it in meaning.

The paper trains a classifier (BERT and a perceptron). Here the phrases of all types are public, and a span has the
type of the phrase whose embedding has the greatest cosine with its own, if that is at least a public threshold.

A type decides which profile is the true one, and nothing else: it never leaves. That randomised response hides the
profile does not depend on how the profile is found (:mod:`sanitization.restore.mechanism`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import regex
from pydantic import BaseModel, ConfigDict, Field, field_validator

from sanitization.restore import encoder
from sanitization.restore.spans import Offsets, SpanNotFoundError, find, normal_form
from sanitization.stopwords import STOPWORDS
from sanitization.vocabulary import FloatArray

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:['’-][\p{L}\p{M}\p{N}]+)*")
_MOST_WORDS = 8
_FIELD = "{span}"


class Meaning(BaseModel):
    """How meanings are compared. Public, like all of a bundle."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    template: str = Field(
        default="I am suffering from {span}.",
        description="A sentence that spans are embedded in: single words alone are hard to compare.",
    )
    threshold: float = Field(default=0.67, gt=0, le=1, description="The least cosine of a span with a known phrase.")

    @field_validator("template")
    @classmethod
    def _has_field(cls, template: str) -> str:
        if template.count(_FIELD) != 1:
            raise ValueError(f"the template must have {_FIELD} once")
        return template


@dataclass(frozen=True, eq=False)
class SpanTypes:
    """The types that a bundle knows.

    Attributes:
        phrases: the type of each phrase; phrases in normal form.
        meaning: comparison by which other spans get a type; None: they have none.
    """

    phrases: Mapping[str, str]
    meaning: Meaning | None = None

    @property
    def by_meaning(self) -> bool:
        """Whether spans get types by their meaning here: the bundle has it, and the encoder is installed."""
        return self.meaning is not None and encoder.available()

    def of(self, spans: Sequence[str]) -> list[str | None]:
        """The type of each span; None of one that is like no known phrase.

        All spans are embedded, known or not, and an empty one where there is none: so the time that a question takes
        does not show whether its spans are known phrases.
        """
        known = [self.phrases.get(normal_form(span)) for span in spans]
        if self.meaning is None or not self.by_meaning:
            return known
        near = self._nearest(self.meaning, spans or [""])
        return [one or other for one, other in zip(known, near, strict=False)]

    def find(self, text: str) -> list[str]:
        """Strings of a text that have a type, in order; of those that overlap the longest.

        Known phrases are found however they are written. By meaning, runs of words with white space between them are
        compared, up to one word longer than any known phrase, that neither begin nor end with a stopword.

        Raises:
            sanitization.restore.encoder.EncoderMissingError: the bundle goes by meaning, and the encoder is missing.
        """
        places = [place for phrase in self.phrases for place in _found(text, phrase)]
        if self.meaning is not None:
            runs = list(self._runs(text))
            strings = list(dict.fromkeys(text[start:end] for start, end in runs))
            types = dict(zip(strings, self._nearest(self.meaning, strings), strict=True)) if strings else {}
            places += [(start, end) for start, end in runs if types[text[start:end]] is not None]
        chosen: list[Offsets] = []
        for start, end in sorted(places, key=lambda place: (place[0] - place[1], place)):
            if not any(start < other_end and other_start < end for other_start, other_end in chosen):
                chosen.append((start, end))
        return list(dict.fromkeys(text[start:end] for start, end in sorted(chosen)))

    def _runs(self, text: str) -> Iterator[Offsets]:
        words = list(_WORD.finditer(text))
        longest = min(_MOST_WORDS, 1 + max((len(phrase.split()) for phrase in self.phrases), default=0))
        for first, begin in enumerate(words):
            for last, end in enumerate(words[first : first + longest], first):
                if last > first and text[words[last - 1].end() : end.start()].strip():
                    break
                if {begin.group().casefold(), end.group().casefold()} & STOPWORDS:
                    continue
                yield begin.start(), end.end()

    @cached_property
    def _vectors(self) -> FloatArray:
        return _embed(self.meaning or Meaning(), list(self.phrases))

    def _nearest(self, meaning: Meaning, spans: Sequence[str]) -> list[str | None]:
        cosines = _embed(meaning, spans) @ self._vectors.T
        names, best = list(self.phrases.values()), cosines.argmax(axis=1)
        near = cosines[range(len(spans)), best] >= meaning.threshold
        return [names[at] if here else None for at, here in zip(best, near, strict=True)]


def _embed(meaning: Meaning, spans: Sequence[str]) -> FloatArray:
    return encoder.embed([meaning.template.replace(_FIELD, " ".join(span.split())) for span in spans])


def _found(text: str, phrase: str) -> list[Offsets]:
    try:
        return find(text, [phrase])
    except SpanNotFoundError:
        return []
