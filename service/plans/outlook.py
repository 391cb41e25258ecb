"""What must hold for a good release of one task: how many slots must agree, and what that buys, by its mechanism.

Public figures only: the task, its noise, and what the plan guesses of queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scipy import special

from accounting.mechanisms import EmbeddingMeanMechanism, KeywordJointEmMechanism, KeywordPtrMechanism
from accounting.plan import TaskNoise
from accounting.privacy.profiles import BoundedRange, Gaussian, ProposeTestRelease
from accounting.tasks import ClassifyTask, GenerateTask
from aggregation import keyword_ptr
from aggregation.embedding_mean import TYPICAL_SIMILARITY, EmbeddingMean
from aggregation.keyword_joint_em import LOSS_SENSITIVITY, required_votes
from aggregation.rnm_gaussian import RnmGaussian, probability_correct, required_margin

RELIABLE = 0.95
"""The chance of a good release that the figures are stated for."""

_DEMANDING = 0.75  # of the ensemble: a consensus that few questions reach
_REMEDIES = "more ε, fewer answers, fewer shots, a larger ensemble"


@dataclass(frozen=True)
class Outlook:
    """One task's noise, and what it takes to be heard above it.

    Attributes:
        noise: the mechanism's public numbers, by name.
        noise_words: the most telling of them, for a table.
        head: what happens to the slots' outputs.
        needed: with how many slots the release is good in 95 of 100 cases; may exceed the ensemble.
        slots_mean: what these slots must do, beginning with "slots".
        outcome: what a good release is, a clause.
        chance: of that, at a number of slots.
        remedies: what to change if the slots needed are too many.
        notes: further sentences.
    """

    noise: Mapping[str, float]
    noise_words: str
    head: str
    needed: float
    slots_mean: str
    outcome: str
    chance: Callable[[int], float]
    remedies: str = _REMEDIES
    notes: str = ""

    def in_words(self, answers: int, ensemble: int) -> str:
        """A few sentences an admin can decide by.

        Args:
            answers: how many the plan grants.
            ensemble: how many slots there are.
        """
        if self.needed > ensemble:
            best = math.floor(100 * self.chance(ensemble))
            few = f"only {best}" if best else "fewer than 1"
            says = (
                f"Out of reach: even with all {ensemble} {self.slots_mean}, {self.outcome} in {few} of 100 cases. "
                f"What helps: {self.remedies}."
            )
        else:
            says = f"With {math.ceil(self.needed)} of {ensemble} {self.slots_mean}, {self.outcome} in 95 of 100 cases."
            if self.needed > _DEMANDING * ensemble:
                says += f" Few questions bring so many together. What helps: {self.remedies}."
        return f"{answers} answers: {self.head}. {says}{self.notes}"


def outlook(task: ClassifyTask | GenerateTask, noise: TaskNoise) -> Outlook:
    """What a good release of a task takes under its noise."""
    match task, noise.mechanism:
        case ClassifyTask(labels=labels), Gaussian(noise_multiplier=z):
            return _labels(z, len(labels))
        case GenerateTask(mechanism=EmbeddingMeanMechanism() as m), Gaussian(noise_multiplier=z):
            return _candidates(EmbeddingMean(z, m.radius, m.centred, task.ensemble), task.candidates)
        case GenerateTask(mechanism=KeywordJointEmMechanism() as m), BoundedRange(epsilon=epsilon):
            return _ranked_words(epsilon, m.k, m.typical_domain)
        case GenerateTask(mechanism=KeywordPtrMechanism() as m), ProposeTestRelease() as p:
            mechanism = keyword_ptr.ProposeTestRelease(p.epsilon, p.noise_multiplier, p.delta0, m.k_min, m.k_max)
            return _tested_words(mechanism, task.ensemble)
    raise TypeError(f"{task.mechanism.type} is not released with {noise.mechanism}")


def _labels(noise_multiplier: float, labels: int) -> Outlook:
    sigma = RnmGaussian(noise_multiplier, labels).sigma
    return Outlook(
        noise={"noise_multiplier": noise_multiplier, "noise_votes": sigma},
        noise_words=f"σ {sigma:.1f} votes",
        head=f"Gaussian noise of {sigma:.1f} votes on each of {labels} labels",
        needed=required_margin(sigma, labels, RELIABLE),
        slots_mean="slots of lead for one label over every other",
        outcome="this label is released",
        chance=lambda lead: probability_correct(lead, sigma, labels),
    )


def _candidates(mechanism: EmbeddingMean, candidates: int) -> Outlook:
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
        remedies=f"{_REMEDIES}, fewer candidates",
        notes=f" Assumed: {assumed}.",
    )


def _ranked_words(epsilon: float, k: int, words: int) -> Outlook:
    # Of the C(words, k) sets, all but one lose that number of slots: see `required_votes`, the inverse of this chance.
    rate = epsilon / (2 * LOSS_SENSITIVITY)
    others = math.comb(words, k) - 1
    odds_against = math.log(others) if others else -math.inf
    return Outlook(
        noise={"epsilon": epsilon},
        noise_words=f"ε {epsilon:.2f}",
        head=f"{k} ranked words each, drawn with ε = {epsilon:.2f} from about {words} public ones",
        needed=required_votes(epsilon, k, words, RELIABLE),
        slots_mean=f"slots naming each of {k} words and none of the others",
        outcome="these words and no others are released",
        chance=lambda slots: float(special.expit(rate * slots - odds_against)),
        remedies=f"{_REMEDIES}, a smaller k",
    )


def _tested_words(mechanism: keyword_ptr.ProposeTestRelease, ensemble: int) -> Outlook:
    gaps = [math.ceil(share * ensemble) for share in (0.1, 0.25, 0.5)]
    fallbacks = [f"{100 * (1 - mechanism.probability_passes(gap)):.0f}" for gap in gaps]
    notes = (
        f" At a lead of {_listed(gaps)} slots the zero-shot answer is given instead in {_listed(fallbacks)} of 100 "
        "cases."
    )
    if others := mechanism.k_max - mechanism.k_min:
        stands_out = (math.log(others) + math.log(RELIABLE / (1 - RELIABLE))) * mechanism.gumbel_scale
        notes += (
            f" Of {mechanism.k_min} to {mechanism.k_max}, that k is the one tried in 95 of 100 cases if its lead is "
            f"{math.ceil(max(0.0, stands_out))} slots and every other's 0; a narrower range needs less."
        )
    return Outlook(
        noise={
            "epsilon": mechanism.epsilon,
            "noise_multiplier": mechanism.noise_multiplier,
            "delta0": mechanism.delta0,
            "threshold": mechanism.threshold,
        },
        noise_words=f"ε {mechanism.epsilon:.2f}, σ {mechanism.sigma:.1f}",
        head=f"k chosen with ε = {mechanism.epsilon:.2f} and tested with Gaussian noise of {mechanism.sigma:.1f} slots",
        needed=mechanism.required_gap(RELIABLE),
        slots_mean="slots of lead of the k-th word over the next",
        outcome="these k words pass the test and are released",
        chance=mechanism.probability_passes,
        notes=notes,
    )


def _listed(items: list[int] | list[str]) -> str:
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
