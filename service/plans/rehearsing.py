"""A rehearsal, from the plan that it is for to the counts that leave."""

import asyncio
import contextvars
import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from pydantic import BaseModel

from accounting.ledger.budgets import SignedTask, address
from accounting.mechanisms import RnmGaussianMechanism
from accounting.plan import CalibratedPlan, Plan, PlanError, parse_plan
from accounting.privacy.profiles import Gaussian
from accounting.tasks import ClassifyTask
from aggregation.rehearsal import Counts
from service.engines.protocol import TaskSpec
from service.pipeline.answering import BusyError, check_may_leave
from service.pipeline.making import ONE_RELEASE, charge_once, check_readable, grain_s, settle
from service.pipeline.mechanisms.adapter import Answer
from service.pipeline.mechanisms.rehearsal import RehearsalAdapter
from service.pipeline.queries import described_spec
from service.pipeline.rehearsing import count, longest_question_s
from service.pipeline.stages import Stages
from service.plans.signing import check_alone, promise
from service.private_threads import privately
from service.records.records import Records
from service.records.signed import read_task

log = structlog.get_logger()

QUESTIONS = 500
EPSILON = 0.1
_DELTA_SHARE = 0.1
_MOST_ASKING = 0.25


def written(calibrated: CalibratedPlan, name: str, epsilon: float, delta: float | None, questions: int) -> Plan:
    """The plan of a rehearsal.

    Args:
        calibrated: the plan that is rehearsed, with its noise.
        name: the task.
        epsilon: what the rehearsal costs.
        delta: likewise; a tenth of the plan's unless given.
        questions: how many are asked at most.

    Raises:
        PlanError: this task cannot be rehearsed.
    """
    plan = calibrated.plan
    task, key = plan.tasks.get(name), f"tasks.{name}"
    if task is None:
        raise PlanError(("tasks", f"there is no {name!r}; there is {', '.join(plan.tasks)}"))
    if not (isinstance(task, ClassifyTask) and isinstance(task.mechanism, RnmGaussianMechanism)):
        raise PlanError((key, "only labels by votes (rnm_gaussian) are known to be right or wrong"))
    if task.sampling != "units" or task.prior_from is not None:
        raise PlanError((key, "rehearse it with `sampling: units` and without `prior_from`"))
    if task.topics is not None:
        # Its questions are exemplars, and whom a private text's topic charges, or whose units it draws, would tell.
        raise PlanError((key, "a task with topics cannot be rehearsed: try it with `dpicl plan try`, or `dpicl eval`"))
    asking = min(_MOST_ASKING, 2 * questions / calibrated.public_size)
    participation = task.shots * task.ensemble / (calibrated.public_size * (1 - asking))
    if participation > 1:
        raise PlanError((key, "shots × ensemble leave too few exemplars for those who ask; lower one of them"))
    noise = calibrated.noise[name].mechanism
    assert isinstance(noise, Gaussian)  # noqa: S101  (as votes are released)  # nosec B101
    mechanism = {
        "type": "rehearsal",
        "questions": questions,
        "asking": asking,
        "participation": participation,
        "shots": task.shots,
        "ensemble": task.ensemble,
        "slot_cap": task.slot_cap,
        "noise_multiplier": noise.noise_multiplier,
        "rehearsed": task.mechanism,
    }
    kept = {field: getattr(task, field) for field in ("labels", "label_descriptions", "label_field", "prompt")}
    budget = {"epsilon": epsilon, "delta": plan.budget.delta * _DELTA_SHARE if delta is None else delta}
    rehearsal = {"kind": "classify", "release": "once", "mechanism": mechanism, **kept}
    return parse_plan(
        {
            "knowledge_base": plan.knowledge_base,
            "budget": budget,
            "cohorts": plan.cohorts,
            "tasks": {f"{name}-rehearsal"[:64]: rehearsal},
        }
    )


class RehearsalReport(BaseModel):
    """What a rehearsal found: between which shares answers are right, 95 % sure. Null while there is nothing."""

    accuracy: tuple[float, float] | None = None
    zero_shot_accuracy: tuple[float, float] | None = None


def report(records: Records, task: str) -> RehearsalReport:
    """What a signed rehearsal found, by its address."""
    signed = records.ledger.budgets.task(task)
    stored = records.ledger.stored_release(signed, ONE_RELEASE)
    if stored is None:
        return RehearsalReport()
    counts = RehearsalAdapter(*read_task(signed)).counts(stored.answer)
    return RehearsalReport(accuracy=counts.accuracy, zero_shot_accuracy=counts.zero_shot_accuracy)


@dataclass(frozen=True)
class Charged:
    """A rehearsal that is signed and charged. If it is not run to its end, its (ε, δ) is spent and nothing is found.

    Attributes:
        signed: its task.
        charge: its id.
        spec: the task that is rehearsed, as the engine sees it.
        grain_s: it ends after a whole number of these, in seconds.
        arrived: how many units there were before the charge.
    """

    signed: SignedTask
    charge: str
    spec: TaskSpec
    grain_s: float
    arrived: int | None


