"""The wired service withstands all attacks and passes all checks; with a bug planted by hand it does not.

A bug is a function that replaces one of the service's. A renamed variable does not break it; a renamed function fails
every run. There are one or two bugs for each kind of check; `make mutants` plants hundreds of others.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from accounting.plans.releases import Once
from accounting.privacy import subsampling
from aggregation import noise
from aggregation.accuracy import RightAnswers
from aggregation.embedding_mean import EmbeddingMean, unit_candidates
from aggregation.keyword_ptr import KeywordPtr
from aggregation.noise import from_fixed_point
from exemplar_store import Part, sampling
from service.answering.answering import Answering
from service.answering.mechanisms import keyword_ptr
from service.answering.mechanisms.adapter import words_of
from service.answering.mechanisms.keyword_joint_em import RankedKeywords
from service.answering.mechanisms.prototypes import PrototypesAdapter
from service.answering.mechanisms.rnm_gaussian import LabelVote, RnmGaussianAdapter
from service.answering.stages import Ready
from tests.privacy import checks, once_checks
from tests.privacy.attacks import ATTACKS
from tests.privacy.planting import replace_function
from tests.privacy.wired import Noticed

CHECKS: dict[str, Callable[[], None]] = {
    **ATTACKS,
    **{
        f"signed, {mechanism}, {drawn}": partial(checks.signed, mechanism, drawn)
        for mechanism in checks.SIGNED
        for drawn in ("units", "blocks")
    },
    **{f"drawn, {drawn}": partial(checks.drawn_as_accounted, drawn) for drawn in ("units", "blocks")},
    **{f"fresh noise, {kind}": partial(checks.noise_is_fresh, kind) for kind in ("hard votes", "embedding mean")},
    "cap": checks.slots_keep_no_more_than_signed,
    "order": checks.steps_in_their_order,
    "no way back": checks.nothing_is_given_back_after_the_sample,
    "silence": checks.failed_slots_are_not_reported,
    "one answer": checks.one_answer_for_one_query,
    **{f"one release, {mechanism}": partial(checks.one_release_for_one_charge, mechanism) for mechanism in checks.ONCE},
    **{f"its cohorts, {one}": partial(once_checks.made_of_its_cohorts, one) for one in checks.ONCE},
    "measured on others": once_checks.measured_on_others,
    "texts, once": once_checks.texts_cost_what_is_claimed,
    "no way back, once": once_checks.stays_charged_if_it_fails,
    "stored last, once": once_checks.private_work_ends_before_it_is_stored,
    "noise": checks.nothing_bypasses_the_noise,
    "same work": checks.the_number_of_embedded_texts_is_fixed,
    "isolated slots": checks.slots_of_the_embedded_engine_are_isolated,
    "directions": checks.the_worse_direction_is_paid_for,
}


@cache
def noticed(name: str) -> str:
    """The finding of a check on the service as it is; empty if all is well."""
    try:
        CHECKS[name]()
    except Noticed as found:
        return str(found)
    return ""


@pytest.mark.parametrize("name", CHECKS)
def test_the_service_stands(name: str) -> None:
    assert noticed(name) == ""


Wrap = Callable[[Any], Any]
"""A function that turns a right function into one with a bug."""


@dataclass(frozen=True)
class Bug:
    """A mistake, and the check that must notice it.

    Attributes:
        check: name in :data:`CHECKS`.
        says: part of the check's report.
        owner: module or class whose function is replaced.
        name: name of the function there.
        wrap: function that puts the bug in.
    """

    check: str
    says: str
    owner: Any
    name: str
    wrap: Wrap


def with_slots_words(right: Any) -> Any:
    """Words of the slots join the public domain."""

    async def release(self: RankedKeywords, outputs: Sequence[Any]) -> Any:
        secret = {word for output in outputs for word in words_of(output) or ()}
        return await right(replace(self, domain=sorted({*self.domain, *secret})), outputs)

    return release


def silencing(right: Any) -> Any:
    """One slot that fails silences all."""

    async def ask(self: Ready, slots: Sequence[Any]) -> Any:
        outputs = await right(self, slots)
        failed = any(output is None and slot for output, slot in zip(outputs, slots, strict=True))
        return [None] * len(slots) if failed else outputs

    return ask


def telling(right: Any) -> Any:
    """An answer shows how many slots spoke."""

    async def release(self: LabelVote, outputs: Sequence[Any]) -> Any:
        return {"spoke": sum(output is not None for output in outputs), **await right(self, outputs)}

    return release


def first_slots_answer(right: Any) -> Any:
    """The fallback is the first slot's answer."""

    async def release(self: keyword_ptr.TestedKeywords, outputs: Sequence[Any]) -> Any:
        said = next((output for output in outputs if isinstance(output, str)), self.fallback)
        return await right(replace(self, fallback=said), outputs)

    return release


