"""From the slots' outputs to the one public object that leaves: one class for each mechanism.

Each is made from public things only, by :func:`prepare`, which refuses what cannot be answered while the charge can
still be voided. Its ``release`` then sees the slots' outputs. From there nothing fails: an unusable output abstains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting.mechanisms import (
    EmbeddingMeanMechanism,
    KeywordJointEmMechanism,
    KeywordPtrMechanism,
    RnmGaussianMechanism,
)
from accounting.plan import TaskNoise
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease
from accounting.tasks import ClassifyTask, GenerateTask
from aggregation import keyword_ptr
from aggregation.embedding_mean import EmbeddingMean, unit_candidates
from aggregation.keyword_joint_em import JointExponentialMechanism
from aggregation.keywords import keywords
from aggregation.rnm_gaussian import RnmGaussian
from service.embedding.embedder import TextEmbedder
from service.engines.protocol import Embedded, Output, Sentence, ZeroShot
from service.pipeline.private_threads import privately
from service.pipeline.queries import InvalidQueryError

Outputs = Sequence[Output | None]
Answer = Mapping[str, str | bool | Sequence[str]]
"""What leaves: ``label``; or ``text`` with ``method``, and where there are such, ``keywords`` and ``fallback``."""

Reconstruct = Callable[[Sequence[str], bool], Awaitable[Sentence]]
"""Released words, and whether they are ranked, to a sentence; never raises."""


class Aggregator(Protocol):
    """A mechanism, ready for one query."""

    async def release(self, outputs: Outputs) -> Answer:
        """Release one answer, with noise; one output per slot, None for an abstention."""


@dataclass(frozen=True)
class LabelVote:
    """The label of the largest noisy vote."""

    mechanism: RnmGaussian
    labels: Sequence[str]
    prior: np.ndarray

    async def release(self, outputs: Outputs) -> Answer:
        """See :class:`Aggregator`."""
        votes = [output if isinstance(output, np.ndarray) else None for output in outputs]
        return {"label": self.labels[await privately(lambda: self.mechanism.release(votes, self.prior))]}


@dataclass(frozen=True)
class NearestCandidate:
    """The public candidate nearest to the noisy sum of the outputs' embeddings.

    Attributes:
        mechanism: adds up and draws noise.
        texts: the candidates.
        vectors: their embeddings, shape (candidates, d).
        slots: how many outputs there are, or more; public.
        embedder: for the outputs; None where they come with their embeddings.
    """

    mechanism: EmbeddingMean
    texts: Sequence[str]
    vectors: np.ndarray
    slots: int
    embedder: TextEmbedder | None

    async def release(self, outputs: Outputs) -> Answer:
        """See :class:`Aggregator`."""
        embeddings = await self.embeddings(outputs)
        chosen = await privately(lambda: self.mechanism.release(embeddings, self.vectors))
        return {"text": self.texts[chosen], "method": "the public candidate that the slots' answers are nearest to"}

    async def embeddings(self, outputs: Outputs) -> list[np.ndarray | None]:
        """One for each output, None for an abstention. Takes the same work whatever the outputs say."""
        if self.embedder is None:
            return [output.embedding if isinstance(output, Embedded) and said(output) else None for output in outputs]
        embed, texts = self.embedder.embed_bounded, [said(output) for output in outputs]
        texts += [None] * (self.slots - len(texts))
        try:
            vectors: Sequence[np.ndarray | None] = list(await privately(lambda: embed(texts)))
        except Exception:  # each by itself: none may silence the others
            vectors = [await _embed_alone(embed, text) for text in texts]
        return [vector if text else None for text, vector in zip(texts, vectors, strict=True)][: len(outputs)]


@dataclass(frozen=True)
class RankedKeywords:
    """An ordered sequence of words of a public domain, and a sentence made of them."""

    mechanism: JointExponentialMechanism
    domain: Sequence[str]
    reconstruct: Reconstruct

    async def release(self, outputs: Outputs) -> Answer:
        """See :class:`Aggregator`."""
        words = await privately(lambda: self.mechanism.release(map(_keywords, outputs), self.domain))
        return await sentence(words, True, self.reconstruct)


@dataclass(frozen=True)
class TestedKeywords:
    """The most frequent words if they stand out, and a sentence made of them; else the zero-shot answer."""

    mechanism: keyword_ptr.ProposeTestRelease
    fallback: str
    reconstruct: Reconstruct

    async def release(self, outputs: Outputs) -> Answer:
        """See :class:`Aggregator`."""
        words = await privately(lambda: self.mechanism.release(map(_keywords, outputs)))
        if not words:
            method = "the zero-shot answer, which saw no exemplar: no words stood out enough"
            return {"text": self.fallback, "keywords": [], "fallback": True, "method": method}
        return {**await sentence(words, False, self.reconstruct), "fallback": False}


async def prepare(
    task: ClassifyTask | GenerateTask,
    noise: TaskNoise,
    query: Mapping[str, str],
    zero_shot: ZeroShot,
    *,
    embedder: TextEmbedder,
    reconstruct: Reconstruct,
) -> Aggregator:
    """The task's mechanism, ready for a query. Sees public things only.

    Args:
        task: the signed task.
        noise: its noise.
        query: the query's fields.
        zero_shot: the engine's public output.
        embedder: for candidates and outputs.
        reconstruct: makes a sentence of released words.

    Raises:
        InvalidQueryError: no candidates, or too small a domain of words.
        ValueError: the engine's zero-shot output is unusable.
    """
    if isinstance(task, ClassifyTask) and isinstance(written := task.mechanism, RnmGaussianMechanism):
        vote = RnmGaussian(_gaussian(noise), len(task.labels), written.vote, prior_weight=written.prior_weight)
        return LabelVote(vote, task.labels, _label_distribution(zero_shot, task))
    assert isinstance(task, GenerateTask)  # noqa: S101  # nosec B101
    candidates = [text.strip() for text in zero_shot.texts[: task.candidates] if text.strip()]
    if not candidates:
        raise InvalidQueryError(
            "no zero-shot answer to choose from: an admin can list public_answers in the plan or name the "
            "document_field, or use an engine that writes text"
        )
    match task.mechanism, noise.mechanism:
        case EmbeddingMeanMechanism() as m, Gaussian(noise_multiplier=z):
            vectors = unit_candidates(await asyncio.to_thread(embedder.embed, candidates))
            mean = EmbeddingMean(z, m.radius, m.centred, task.ensemble)
            missing = None if zero_shot.embedded else embedder
            return NearestCandidate(mean, candidates, vectors, task.ensemble, missing)
        case KeywordJointEmMechanism() as m, BoundedRange(epsilon=epsilon):
            domain = public_domain(query, [*candidates, *task.public_answers])
            if len(domain) < m.k:
                raise InvalidQueryError(
                    f"the query and its zero-shot answers have {len(domain)} different keywords, and this task "
                    f"releases {m.k}: ask with more words"
                )
            return RankedKeywords(JointExponentialMechanism(epsilon, m.k), domain, reconstruct)
        case KeywordPtrMechanism() as m, ProposeTestRelease(epsilon=epsilon, noise_multiplier=z, delta0=delta0):
            mechanism = keyword_ptr.ProposeTestRelease(epsilon, z, delta0, m.k_min, m.k_max)
            return TestedKeywords(mechanism, candidates[0], reconstruct)
    raise TypeError(f"{task.mechanism.type} cannot be released with {noise.mechanism}")


def public_domain(query: Mapping[str, str], answers: Sequence[str]) -> list[str]:
    """The words a keyword release may choose from: those of the query and of public answers, sorted."""
    return sorted(frozenset[str]().union(*map(keywords, [*query.values(), *answers])))


def _gaussian(noise: TaskNoise) -> float:
    if not isinstance(noise.mechanism, Gaussian):
        raise TypeError(f"votes cannot be released with {noise.mechanism}")
    return noise.mechanism.noise_multiplier


def _label_distribution(zero_shot: ZeroShot, task: ClassifyTask) -> np.ndarray:
    """The engine's public opinion, checked before anything private is read."""
    prior = np.asarray(zero_shot.probabilities, dtype=np.float64)
    if prior.shape != (len(task.labels),) or not np.isfinite(prior).all():
        raise ValueError("the engine's zero-shot output is no distribution over the labels")
    return prior


async def sentence(words: Sequence[str], ordered: bool, reconstruct: Reconstruct) -> dict[str, str | Sequence[str]]:
    """An answer of released words, and a sentence made of them."""
    made = await reconstruct(words, ordered)
    return {"text": made.text, "keywords": list(words), "method": made.method}


def said(output: Output | None) -> str | None:
    """What an output says, if it is a text with something in it."""
    text = output.text if isinstance(output, Embedded) else output
    return text if isinstance(text, str) and text.strip() else None


async def _embed_alone(embed: Callable[[Sequence[str | None]], np.ndarray], text: str | None) -> np.ndarray | None:
    try:
        return np.asarray((await privately(lambda: embed([text])))[0])
    except Exception:
        return None


def _keywords(output: Output | None) -> frozenset[str] | None:
    text = said(output)
    return keywords(text) if text is not None else None
