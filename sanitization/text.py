"""Whole texts: every word drawn from an audited channel, every number from a uniform law, the rest as it is.

Two texts that differ in one word, by a word, have laws within e^ε of each other, ε being the channel's. Each word is
drawn by itself, so a text of n words is protected by nε as a whole. Numbers cost nothing: what comes out is the same
whatever number goes in.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from sanitization import uniform
from sanitization.audit import Audit
from sanitization.mechanisms import Embed, Served, serve
from sanitization.tokens import Kind, Partition, Token, cased_like
from sanitization.vocabulary import FloatArray, Vocabulary

LARGEST_NUMBER = 1000
LONGEST_TEXT = 1 << 20
"""Characters."""


class TextError(ValueError):
    """A text that cannot be sanitised."""


@dataclass(frozen=True)
class Sanitized:
    """A text that may leave. It does not show which words were changed.

    Attributes:
        text: sanitised text.
        charged: number of words drawn.
        epsilon_token: true ε of each of them.
        classes: class of each token, which is public.
    """

    text: str
    charged: int
    epsilon_token: float
    classes: tuple[Kind, ...]

    @property
    def tokens(self) -> int:
        """Number of tokens, kept ones included."""
        return len(self.classes)

    @property
    def epsilon_text(self) -> float:
        """ε of the text as a whole."""
        return self.charged * self.epsilon_token

    def document(self) -> dict[str, Any]:
        """The result as values for JSON."""
        return {name: getattr(self, name) for name in ("text", "tokens", "epsilon_token", "epsilon_text")}


@dataclass(frozen=True)
class Artifact:
    """A sanitiser in full: all that the law of its outputs depends on.

    Attributes:
        mechanism: name of the mechanism.
        parameters: parameters chosen for it.
        keep: features of a text that are public as they are.
        unknown: row that an unknown word takes: that of the nearest word, or of any.
        words: number of words that it knows.
        vocabulary: SHA-256 of words, vectors and frequencies.
        outputs: SHA-256 of the words that can come out.
        audit: audit of the channel that draws.
    """

    mechanism: str
    parameters: str
    keep: tuple[str, ...]
    unknown: Literal["nearest", "any"]
    words: int
    vocabulary: str
    outputs: str
    audit: Audit

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all this."""
        return hashlib.sha256(json.dumps(self.document(), sort_keys=True).encode()).hexdigest()

    def document(self) -> dict[str, Any]:
        """The same as values for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class TextSanitizer:
    """Replaces the words of texts. It holds no state, so threads may share it; copies of a text are drawn anew.

    Args:
        name: name of the mechanism.
        served: audited channel.
        partition: partition of tokens into public and private ones.
        embed: finds the known word nearest to an unknown one; without it, any known word may stand for an unknown one.
        most_unknown: number of different unknown words that are embedded at once; None: any number.
    """

    name: str
    served: Served
    partition: Partition
    embed: Embed | None = None
    most_unknown: int | None = None

    unit: ClassVar[Literal["word", "text"]] = "word"
    """Unit that ε protects."""

    @cached_property
    def artifact(self) -> Artifact:
        """The description of this sanitiser."""
        outputs = "\0".join(self.served.channel.outputs).encode(errors="surrogatepass")
        return Artifact(
            mechanism=self.name,
            parameters=self.served.parameters,
            keep=tuple(sorted(self.partition.keep)),
            unknown="any" if self.embed is None else "nearest",
            words=len(self.served.vocabulary),
            vocabulary=self.served.vocabulary.digest,
            outputs=hashlib.sha256(outputs).hexdigest(),
            audit=self.served.audit,
        )

    @property
    def epsilon(self) -> float:
        """True ε of a :attr:`unit`, as audited."""
        return self.served.audit.epsilon

    @property
    def guarantee(self) -> str:
        """The guarantee, in words."""
        return (
            f"Each word by itself is protected by local differential privacy with ε = {self.epsilon:.6g}, audited over "
            "all words; a text by the sum over its words. Neighbouring words may reveal more about a word."
        )

    @property
    def released_as_public(self) -> list[str]:
        """The parts of a text that are not protected, in words."""
        kept = ["capitals" if name == "case" else name for name in sorted(self.partition.keep)]
        return [
            "the number and order of tokens",
            "which of them are words, numbers, and what is kept",
            "white space",
            *kept,
            "which texts are repeated",
        ]

    def document(self) -> dict[str, Any]:
        """The sanitiser's guarantee and description, as values for JSON."""
        return {
            "guarantee": self.guarantee,
            "released_as_public": self.released_as_public,
            "artifact": {"sha256": self.artifact.digest, **self.artifact.document()},
        }

    def sanitize(self, text: str) -> Sanitized:
        """Draw one text; see :meth:`sanitize_all`."""
        return self.sanitize_all([text])[0]

    def sanitize_all(self, texts: Sequence[str]) -> list[Sanitized]:
        """Draw texts, each as if it were alone.

        Args:
            texts: any Unicode, at most 2²⁰ characters each. Half a surrogate pair is a character like others.

        Raises:
            TextError: one is too long, or they have too many unknown words.
        """
        for text in texts:
            self._check(text)
        cut = [self.partition.tokens(text) for text in texts]
        everything = [token for tokens, _ in cut for token in tokens]
        words = [token.text for token in everything if token.kind == "word"]
        drawn: Iterator[str] = iter(self.served.replace(self._known(words), self.embed))
        if "case" in self.partition.keep:
            drawn = map(cased_like, drawn, words)
        numbers = map(str, 1 + uniform.below(LARGEST_NUMBER, sum(token.kind == "number" for token in everything)))
        return [self._join(tokens, end, drawn, numbers) for tokens, end in cut]

    def embeds(self, texts: Sequence[str]) -> bool:
        """Whether sanitising these texts takes embeddings: of a word, or a whole text, that is not known."""
        words = (token.text for text in texts for token in self.partition.tokens(text)[0] if token.kind == "word")
        return self.embed is not None and any(word not in self.served.vocabulary.index for word in self._spelt(words))

    def _check(self, text: str) -> None:
        if len(text) > LONGEST_TEXT:
            raise TextError(f"a text has at most {LONGEST_TEXT:,} characters: sanitise it in parts")

    def laws(self, text: str) -> list[tuple[str, FloatArray]]:
        """Each word of a text with the law of its replacement, over the channel's outputs: to be shown, not to be sent.

        Raises:
            TextError: the text is too long, or has too many unknown words.
        """
        self._check(text)
        words = [token.text for token in self.partition.tokens(text)[0] if token.kind == "word"]
        places = self.served.places(self._known(words), self.embed)
        return list(zip(words, self.served.channel.rows(places), strict=True))

    def _known(self, words: Sequence[str]) -> list[str]:
        """Words as the vocabulary has them, if it does."""
        known, spelt = self.served.vocabulary.index, [*self._spelt(words)]
        # Not some of them: whether a word is embedded must not depend on the words beside it.
        if self.embed and self.most_unknown is not None and len(set(spelt) - known.keys()) > self.most_unknown:
            raise TextError(f"more than {self.most_unknown} different words are unknown: sanitise less at once")
        return spelt

    def _spelt(self, words: Iterable[str]) -> Iterator[str]:
        known = self.served.vocabulary.index
        return (word if word in known else word.lower() for word in words)

    def _join(self, tokens: Sequence[Token], end: str, drawn: Iterator[str], numbers: Iterator[str]) -> Sanitized:
        parts: list[str] = []
        last: Kind | None = None
        for kind, before, text in tokens:
            # Marks that are not kept have become words, and two words need a space between them.
            parts.append(" " if kind == last == "word" and not before else before)
            parts.append(next(drawn) if kind == "word" else next(numbers) if kind == "number" else text)
            last = kind
        classes = tuple(token.kind for token in tokens)
        return Sanitized("".join([*parts, end]), classes.count("word"), self.epsilon, classes)


def open_sanitizer(
    name: str,
    vocabulary: Vocabulary,
    epsilon: float,
    folder: Path,
    *,
    keep: Iterable[str] = (),
    embed: Embed | None = None,
    most_unknown: int | None = None,
) -> TextSanitizer:
    """A sanitiser whose true ε for a word is at most ``epsilon``. It announces the audited ε.

    Args:
        name: name of the mechanism.
        vocabulary: public words.
        epsilon: 0.001 to 25.
        folder: folder that keeps the tables.
        keep: see :class:`sanitization.tokens.Partition`.
        embed: function from strings to vectors like the vocabulary's.
        most_unknown: see :class:`TextSanitizer`.

    Raises:
        ValueError: ε is out of range, or something cannot be kept.
        sanitization.audit.RefusedChannelError: the audit finds a larger ε.
        sanitization.table.TableError: the table would be too large, or is damaged.
        sanitization.vocabulary.VocabularyError: too few words or too many.
        LookupError: no such mechanism.
    """
    partition = Partition(keep)
    served = serve(name, partition.replaceable(vocabulary), epsilon, folder)
    return TextSanitizer(name, served, partition, embed, most_unknown)