def sampling_first(right: Any) -> Any:
    """A sample is drawn before the charge."""

    async def charge(self: Answering, question: Any, *arguments: Any) -> Any:
        await self._sample(question, None)
        return await right(self, question, *arguments)

    return charge


def noiseless_candidate(right: Any) -> Any:
    """The candidate nearest to the sum without noise is released."""

    def release(self: EmbeddingMean, contributions: Any, candidates: Any) -> int:
        usable = unit_candidates(candidates)
        return self.select(from_fixed_point(self.sum(contributions, self.centre(usable))), usable)

    return release


def drawing_once(right: Any) -> Any:
    """The noise of the first release is added to all."""
    drawn: list[np.ndarray] = []

    def add(values: np.ndarray, sigma: float) -> np.ndarray:
        if not drawn:
            drawn.append(right(np.zeros_like(values), sigma))
        return values + drawn[0]

    return add


BUGS = {
    "joint EM's domain has the slots' words, too": Bug(
        "joint EM, units, secret words", "a secret leaves", RankedKeywords, "release", with_slots_words
    ),
    "one slot's failure silences all": Bug(
        "hard votes, units, a slot that breaks the engine", "label is blue", Ready, "ask", silencing
    ),
    "an answer shows how many slots spoke": Bug(
        "signed, soft votes, blocks", "what an answer tells", LabelVote, "release", telling
    ),
    "the fallback is the first slot's answer": Bug(
        "PTR, units, a secret that no other unit has",
        "the secret leaves",
        keyword_ptr.TestedKeywords,
        "release",
        first_slots_answer,
    ),
    "a sample is drawn before the charge": Bug("order", "order of the steps", Answering, "_charge", sampling_first),
    "half the noise multiplier": Bug(
        "signed, hard votes, units",
        "standard deviation of the noise",
        RnmGaussianAdapter,
        "mechanism",
        lambda right: property(
            lambda self: replace(right.fget(self), noise_multiplier=right.fget(self).noise_multiplier / 2)
        ),
    ),
    "Gumbel noise of half the scale": Bug(
        "signed, PTR, blocks",
        "scale of the noise on k",
        KeywordPtr,
        "gumbel_scale",
        lambda right: property(lambda self: right.fget(self) / 2),
    ),
    "the candidate nearest to the noiseless sum": Bug(
        "embedding mean, units, the only voice",
        "some answer is the canary's",
        EmbeddingMean,
        "release",
        noiseless_candidate,
    ),
    "noise is drawn once": Bug(
        "fresh noise, hard votes",
        "forty answers with the same noise",
        noise,
        "add_gaussian_noise",
        drawing_once,
    ),
    "twice the probability in the sampler": Bug(
        "drawn, blocks",
        "units drawn",
        sampling,
        "poisson_sample",
        lambda right: lambda positions, probability: right(positions, min(1.0, 2 * probability)),
    ),
    "slots keep everything": Bug(
        "cap",
        "exemplars of the fullest slot",
        sampling,
        "deal",
        lambda right: lambda slots, priorities, ensemble, _maximum: right(slots, priorities, ensemble, len(slots)),
    ),
    "a repeated query is another query": Bug(
        "one answer",
        "charge of a repeated query",
        Answering,
        "_digest",
        lambda right: lambda self, fields: right(self, {**fields, "now": str(time.time_ns())}),
    ),
    "a one-time release is accounted as if drawn": Bug(
        "its cohorts, prototypes",
        "probability to take part",
        Once,
        "probability",
        lambda _right: lambda _self, drawn, public_size: drawn / public_size,
    ),
    "each exemplar counts for prototypes": Bug(
        "prototypes, an exemplar of each label",
        "ε is at least",
        PrototypesAdapter,
        "make",
        lambda right: lambda self, units, *rest: right(self, [[one] for unit in units for one in unit], *rest),
    ),
    "a unit is learnt from and measured on": Bug(
        "measured on others", "a unit is learnt from", Part, "has", lambda _right: lambda *_args: True
    ),
    "the count has half the noise": Bug(
        "measured on others",
        "noise",
        RightAnswers,
        "sigma",
        lambda right: property(lambda self: right.fget(self) / 2),
    ),
    "removal alone is composed": Bug(
        "directions", "adding a unit costs", subsampling, "amplify", lambda right: lambda *of: right(*of)[:1]
    ),
}


@pytest.mark.lengthy
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that notices it finds nothing in the service as it is."""
    planted = BUGS[name]
    assert noticed(planted.check) == ""
    right = inspect.getattr_static(planted.owner, planted.name)
    replace_function(planted.owner, planted.name, planted.wrap(right), monkeypatch)
    with pytest.raises(Noticed, match=re.escape(planted.says)):
        CHECKS[planted.check]()
