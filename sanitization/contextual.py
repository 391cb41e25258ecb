"""Cape in context: which word replaces another also depends on what a language model expects there.

Each word is drawn in a *public* context: the text before it as it was released, kept tokens and drawn words alike, and
never as it was. In a context, words are ordered by Cape's utility (:mod:`sanitization.published.cape`), and the r-th
best is drawn with a probability that depends on r alone.

**Theorem.** Let p₁..p_n be the probabilities of the ranks, and ε = ln(max p / min p). Each word has ε, all outputs of
its text together, whatever the model and its numerics.

*Proof.* In one context each row is p in some order, so P(y|x) / P(y|x′) ≤ max p / min p. Contexts follow from earlier
outputs and public tokens. Take two texts that differ in their j-th word. Their laws before it are equal, and at it,
given the outputs before, within e^ε. After it contexts are equal, given the outputs before, and so are the words, and
so are their laws. The law of all outputs is the product. ∎

With raw words in the context, as in the paper, laws after the j-th word differ as well, each of them by up to e^ε.

The ranks' law is Cape's, mixed with the uniform law until ε is what is asked for; its nominal ε is the one that costs
least in distance. It is computed from public words in :data:`CONTEXTS`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from sanitization import uniform
from sanitization.audit import Audit, admit, audit
from sanitization.cache import Kept, remember
from sanitization.causal_model import ContextModel, Reader
from sanitization.channel import OnWords
from sanitization.mechanisms import MARGIN, SMALLEST_EPSILON, Embed, Served
from sanitization.mixing import least_mixing
from sanitization.published.cape import Cape, clipped, rank_law
from sanitization.response import LARGEST_EPSILON
from sanitization.table import TOTAL, whole
from sanitization.text import LARGEST_NUMBER, Sanitized, TextSanitizer
from sanitization.tokens import Partition, Token, cased_like
from sanitization.vocabulary import FloatArray, IntArray, Vocabulary, blocks

CONTEXTS = (
    "",
    "What is the best",
    "The film was long, and the",
    "I have had a pain in my",
    "The company said on Monday that its",
    "In the summer of last year, a",
    "Please write to my",
    "My neighbour asked me whether the new",
)
"""Public texts, for calibration."""
_NOMINALS = [
    2 ** (k / 2) for k in range(-2, 23)
]  # ½ to 2,048: utilities of neighbouring buckets differ by 1/N_b at most
_LOOKED_AT = 96
_LARGEST_POWER = 10.0


@dataclass(frozen=True)
class Shape:
    """Parameters of the utility.

    Attributes:
        buckets: N_b.
        logit_power: λ_L; 0 leaves the context out.
        distance_power: λ_D.

    Raises:
        ValueError: one is out of range.
    """

    buckets: int = 50
    logit_power: float = 0.5
    distance_power: float = 1.0

    def __post_init__(self) -> None:
        if self.buckets < 2:
            raise ValueError(f"at least 2 buckets are needed, not {self.buckets}")
        for name, power in (("λ_L", self.logit_power), ("λ_D", self.distance_power)):
            if not 0 <= power <= _LARGEST_POWER:
                raise ValueError(f"{name} must be from 0 to {_LARGEST_POWER:g}, not {power}")

    def cape(self, vocabulary: Vocabulary, epsilon: float, logits: FloatArray) -> Cape:
        """Cape as published, in a context that gives words these clipped logits, (n,)."""
        return Cape(vocabulary, epsilon, self.buckets, logits, self.logit_power, self.distance_power)


@dataclass(frozen=True, eq=False)
class InContext(OnWords):
    """The channel of a word in one context.

    Args:
        weights: whole weights of the ranks, which add up to 2⁶², (n,).
        shape: parameters of the utility.
        logits: clipped logits that the context gives to words, (n,).
    """

    weights: IntArray
    shape: Shape
    logits: FloatArray

    @cached_property
    def _cape(self) -> Cape:
        return self.shape.cape(self.vocabulary, 0.0, self.logits)

    def order(self, x: IntArray) -> IntArray:
        """The words from the best to the last, for each of x, (len(x), n)."""
        return np.argsort(-self._cape.utilities(x), axis=1, kind="stable")

    @override
    def rows(self, x: IntArray) -> FloatArray:
        law = np.empty((len(x), len(self.vocabulary)))
        np.put_along_axis(law, self.order(x), np.broadcast_to(self.weights / TOTAL, law.shape), axis=1)
        return law

    def draw(self, x: IntArray) -> IntArray:
        """One output for each input of x, independently; (len(x),)."""
        rank = np.searchsorted(np.cumsum(self.weights), uniform.below(TOTAL, len(x)), side="right")
        return np.take_along_axis(self.order(x), rank[:, None], axis=1)[:, 0]

    def column(self, y: int) -> FloatArray:
        """P(y|x) for all x, (n,)."""
        column = np.empty(len(self.vocabulary))
        words = np.arange(len(self.vocabulary))
        for x in blocks(len(words)):
            utility = self._cape.utilities(x)
            own = utility[:, [y]]
            # As a stable sort has it: of equal utilities the first word's is the better.
            column[x] = self.weights[((utility > own) | ((utility == own) & (words < y))).sum(axis=1)]
        return column / TOTAL


class Step(NamedTuple):
    """A word that was drawn.

    Attributes:
        token: the word as it was.
        place: index of its row.
        channel: channel in its context.
        output: place of the word that came out.
    """

    token: Token
    place: int
    channel: InContext
    output: int


Choose = Callable[[InContext, int], int]
"""The output, for a channel and a row of it."""


@dataclass(frozen=True, eq=False)
class ContextualSanitizer(TextSanitizer):
    """A sanitiser that reads what it has released (:func:`open_contextual`); ``served``: at the beginning.

    Args:
        model: language model.
        bound: logits this far below the largest count as 0.
    """

    model: ContextModel | None = None
    bound: float = 1.0

    @property
    @override
    def guarantee(self) -> str:
        """The guarantee, in words."""
        return f"{super().guarantee} The language model on this machine reads only what is released."

    def start(self) -> Reader:
        """The model, with nothing read."""
        assert self.model is not None  # noqa: S101
        return self.model.open()

    def channel(self, reader: Reader, *, spaced: bool) -> InContext:
        """The channel of the next word of a text; ``spaced``: after a space."""
        first = self.served.channel
        assert isinstance(first, InContext)  # noqa: S101
        return replace(first, logits=clipped(reader.logits(spaced=spaced), self.bound))

    @override
    def sanitize_all(self, texts: Sequence[str]) -> list[Sanitized]:
        return [self.trace(text)[0] for text in texts]

    @override
    def laws(self, text: str) -> list[tuple[str, FloatArray]]:
        _, steps = self.trace(text)
        return [(step.token.text, step.channel.rows(np.array([step.place]))[0]) for step in steps]

    def trace(self, text: str, choose: Choose | None = None) -> tuple[Sanitized, list[Step]]:
        """Draw one text, word by word.

        Args:
            text: any Unicode, at most 2²⁰ characters.
            choose: chooses outputs, as to find how likely they are; None draws them.

        Returns:
            The sanitised text, which alone may leave, and its words as they were.

        Raises:
            sanitization.text.TextError: it is too long, or has too many unknown words.
        """
        self._check(text)
        choose = choose or (lambda channel, place: int(channel.draw(np.array([place]))[0]))
        tokens, end = self.partition.tokens(text)
        words = [token.text for token in tokens if token.kind == "word"]
        places = iter(self.served.places(self._known(words), self.embed))
        reader, steps, outputs, numbers = self.start(), list[Step](), list[str](), list[str]()
        for token, before in zip(tokens, self._spaces(tokens), strict=True):
            if token.kind != "word":
                numbers += [str(1 + int(uniform.below(LARGEST_NUMBER, 1)[0]))] if token.kind == "number" else []
                reader.read(before + (numbers[-1] if token.kind == "number" else token.text))
                continue
            # A language model's words bring the space before them.
            spaced = before.endswith(" ")
            reader.read(before.removesuffix(" "))
            place, channel = int(next(places)), self.channel(reader, spaced=spaced)
            step = Step(token, place, channel, choose(channel, place))
            steps.append(step)
            outputs.append(self._written(step))
            reader.read(" " * spaced + self._shown(step))
        return self._join(tokens, end, iter(outputs), iter(numbers)), steps

    def _written(self, step: Step) -> str:
        word = self.served.channel.outputs[step.output]
        return cased_like(word, step.token.text) if "case" in self.partition.keep else word

    def _shown(self, step: Step) -> str:
        """What the model reads of a word: only what was released, on which the guarantee depends."""
        return self._written(step)

    @staticmethod
    def _spaces(tokens: Sequence[Token]) -> Iterator[str]:
        """The white space before each token, as it is released."""
        last = None
        for kind, before, _ in tokens:
            yield " " if kind == last == "word" and not before else before
            last = kind


def open_contextual(
    load: Callable[[Sequence[str]], ContextModel],
    vocabulary: Vocabulary,
    epsilon: float,
    folder: Path,
    *,
    keep: Iterable[str] = (),
    embed: Embed | None = None,
    most_unknown: int | None = None,
    shape: Shape | None = None,
) -> ContextualSanitizer:
    """A sanitiser whose true ε for a word is at most ``epsilon`` in every context.

    Args:
        load: loads the language model, with the words that it gives logits to.
        vocabulary: public words.
        epsilon: 0.001 to 25.
        folder: folder that keeps the ranks' law.
        keep: see :class:`sanitization.tokens.Partition`.
        embed: function from strings to vectors like the vocabulary's.
        most_unknown: see :class:`sanitization.text.TextSanitizer`.
        shape: parameters of the utility.

    Raises:
        ValueError: ε is out of range, or something cannot be kept.
        sanitization.audit.RefusedChannelError: the true ε is larger.
        sanitization.vocabulary.VocabularyError: too few words.
    """
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ValueError(f"ε must be from {SMALLEST_EPSILON} to {LARGEST_EPSILON:g}, not {epsilon}")
    partition, shape = Partition(keep), shape or Shape()
    known = partition.replaceable(vocabulary)
    model = load(known.words)

    def made() -> Kept:
        seen = [_logits(model, text) for text in CONTEXTS]
        bound = float(np.mean([np.ptp(logits) for logits in seen])) or 1.0
        nominal, weights = _calibrated(known, shape, [clipped(logits, bound) for logits in seen], epsilon - MARGIN)
        first = InContext(known, weights, shape, clipped(seen[0], bound))
        found = replace(audit(first), epsilon=math.log(int(weights.max())) - math.log(int(weights.min())))
        return {"weights": weights, "logits": first.logits}, {
            "audit": asdict(found),
            "bound": bound,
            "nominal": nominal,
        }

    said = {**asdict(shape), "contexts": hashlib.sha256("\0".join(CONTEXTS).encode()).hexdigest()}
    key = f"contextual {epsilon!r} {json.dumps(said)} model {model.digest} words {known.digest}"
    arrays, about = remember(folder, key, made)
    audited = Audit(**about["audit"])
    admit(audited, epsilon)
    parameters = (
        f"λ_L {shape.logit_power:g}, λ_D {shape.distance_power:g}, {shape.buckets} buckets, "
        f"nominal {about['nominal']:.3g}, model {model.digest}"
    )
    served = Served(InContext(known, arrays["weights"], shape, arrays["logits"]), audited, parameters, known)
    return ContextualSanitizer("cape", served, partition, embed, most_unknown, model, about["bound"])


def in_contexts(sanitizer: ContextualSanitizer) -> list[InContext]:
    """Channels of the next word in each of :data:`CONTEXTS`."""
    channels = []
    for text in CONTEXTS:
        reader = sanitizer.start()
        reader.read(text)
        channels.append(sanitizer.channel(reader, spaced=bool(text)))
    return channels


def _logits(model: ContextModel, text: str) -> FloatArray:
    reader = model.open()
    reader.read(text)
    return reader.logits(spaced=bool(text))


def _calibrated(
    vocabulary: Vocabulary, shape: Shape, contexts: Sequence[FloatArray], epsilon: float
) -> tuple[float, IntArray]:
    """The nominal ε that costs least, and the weights of ranks that it gives at this true ε.

    Args:
        vocabulary: public words.
        shape: parameters of the utility.
        contexts: clipped logits in each of the public contexts.
        epsilon: true ε.
    """
    n = len(vocabulary)
    x = np.unique(np.linspace(0, n - 1, _LOOKED_AT).astype(np.int64))
    shares = vocabulary.shares[x] / vocabulary.shares[x].sum()
    distance = vocabulary.distances(x) ** 2 / 2
    counts, sums, cost = np.zeros(shape.buckets), np.zeros(shape.buckets), np.zeros(n)
    for logits in contexts:
        cape = shape.cape(vocabulary, 0.0, logits)
        _, count, mean = cape.bucketed(x)
        counts += count.sum(axis=0)
        sums += (count * mean).sum(axis=0)
        order = np.argsort(-cape.utilities(x), axis=1, kind="stable")
        cost += shares @ np.take_along_axis(distance, order, axis=1)

    def law(nominal: float) -> FloatArray:
        ranks = rank_law(counts, sums, len(x) * len(contexts), nominal / 2)  # Δ is 1
        beta, base = least_mixing(np.full(n, ranks.max()), np.full(n, ranks.min()), epsilon)
        return (1 - beta) * ranks + beta * base

    nominal = min(_NOMINALS, key=lambda value: float(law(value) @ cost))
    return nominal, np.diff(whole(law(nominal)[None])[0], prepend=0)
