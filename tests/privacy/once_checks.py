"""Checks of one-time releases: the units they are made of, their noise, and the order of their steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special

from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from accounting.privacy.profiles import Gaussian
from aggregation.softmax_regression import CLIP, STEPS
from exemplar_store import Exemplar, Slot, sampling
from service.answering.mechanisms.adapter import OnceLabelAdapter
from service.answering.mechanisms.prototypes import PrototypesAdapter
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter
from service.answering.once import making
from service.answering.plans.signing import sign
from service.engines.private_threads import privately
from service.engines.task import TaskSpec, ZeroShot
from service.records.records import Records
from tests.privacy.checks import ONCE, drawing, fail, noise_of_one_release, noting, require, require_equal, states
from tests.privacy.wired import DELTA, EPSILON, Compass, Parrot, ingest, opened, records

SIZE, UNITS = 60, 40
PLAN = """
knowledge_base: wired
budget: {{epsilon: {epsilon}, delta: {delta}}}
cohorts: [2]
tasks:
  task:
    kind: classify
    label_field: says
    labels: [red, blue]
    prompt: {{exemplar: "{{text}} {{says}}", query: "{{text}}"}}
    {drawn}
    mechanism: {mechanism}
"""


def plan(drawn: str, mechanism: str) -> CalibratedPlan:
    """A plan for the second of three cohorts."""
    text = PLAN.format(epsilon=EPSILON, delta=DELTA, drawn=drawn, mechanism=mechanism)
    return calibrate_plan(load_plan(text), SIZE)


def three_cohorts() -> Records:
    """Records with three cohorts, of which the plan has the second. Each exemplar's text begins with its cohort."""
    made = records(SIZE)
    for cohort in ("earlier", "own", "later"):
        if cohort != "earlier":
            made.open_cohort("wired", epsilon=1000, delta=0.9, public_size=SIZE, by="checker")
        ingest(made, [{"unit_id": f"{cohort}{i}", "text": f"{cohort} {i}", "says": "red"} for i in range(UNITS)])
    return made


def _multiplier_for_all_units(calibrated: CalibratedPlan) -> float:
    """The noise multiplier of a plan's only release. Every unit takes part, so sampling must not lessen it."""
    (noise,) = calibrated.noise.values()
    require_equal(noise.sampling_probability, 1.0, "probability to take part in a one-time release")
    assert isinstance(noise.mechanism, Gaussian)
    budget = calibrated.plan.budget
    lost = float(noise.mechanism.delta(budget.epsilon))
    require(lost <= budget.delta, f"one Gaussian release at ε = {budget.epsilon} needs δ = {lost:.3g}")
    return noise.mechanism.noise_multiplier


def made_of_its_cohorts(mechanism: str) -> None:
    """The release reads each unit of the plan's cohorts once, reads no other unit, and has the noise of one release."""
    of, calibrated = three_cohorts(), plan("release: once", ONCE[mechanism])
    multiplier = _multiplier_for_all_units(calibrated)
    read: list[str] = []

    def reading(_adapter: Any, unit: Sequence[Exemplar]) -> None:
        read.extend(exemplar.fields["text"] for exemplar in unit)

    with pytest.MonkeyPatch.context() as patch, drawing() as drawn:
        noting(patch, OnceLabelAdapter, "labelled", reading)
        sign(of, calibrated, "checker", embed=Compass().embed)
    require_equal(sorted(read), sorted(f"own {i}" for i in range(UNITS)), "exemplars of the release")
    require_equal(drawn, noise_of_one_release(mechanism, multiplier), "noise of the release")


def measured_on_others() -> None:
    """A release reads each unit of its cohorts once, to be made of it or to be measured on it, and both have the noise
    of one release."""
    of, calibrated = three_cohorts(), plan("release: once", "{type: softmax_regression, measured_on: 0.4}")
    multiplier = _multiplier_for_all_units(calibrated)
    parts: list[list[str]] = [[]]

    def reading(_adapter: Any, unit: Sequence[Exemplar]) -> None:
        parts[-1].extend(exemplar.fields["text"] for exemplar in unit)

    with pytest.MonkeyPatch.context() as patch, drawing() as drawn:
        noting(patch, OnceLabelAdapter, "labelled", reading)
        noting(patch, SoftmaxRegressionAdapter, "measure", lambda *_args: parts.append([]))
        sign(of, calibrated, "checker", embed=Compass().embed)
    made_of, measured_on = parts
    require(not set(made_of) & set(measured_on), "a unit is learnt from and measured on")
    require_equal(sorted(made_of + measured_on), sorted(f"own {i}" for i in range(UNITS)), "exemplars of the release")
    require(bool(made_of) and bool(measured_on), "all units are in one part")  # by chance: once in 10⁸ databases
    step = multiplier * np.sqrt(STEPS) * CLIP
    require_equal([round(one, 9) for one in drawn], [round(one, 9) for one in [step] * STEPS + [multiplier]], "noise")


