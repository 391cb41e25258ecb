"""What the slots say without noise. **For public exemplars only**: this is what the noise is there to hide.

Used by trials on exemplars that are public anyway, and by ``dpicl eval``. What answers from a knowledge base must not
import it; a test holds the query pipeline to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aggregation.keyword_ptr import gap, top_words
from aggregation.keywords import count_words, keywords
from aggregation.noise import from_fixed_point
from aggregation.votes import sum_votes
from service.pipeline.aggregating import (
    Aggregator,
    Answer,
    LabelVote,
    NearestCandidate,
    Outputs,
    RankedKeywords,
    TestedKeywords,
    said,
    sentence,
)

_SHOWN = 20


@dataclass(frozen=True)
class Consensus:
    """What would leave if there were no noise.

    Attributes:
        answer: as in a release.
        support: what speaks for it and for the others, the most first; at most 20, but every label.
        measure: of what: "votes" by label, without the prior; "slots" by word; or "mean similarity" (cosine) of a
            candidate to the slots' answers.
    """

    answer: Answer
    support: Mapping[str, float]
    measure: Literal["votes", "slots", "mean similarity"]


async def consensus(aggregator: Aggregator, outputs: Outputs) -> Consensus:
    """The noiseless answer of one query's slots; ``keyword_ptr`` is not tested, so it never falls back.

    Args:
        aggregator: from :func:`service.pipeline.aggregating.prepare`.
        outputs: of the slots, None for an abstention.
    """
    texts = [text for output in outputs if (text := said(output))]
    match aggregator:
        case LabelVote(mechanism=vote, labels=labels, prior=prior):
            vectors = [output for output in outputs if isinstance(output, np.ndarray)]
            votes = from_fixed_point(sum_votes(vectors, len(labels), vote.vote))
            return Consensus(
                {"label": labels[vote.select(votes, prior)]}, _most(zip(labels, votes, strict=True), None), "votes"
            )
        case NearestCandidate(mechanism=mean, texts=candidates, vectors=vectors):
            embeddings = [one for one in await aggregator.embeddings(outputs) if one is not None]
            total = from_fixed_point(mean.sum(embeddings, mean.centre(vectors)))
            cosines = vectors @ np.mean(embeddings, axis=0) if embeddings else np.zeros(len(candidates))
            text = candidates[mean.select(total, vectors)]
            support = _most(zip(candidates, cosines, strict=True))
            return Consensus({"text": text, "method": "without noise"}, support, "mean similarity")
        case RankedKeywords(mechanism=ranked, domain=domain, reconstruct=reconstruct):
            counts = count_words(keywords(text) & set(domain) for text in texts)
            top = top_words(counts, ranked.k)
            words = [*top, *[word for word in domain if word not in top][: ranked.k - len(top)]]
            return Consensus(await sentence(words, True, reconstruct), _most(counts.items()), "slots")
        case TestedKeywords(mechanism=tested, fallback=fallback, reconstruct=reconstruct):
            counts = count_words(map(keywords, texts))
            if not counts:
                none = {"text": fallback, "keywords": [], "method": "the zero-shot answer: the slots named no words"}
                return Consensus(none, {}, "slots")
            ordered = sorted(counts.values(), reverse=True) + [0] * (tested.k_max + 1)
            k = max(range(tested.k_min, tested.k_max + 1), key=lambda k: gap(ordered, k))
            words = sorted(top_words(counts, k))
            return Consensus(await sentence(words, False, reconstruct), _most(counts.items()), "slots")
    raise TypeError(f"{type(aggregator).__name__} is no mechanism known here")


def _most(support: Iterable[tuple[str, float]], count: int | None = _SHOWN) -> dict[str, float]:
    """The largest, equals by name."""
    largest = sorted(support, key=lambda item: (-item[1], item[0]))[:count]
    return {name: float(value) for name, value in largest}
