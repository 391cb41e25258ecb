"""``keyword_ptr``: the most frequent words if they stand out, made a sentence; else the zero-shot answer."""

import math
from dataclasses import dataclass

from typing_extensions import override

from accounting.plans.mechanisms import KeywordPtrMechanism
from accounting.privacy import profiles
from aggregation.keyword_ptr import KeywordPtr
from service.answering.mechanisms.adapter import (
    Aggregator,
    Answer,
    Outputs,
    Public,
    Reconstruct,
    TextAdapter,
    sentence,
    words_of,
)
from service.answering.mechanisms.outlook import RELIABLE, Outlook
from service.engines.private_threads import privately

_USUAL_LEAD = 0.3
"""The share of the slots by which words that many people use lead. On the demo's tickets plans whose test such a lead
passes in half of the cases or more have the words in 35 to 88 % of answers, all others in 0 to 22 %
(docs/evaluation.md, replies)."""


@dataclass(frozen=True)
class TestedKeywords(Aggregator):
    """The most frequent words if they stand out, and a sentence made of them; else the zero-shot answer."""

    mechanism: KeywordPtr
    fallback: str
    reconstruct: Reconstruct

    @override
    async def release(self, outputs: Outputs) -> Answer:
        words = await privately(lambda: self.mechanism.release(map(words_of, outputs)))
        if not words:
            method = "the zero-shot answer, which saw no exemplar: no words stood out enough"
            return {"text": self.fallback, "keywords": [], "fallback": True, "method": method}
        return {**await sentence(words, False, self.reconstruct), "fallback": False}


class KeywordPtrAdapter(TextAdapter[KeywordPtrMechanism, profiles.ProposeTestRelease]):
    """The adapter of ``keyword_ptr``."""

    schema = KeywordPtrMechanism
    profile = profiles.ProposeTestRelease
    example = KeywordPtrMechanism(type="keyword_ptr", k_min=1, k_max=8)
    about = "The words that stand out, made a sentence."
    plainly = (
        "Each slot answers in words. The words that most slots use leave, as a sentence, if a test with "
        "random noise finds that they stand out. If it does not, the model answers without rows."
    )
    reconstructs = True

    @property
    def mechanism(self) -> KeywordPtr:
        """The signed one."""
        return keyword_ptr(self.written, self.noise)

    @override
    async def prepare(self, public: Public) -> TestedKeywords:
        return TestedKeywords(self.mechanism, self.candidates(public.zero_shot)[0], self.sentences(public))

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`; ``epsilon`` is of choosing k, all else of the test."""
        mechanism = self.mechanism
        gaps = [math.ceil(share * self.task.ensemble) for share in (0.1, 0.25, 0.5)]
        fallbacks = [f"{100 * (1 - mechanism.probability_passes(gap)):.0f}" for gap in gaps]
        notes = (
            f" At a lead of {_listed(gaps)} slots the zero-shot answer is given instead in {_listed(fallbacks)} of 100 "
            "cases."
        )
        if others := mechanism.k_max - mechanism.k_min:
            stands_out = (math.log(others) + math.log(RELIABLE / (1 - RELIABLE))) * mechanism.gumbel_scale
            notes += (
                f" Of {mechanism.k_min} to {mechanism.k_max}, that k is the one tried in 95 of 100 cases if its lead "
                f"is {math.ceil(max(0.0, stands_out))} slots and every other's 0; a narrower range needs less."
            )
        usual = math.ceil(_USUAL_LEAD * self.task.ensemble)
        passes = mechanism.probability_passes(usual)
        return Outlook(
            noise={
                "epsilon": mechanism.epsilon,
                "noise_multiplier": mechanism.noise_multiplier,
                "delta0": mechanism.delta0,
                "threshold": mechanism.threshold,
            },
            noise_words=f"ε {mechanism.epsilon:.2f}, σ {mechanism.sigma:.1f}",
            head=f"k chosen with ε = {mechanism.epsilon:.2f} and tested with Gaussian noise of {mechanism.sigma:.1f} "
            "slots",
            needed=mechanism.required_gap(RELIABLE),
            slots_mean="slots of lead of the k-th word over the next",
            outcome="these k words pass the test and are released",
            chance=mechanism.probability_passes,
            rule="words are released if {needed} more of {all} slots name each of them than the next word",
            notes=notes,
            drowned=passes < 0.5,
            instead=f"At a lead of {usual} slots, which is usual where many people use the same words, "
            f"{100 * (1 - passes):.0f} of 100 answers fall back on the engine's own without exemplars, which are free.",
        )


def keyword_ptr(written: KeywordPtrMechanism, noise: profiles.ProposeTestRelease) -> KeywordPtr:
    """The mechanism with its noise."""
    return KeywordPtr(noise.epsilon, noise.noise_multiplier, noise.delta0, written.k_min, written.k_max)


def _listed(items: list[int] | list[str]) -> str:
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
