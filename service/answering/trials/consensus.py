"""The slots' answer without noise. **For public exemplars only**: this is what the noise is there to hide.

Used by trials on exemplars that are public anyway, and by ``dpicl eval``. What answers from a knowledge base must not
import it; a test holds the query pipeline to that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import singledispatch
from typing import Literal

import numpy as np
from typing_extensions import override

from aggregation.keyword_ptr import gap, top_words
from aggregation.keywords import count_words, keywords
from aggregation.noise import from_fixed_point
from aggregation.token_ensemble import GRID, TokenEnsemble
from aggregation.votes import sum_votes
from exemplar_store import Slot
from service.answering.mechanisms.adapter import Aggregator, Answer, Author, Outputs, sentence, text_of
from service.answering.mechanisms.common_sentences import SharedSentences
from service.answering.mechanisms.embedding_mean import NearestCandidate
from service.answering.mechanisms.keyword_joint_em import RankedKeywords
from service.answering.mechanisms.keyword_ptr import TestedKeywords
from service.answering.mechanisms.rnm_gaussian import LabelVote
from service.answering.stages import Ready

_SHOWN = 20


@dataclass(frozen=True)
class Consensus:
    """The answer that would leave if there were no noise.

    Attributes:
        answer: the answer in the form of a release.
        support: support for it and for the others, the most first; at most 20, but every label.
        measure: unit of the support: "votes" by label, without the prior; "slots" by word; or "mean similarity"
            (cosine) of a candidate to the slots' answers.
    """

    answer: Answer
    support: Mapping[str, float]
    measure: Literal["votes", "slots", "mean similarity"]


@singledispatch
async def consensus(ready: Aggregator, outputs: Outputs) -> Consensus:
    """The noiseless answer of one query's slots; each mechanism registers its own.

    Args:
        ready: the mechanism, from its adapter's ``prepare``.
        outputs: outputs of the slots, None for an abstention.

    Raises:
        TypeError: none is registered.
    """
    raise TypeError(f"{type(ready).__name__} registers no noiseless answer")


@consensus.register
async def _most_voted(ready: LabelVote, outputs: Outputs) -> Consensus:
    """The consensus of ``rnm_gaussian``."""
    votes = [output for output in outputs if isinstance(output, np.ndarray)]
    labels = ready.task.labels
    summed = from_fixed_point(sum_votes(votes, len(labels), ready.mechanism.vote))
    label = labels[ready.mechanism.select(summed, ready.prior)]
    return Consensus({"label": label}, most(zip(labels, summed, strict=True), None), "votes")


@consensus.register
async def _nearest_candidate(ready: NearestCandidate, outputs: Outputs) -> Consensus:
    """The consensus of ``embedding_mean``."""
    mean, vectors = ready.mechanism, ready.vectors
    embeddings = [vector for vector in await ready.embeddings(outputs) if vector is not None]
    total = from_fixed_point(mean.sum(embeddings, mean.centre(vectors)))
    cosines = vectors @ np.mean(embeddings, axis=0) if embeddings else np.zeros(len(ready.texts))
    answer = {"text": ready.texts[mean.select(total, vectors)], "method": "without noise"}
    return Consensus(answer, most(zip(ready.texts, cosines, strict=True)), "mean similarity")


@consensus.register
async def _ranked_words(ready: RankedKeywords, outputs: Outputs) -> Consensus:
    """The consensus of ``keyword_joint_em``."""
    k, domain = ready.mechanism.k, ready.domain
    counts = count_words(keywords(text) & set(domain) for text in texts_of(outputs))
    top = top_words(counts, k)
    words = [*top, *[word for word in domain if word not in top][: k - len(top)]]
    return Consensus(await sentence(words, True, ready.reconstruct), most(counts.items()), "slots")


@consensus.register
async def _frequent_words(ready: TestedKeywords, outputs: Outputs) -> Consensus:
    """The consensus of ``keyword_ptr``; the words are not tested, so it falls back only where there are none."""
    counts = count_words(map(keywords, texts_of(outputs)))
    if not counts:
        none = {"text": ready.fallback, "keywords": [], "method": "the zero-shot answer: the slots named no words"}
        return Consensus(none, {}, "slots")
    ordered = sorted(counts.values(), reverse=True) + [0] * (ready.mechanism.k_max + 1)
    k = max(range(ready.mechanism.k_min, ready.mechanism.k_max + 1), key=lambda k: gap(ordered, k))
    words = sorted(top_words(counts, k))
    return Consensus(await sentence(words, False, ready.reconstruct), most(counts.items()), "slots")


@consensus.register
async def _shared_sentences(ready: SharedSentences, outputs: Outputs) -> Consensus:
    """The consensus of ``common_sentences``: sentences of at least two slots, as no other is common."""
    counts = ready.mechanism.count(ready.contributions(outputs))
    shared = most(((text, count) for text, count in counts.items() if count > 1), None)
    return Consensus(await ready.answer(shared), dict(list(shared.items())[:_SHOWN]), "slots")


class Likeliest(TokenEnsemble):
    """Takes the likeliest token, without drawing."""

    @override
    def draw(self, public: np.ndarray, opinions: Iterable[np.ndarray | None]) -> int:
        moved = sum((opinion for opinion in opinions if opinion is not None), np.zeros(public.shape))
        return int(np.argmax(public / self.temperature + self.pull / GRID * moved))


@dataclass(frozen=True)
class _Noiseless(Aggregator):
    """Releases a mechanism's noiseless answer."""

    ready: Aggregator

    @override
    async def release(self, outputs: Outputs) -> Answer:
        return (await consensus(self.ready, outputs)).answer


async def likeliest(author: Author, ready: Ready, slots: Sequence[Slot]) -> Consensus:
    """The consensus of ``token_ensemble``: the slots' text if the likeliest token is taken each time."""
    writing = replace(author.writing, ensemble=Likeliest(**asdict(author.writing.ensemble)))
    before = None if author.before is None else _Noiseless(author.before)
    sure = replace(author, writing=writing, before=before)  # type: ignore[type-var]
    return Consensus(await replace(ready, mechanism=sure).answer(slots), {}, "slots")


def texts_of(outputs: Outputs) -> list[str]:
    """The slots' texts, without blank ones."""
    return [text for output in outputs if (text := text_of(output))]


def most(support: Iterable[tuple[str, float]], count: int | None = _SHOWN) -> dict[str, float]:
    """The largest, equals by name."""
    largest = sorted(support, key=lambda item: (-item[1], item[0]))[:count]
    return {name: float(value) for name, value in largest}
