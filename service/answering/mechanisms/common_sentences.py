"""``common_sentences``: sentences that many slots share, as they were written; else the zero-shot answer."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from typing_extensions import override

from accounting.plans.mechanisms import CommonSentencesMechanism
from accounting.privacy.profiles import GaussianThreshold
from aggregation.common_sentences import CommonSentences
from aggregation.keywords import keywords
from aggregation.sentences import LONGEST_TEXT, fold, nearest, sentences
from service.answering.mechanisms.adapter import Aggregator, Answer, Outputs, Public, TextAdapter, text_of
from service.answering.mechanisms.outlook import RELIABLE, REMEDIES, Outlook
from service.engines.embedding.embedder import TextEmbedder
from service.engines.private_threads import privately

_USUAL = 0.1
"""The share of the slots that a sentence of habit is in: on the demo's tickets the most frequent are in a twelfth to an
eighth of them (docs/evaluation.md, sentences)."""
SAME = 0.8
"""Cosine from which two sentences mean nearly the same."""
_COMPARED = 12
"""Released sentences from which those to show are chosen."""


@dataclass(frozen=True)
class SharedSentences(Aggregator):
    """The sentences that many slots share; else the zero-shot answer.

    Attributes:
        mechanism: counts and draws noise.
        question: the keywords of the question.
        left_out: folded public sentences that are not counted.
        show: most sentences to show.
        slots: number of outputs, or more; public.
        fallback: the zero-shot answer.
        embedder: embedder of released sentences.
    """

    mechanism: CommonSentences
    question: frozenset[str]
    left_out: frozenset[str]
    show: int
    slots: int
    fallback: str
    embedder: TextEmbedder

    @override
    async def release(self, outputs: Outputs) -> Answer:
        return await self.answer(await privately(lambda: self.mechanism.release(self.contributions(outputs))))

    def contributions(self, outputs: Outputs) -> list[list[str] | None]:
        """One for each slot, None for an abstention and for slots that were not drawn."""
        made: list[list[str] | None] = [self._sentences(text) if (text := text_of(one)) else None for one in outputs]
        return made + [None] * (self.slots - len(made))

    async def answer(self, released: Iterable[str]) -> Answer:
        """What leaves; post-processing.

        Args:
            released: the released sentences, the most frequent first.
        """
        shown = await self._different(list(islice(released, _COMPARED)))
        if not shown:
            method = "the zero-shot answer, which saw no exemplar: no sentence is shared by enough slots"
            return {"text": self.fallback, "sentences": [], "fallback": True, "method": method}
        method = "sentences that many slots share, as they were written"
        return {"text": " ".join(shown), "sentences": shown, "fallback": False, "method": method}

    def _sentences(self, text: str) -> list[str]:
        counted = [one for one in sentences(text) if fold(one) not in self.left_out]
        return nearest(counted, self.question, self.mechanism.sentences)

    async def _different(self, released: Sequence[str]) -> list[str]:
        """Those to show: each that differs in meaning from all before it. The work is the same for any number."""
        padded = [*released, *[None] * (_COMPARED - len(released))]
        try:
            vectors = await privately(lambda: self.embedder.embed_bounded(padded))
        except Exception:  # all of them have been released: showing some that are alike is better than failing
            return list(released[: self.show])
        kept: list[int] = []
        for number in range(len(released)):
            if not kept or np.max(vectors[kept] @ vectors[number]) < SAME:
                kept.append(number)
        return [released[number] for number in kept[: self.show]]


class CommonSentencesAdapter(TextAdapter[CommonSentencesMechanism, GaussianThreshold]):
    """The adapter of ``common_sentences``."""

    schema = CommonSentencesMechanism
    profile = GaussianThreshold
    example = CommonSentencesMechanism(type="common_sentences")
    about = "Whole sentences that many exemplars share, word for word."
    plainly = (
        "Each slot answers in sentences. Random noise is added to the number of slots that share a sentence "
        "word for word, and it leaves if enough do. Where no sentence does, the model answers without rows."
    )
    slowest = "? " * (LONGEST_TEXT // 2)  # of some twenty shapes of texts

    @property
    def mechanism(self) -> CommonSentences:
        """The signed one."""
        return CommonSentences(self.noise.gaussian.noise_multiplier, self.noise.delta0, self.written.sentences)

    @override
    async def prepare(self, public: Public) -> SharedSentences:
        return SharedSentences(
            self.mechanism,
            frozenset[str]().union(*map(keywords, public.query.values())),
            frozenset(map(fold, self.written.leave_out)),
            self.written.show,
            self.task.most_slots,
            self.candidates(public.zero_shot)[0],
            public.embedder,
        )

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`; ``sigma`` is the standard deviation on each sentence's count."""
        mechanism, m = self.mechanism, self.written.sentences
        usual = math.ceil(_USUAL * self.task.ensemble)
        released = mechanism.probability_released(usual)
        return Outlook(
            noise={
                "noise_multiplier": mechanism.noise_multiplier,
                "sigma": mechanism.sigma,
                "delta0": mechanism.delta0,
                "threshold": mechanism.threshold,
            },
            noise_words=f"σ {mechanism.sigma:.1f}, threshold {mechanism.threshold:.1f}",
            head=f"Gaussian noise of {mechanism.sigma:.1f} slots on the number of slots that share a sentence, of "
            f"{'one' if m == 1 else f'up to {m}'} a slot, and a threshold of {mechanism.threshold:.1f}",
            needed=mechanism.required_slots(RELIABLE),
            slots_mean="slots that share a sentence, word for word",
            outcome="it is released",
            chance=mechanism.probability_released,
            rule="a sentence that {needed} of {all} slots share is released in 95 of 100 cases",
            remedies=f"{REMEDIES}, fewer sentences of a slot",
            notes=" A sentence of one slot alone leaves with a probability of at most "
            f"{mechanism.delta0:.1g} an answer, which the plan's δ pays for.",
            drowned=released < 0.5,
            instead=f"A sentence in {usual} of the slots, which is usual for a habit, is released in "
            f"{100 * released:.0f} of 100 answers, else the engine's own without exemplars is given, which is free.",
        )