async def begin(records: Records, calibrated: CalibratedPlan, signed_by: str, stages: Stages) -> Charged:
    """Sign a rehearsal and charge it, before anything is read; it is never charged twice.

    Args:
        records: where it is signed, charged and stored.
        calibrated: from :func:`written`, with its noise.
        signed_by: who signs, as the audit trail names them.
        stages: those that answer.

    Raises:
        service.plans.signing.TwoPersonsError: the settings want two people; nothing is signed.
        accounting.ledger.errors.BudgetExceededError: the lifetime budget has not enough left; nothing is signed.
        accounting.ledger.errors.CohortError: a cohort is closed, or there is none; nothing is signed.
        service.pipeline.making.NotMadeError: there is nothing to rehearse on; nothing is signed.
        service.engines.protocol.EngineUnavailableError: the engine does not answer; nothing is signed.
        service.pipeline.answering.RemoteEngineForbiddenError: exemplars, which are the questions, too, may not be
            shown to it; nothing is signed.
    """
    plan = calibrated.plan
    ((name, task),) = plan.tasks.items()
    adapter = RehearsalAdapter(task, calibrated.noise[name])
    described = await asyncio.to_thread(records.store.get, plan.knowledge_base)
    await asyncio.to_thread(check_readable, records.store, plan.knowledge_base)
    check_may_leave(await stages.engine.describe(), described, as_questions=True)
    unshared = f"rehearsal {os.urandom(8).hex()} of {plan.knowledge_base}"  # questions are private: no cache is shared
    spec = described_spec(f"{plan.knowledge_base}.{name}", adapter.rehearsed, described, asker="", cached_for=unshared)
    longest_s = await longest_question_s(adapter.rehearsed, adapter.rehearsed_noise, spec, stages, described)
    grain = grain_s(calibrated.public_size) + adapter.written.questions * longest_s
    signed = await asyncio.to_thread(_sign, records, calibrated, signed_by)
    charge = await asyncio.to_thread(charge_once, records.ledger, signed, takes_s=grain)
    assert isinstance(charge, str)  # noqa: S101  (the plan is new)  # nosec B101
    return Charged(signed, charge, spec, grain, described.arrived)


async def finish(records: Records, stages: Stages, charged: Charged, *, padded: bool = True) -> Counts:
    """Run a charged rehearsal to its end, once: the counts that left.

    Args:
        records: as of :func:`begin`.
        stages: as there.
        charged: what that returned.
        padded: whether it ends after a whole number of grains, also if it fails.
    """
    grain, begun, failure = charged.grain_s, time.monotonic(), None
    adapter = RehearsalAdapter(*read_task(charged.signed))
    try:
        released = await _released(records, stages, charged, adapter)
    except Exception as error:
        failure = error
    if padded:
        took = time.monotonic() - begun
        await asyncio.sleep(grain * math.ceil(took / grain) - took)
    if failure is not None:
        raise failure
    stored = await settle(records.ledger, charged.signed, ONE_RELEASE, charged.charge, released)
    return adapter.counts(stored.answer)


async def _released(records: Records, stages: Stages, charged: Charged, adapter: RehearsalAdapter) -> Answer:
    name, cohorts = charged.signed.knowledge_base, charged.signed.plan.cohorts
    units = await privately(lambda: [*records.store.every_unit(name, cohorts, arrived=charged.arrived)])
    asked = await count(
        units,
        adapter.written.asking,
        adapter.rehearsed,
        adapter.rehearsed_noise,
        charged.spec,
        stages,
        adapter.mechanism,
    )
    return adapter.released(adapter.mechanism.release(asked))


Elsewhere = Callable[[Charged], Awaitable[None]]
"""Runs a rehearsal that is charged, to its end; raises if it fails."""


@dataclass(eq=False, repr=False)
class Rehearsals:
    """Runs rehearsals beside the queries that the same engine answers, one at a time.

    Attributes:
        records: where they are signed, charged and stored.
        stages: those that answer.
        padded: as of :func:`finish`.
        elsewhere: runs what is charged in another process; in this one unless given.
    """

    records: Records
    stages: Stages
    padded: bool = field(kw_only=True)
    elsewhere: Elsewhere | None = field(default=None, kw_only=True)
    _beginning: bool = field(default=False, init=False)
    _running: asyncio.Task[None] | None = field(default=None, init=False)

    async def start(self, calibrated: CalibratedPlan, signed_by: str) -> str:
        """Begin one, which goes on by itself: its address. Arguments and errors as of :func:`begin`.

        Raises:
            BusyError: one is running; nothing is signed.
        """
        if self._beginning or (self._running is not None and not self._running.done()):
            raise BusyError("another rehearsal is running; nothing was signed")
        self._beginning = True
        try:
            charged = await begin(self.records, calibrated, signed_by, self.stages)
        finally:
            self._beginning = False
        # A context of its own: Ray Serve cancels the calls made in the context of a request that has ended.
        self._running = asyncio.create_task(self.run(charged), context=contextvars.Context())
        address = charged.signed.address
        self._running.add_done_callback(lambda ended: _told(ended, address))
        return address

    async def run(self, charged: Charged) -> None:
        """Run one that is begun, to its end."""
        if self.elsewhere is None:
            await finish(self.records, self.stages, charged, padded=self.padded)
        else:
            await self.elsewhere(charged)


def _told(ended: asyncio.Task[None], task: str) -> None:
    if not ended.cancelled() and ended.exception() is not None:
        log.error("rehearsal_failed", task=task)  # not why: that may depend on what was read


def _sign(records: Records, calibrated: CalibratedPlan, signed_by: str) -> SignedTask:
    check_alone(records)
    twin = records.ledger.budgets.newest_equal(calibrated.plan.knowledge_base, calibrated.model_dump_json())
    signed = promise(records, calibrated, signed_by, again=twin)  # each rehearsal is confirmed by itself
    (name,) = calibrated.plan.tasks
    return records.ledger.budgets.task(address(signed.knowledge_base, name, signed.version))
