"""``embedding_mean``: the public candidate nearest to the noisy sum of the outputs' embeddings."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from accounting.plans.mechanisms import EmbeddingMeanMechanism
from accounting.privacy.profiles import Gaussian
from aggregation.embedding_mean import TYPICAL_SIMILARITY, EmbeddingMean, unit_candidates
from service.answering.mechanisms.adapter import Aggregator, Answer, Outputs, Public, TextAdapter, text_of
from service.answering.mechanisms.outlook import RELIABLE, REMEDIES, Outlook
from service.engines.embedding.embedder import TextEmbedder
from service.engines.private_threads import privately
from service.engines.task import Embedded


@dataclass(frozen=True)
class NearestCandidate(Aggregator):
    """The public candidate nearest to the noisy sum of the outputs' embeddings.

    Attributes:
        mechanism: adds up and draws noise.
        texts: the candidates.
        vectors: embeddings of the candidates, shape (candidates, d).
        slots: number of outputs, or more; public.
        embedder: embedder of the outputs; None where they come with their embeddings.
    """

    mechanism: EmbeddingMean
    texts: Sequence[str]
    vectors: np.ndarray
    slots: int
    embedder: TextEmbedder | None

    @override
    async def release(self, outputs: Outputs) -> Answer:
        embeddings = await self.embeddings(outputs)
        chosen = await privately(lambda: self.mechanism.release(embeddings, self.vectors))
        return {"text": self.texts[chosen], "method": "the public candidate that the slots' answers are nearest to"}

    async def embeddings(self, outputs: Outputs) -> list[np.ndarray | None]:
        """One for each output, None for an abstention. The work is the same whatever the outputs are."""
        if self.embedder is None:
            return [
                output.embedding if isinstance(output, Embedded) and text_of(output) else None for output in outputs
            ]
        embed, texts = self.embedder.embed_bounded, [text_of(output) for output in outputs]
        texts += [None] * (self.slots - len(texts))
        try:
            vectors: Sequence[np.ndarray | None] = list(await privately(lambda: embed(texts)))
        except Exception:  # each by itself: none may silence the others
            vectors = [await _embed_alone(embed, text) for text in texts]
        return [vector if text else None for text, vector in zip(texts, vectors, strict=True)][: len(outputs)]


async def _embed_alone(embed: Callable[[Sequence[str | None]], np.ndarray], text: str | None) -> np.ndarray | None:
    try:
        return np.asarray((await privately(lambda: embed([text])))[0])
    except Exception:
        return None


class EmbeddingMeanAdapter(TextAdapter[EmbeddingMeanMechanism, Gaussian]):
    """The adapter of ``embedding_mean``."""

    schema = EmbeddingMeanMechanism
    profile = Gaussian
    example = EmbeddingMeanMechanism(type="embedding_mean")
    about = "The public candidate that the slots' answers are nearest to."
    plainly = (
        "Each slot answers in words. Random noise is added to the average of what the answers mean, and the "
        "nearest of the answers that an admin had listed as public leaves: no answer of a slot does."
    )

    @property
    def mechanism(self) -> EmbeddingMean:
        """The signed one."""
        return EmbeddingMean(self.noise.noise_multiplier, self.written.radius, self.written.centred, self.task.ensemble)

    @override
    async def prepare(self, public: Public) -> NearestCandidate:
        candidates = self.candidates(public.zero_shot)
        vectors = unit_candidates(await asyncio.to_thread(public.embedder.embed, candidates))
        missing = None if public.zero_shot.embedded else public.embedder
        return NearestCandidate(self.mechanism, candidates, vectors, self.task.ensemble, missing)

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`; ``sigma`` is the standard deviation on each coordinate of the sum."""
        mechanism, candidates = self.mechanism, self.task.candidates
        if mechanism.centred:
            assumed = f"every two candidates have a cosine of {TYPICAL_SIMILARITY:g}"
        else:
            assumed = f"no other candidate is closer to it than a cosine of {TYPICAL_SIMILARITY:g}"
        return Outlook(
            noise={"noise_multiplier": mechanism.noise_multiplier, "sigma": mechanism.sigma},
            noise_words=f"σ {mechanism.sigma:.1f}",
            head=f"Gaussian noise of {mechanism.sigma:.1f} on each coordinate of the sum of embeddings",
            needed=mechanism.required_slots(candidates, probability=RELIABLE),
            slots_mean="slots giving one candidate's text, and the other slots nothing",
            outcome=f"this candidate is released rather than one of the {candidates - 1} others",
            chance=lambda slots: mechanism.probability_released(slots, candidates),
            rule="a text is released if {needed} of {all} slots write much the same",
            remedies=f"{REMEDIES}, fewer candidates",
            notes=f" Assumed: {assumed}.",
        )