def stays_charged_if_it_fails() -> None:
    """A release that fails after exemplars were read stays charged."""
    of = three_cohorts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrototypesAdapter, "make", fail)
        with suppress(RuntimeError):
            sign(of, plan("release: once", ONCE["prototypes"]), "checker", embed=Compass().embed)
    require_equal(states(of), ["charged"], "the charge of a release that failed")


# --- Texts. -----------------------------------------------------------------------------------------------------------

TOPICS, TEXTS, TOKENS = ("one", "two"), 3, 8


class Noting(Parrot):
    """An engine that writes nothing, and notes how strongly one slot pulls at a token, and what each slot holds."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[tuple[float, list[list[Mapping[str, str]]]]] = []

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        return ZeroShot(texts=("nothing",))

    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        require_equal(task.writing.tokens, TOKENS, "tokens that slots have a say in")
        held = [[dict(exemplar.fields) for exemplar in slot] for slot in slots]
        self.texts.append((task.writing.ensemble.pull, held))
        return ""


def _texts(calibrated: CalibratedPlan, canary: bool) -> list[tuple[float, list[list[Mapping[str, str]]]]]:
    """The slots that texts are written from, with the same coins for all other units with and without the canary.

    The canary comes first. Most units have an exemplar on one topic. Some have one on each, some on none of them.
    """
    of, engine, calls = records(SIZE), Noting(), iter(range(100))
    if canary:
        numbers = {"one": range(3), "two": range(2)}
        ingest(of, [{"unit_id": "canary", "text": t, "says": f"{t} {n}"} for t in TOPICS for n in numbers[t]])
    ingest(of, [{"unit_id": f"torn{n}", "text": t, "says": f"torn {n}"} for n in range(UNITS // 4) for t in TOPICS])
    ingest(of, [{"unit_id": f"else{n}", "text": "another", "says": f"else {n}"} for n in range(UNITS // 2)])
    ingest(of, [{"unit_id": f"u{n}", "text": TOPICS[n % 2], "says": f"usual {n}"} for n in range(UNITS)])

    def words(count: int) -> np.ndarray:
        stream = np.random.default_rng([7, next(calls)])
        return stream.integers(0, 1 << 64, 1000, np.uint64)[1000 - count :]

    make = opened(of, engine).make
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "words", words)
        asyncio.run(privately(lambda: sign(of, calibrated, "checker", make=make)))
    return engine.texts


def texts_cost_what_is_claimed() -> None:
    """An attacker who knows all coins and the other units, and whose slots pull most strongly, learns nearly ε."""
    written = f"tokens: {TOKENS}, max_tokens: {2 * TOKENS}, texts: {TEXTS}, topics: [{', '.join(TOPICS)}], clip: 20"
    mechanism = f"{{type: token_ensemble, {written}}}"
    text = PLAN.format(
        epsilon=EPSILON, delta=DELTA, drawn="release: once\n    ensemble: 10\n    shots: 4", mechanism=mechanism
    )
    text = text.replace("cohorts: [2]", "").replace("kind: classify", "kind: generate")
    text = text.replace("label_field: says\n    labels: [red, blue]", "response_field: says")
    text = text.replace('query: "{text}"', 'query: "{text}", written: "{written} {question}"')
    calibrated = calibrate_plan(load_plan(text), SIZE)
    require_equal(calibrated.noise["task"].sampling_probability, 1.0, "probability to take part in a one-time release")
    # Losses are counted in units of twice a slot's pull. Where n slots differ, each token adds plus or minus n of them.
    lost = np.ones(1)
    both = zip(_texts(calibrated, False), _texts(calibrated, True), strict=True)
    for (pull, without), (_, with_canary) in both:
        slots = sum(a != b for a, b in zip(without, with_canary, strict=True))
        up = float(special.expit(2 * pull * slots))
        for _ in range(TOKENS if slots else 0):
            lost = np.convolve(lost, [1 - up, *[0.0] * (2 * slots - 1), up])
    losses = 2 * pull * (np.arange(lost.size) - lost.size // 2)

    def delta(epsilon: float) -> float:
        return float(np.sum(lost * np.maximum(0.0, -np.expm1(epsilon - losses))))

    found = float(optimize.brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, losses[-1]))
    require(found <= EPSILON, f"ε is {found:.2f}, and the plan promises {EPSILON}")
    require(found >= 0.8 * EPSILON, f"the attack finds ε = {found:.2f} of {EPSILON}, so it attacks something else")


# --- Timing. ---------------------------------------------------------------------------------------------------------


def private_work_ends_before_it_is_stored() -> None:
    """The time of storing reveals when the work ended, so storing waits for the grain."""
    of, order = three_cohorts(), list[str]()

    padded = replace(of, settings=of.settings.model_copy(update={"latency_unpadded": False}))
    with pytest.MonkeyPatch.context() as patch:
        noting(patch, of.ledger, "release", lambda *_args: order.append("store"))
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _seconds: order.append("wait"))
        patch.setattr(making, "time", clock)
        sign(padded, plan("release: once", ONCE["prototypes"]), "checker", embed=Compass().embed)
    require_equal(order, ["wait", "store"], "order of a release")
