"""A rehearsal, from the plan that it is for to the counts that leave."""

from __future__ import annotations

import asyncio
import math
import os
import time
from dataclasses import dataclass

from accounting.ledger.budgets import SignedTask, address
from accounting.mechanisms import RehearsalMechanism, RnmGaussianMechanism
from accounting.plan import Budget, CalibratedPlan, Plan, PlanError
from accounting.privacy.profiles import Gaussian
from accounting.tasks import ClassifyTask
from aggregation.rehearsal import Counts
from service.pipeline.answering import RemoteEngineForbiddenError
from service.pipeline.making import charge_once, check_readable, grain_s, store_once
from service.pipeline.measured_grains import largest_work_s
from service.pipeline.mechanisms.rehearsal import RehearsalAdapter
from service.pipeline.private_threads import privately
from service.pipeline.queries import task_spec
from service.pipeline.rehearsing import count
from service.pipeline.stages import Stages
from service.plans.signing import check_alone
from service.records.records import Records

QUESTIONS = 500
EPSILON = 0.1
_DELTA_SHARE = 0.1
_MOST_ASKING = 0.25


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal found.

    Attributes:
        task: the rehearsal's address.
        counts: that left.
    """

    task: str
    counts: Counts


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
        raise PlanError([f"tasks: there is no {name!r}; there is {', '.join(plan.tasks)}"])
    if not (isinstance(task, ClassifyTask) and isinstance(task.mechanism, RnmGaussianMechanism)):
        raise PlanError([f"{key}: only labels by votes (rnm_gaussian) are known to be right or wrong"])
    if task.sampling != "units" or task.prior_from is not None:
        raise PlanError([f"{key}: rehearse it with `sampling: units` and without `prior_from`"])
    asking = min(_MOST_ASKING, 2 * questions / calibrated.public_size)
    participation = task.shots * task.ensemble / (calibrated.public_size * (1 - asking))
    if participation > 1:
        raise PlanError([f"{key}: shots × ensemble leave too few exemplars for those who ask; lower one of them"])
    noise = calibrated.noise[name].mechanism
    assert isinstance(noise, Gaussian)  # noqa: S101  (as votes are released)  # nosec B101
    mechanism = RehearsalMechanism(
        type="rehearsal",
        questions=questions,
        asking=asking,
        participation=participation,
        shots=task.shots,
        ensemble=task.ensemble,
        slot_cap=task.slot_cap,
        noise_multiplier=noise.noise_multiplier,
        rehearsed=task.mechanism,
    )
    kept = {field: getattr(task, field) for field in ("labels", "label_descriptions", "label_field", "prompt")}
    one = ClassifyTask.model_validate({"kind": "classify", "release": "once", "mechanism": mechanism, **kept})
    return Plan(
        knowledge_base=plan.knowledge_base,
        budget=Budget(epsilon=epsilon, delta=plan.budget.delta * _DELTA_SHARE if delta is None else delta),
        cohorts=plan.cohorts,
        tasks={f"{name}-rehearsal"[:64]: one},
    )


async def rehearse(
    records: Records, calibrated: CalibratedPlan, signed_by: str, stages: Stages, *, padded: bool = True
) -> Rehearsed:
    """Sign a rehearsal and run it: charged before anything is read, and never twice.

    If it ends in between, its (ε, δ) is spent and nothing is found.

    Args:
        records: where it is signed, charged and stored.
        calibrated: from :func:`written`, with its noise.
        signed_by: name of whoever signs.
        stages: those that answer.
        padded: whether it ends after a whole number of grains.

    Raises:
        accounting.ledger.errors.BudgetExceededError: the lifetime budget has not enough left; nothing is signed.
        service.pipeline.making.NotMadeError: there is nothing to rehearse on; nothing is signed.
        service.engines.protocol.EngineUnavailableError: the engine does not answer; nothing is signed.
        service.pipeline.answering.RemoteEngineForbiddenError: exemplars may not be shown to it; nothing is signed.
    """
    plan = calibrated.plan
    ((name, task),) = plan.tasks.items()
    adapter = RehearsalAdapter(task, calibrated.noise[name])
    described = await asyncio.to_thread(records.store.get, plan.knowledge_base)
    await asyncio.to_thread(check_readable, records.store, plan.knowledge_base)
    if (await stages.engine.describe()).remote and not described.remote_engine:
        raise RemoteEngineForbiddenError(f"{plan.knowledge_base} does not allow its exemplars to leave")
    spec = task_spec(
        f"{plan.knowledge_base}.{name}",
        adapter.rehearsed,
        f"rehearsal {os.urandom(8).hex()} of {plan.knowledge_base}",  # questions are private: no cache is shared
        described.embedded_field,
        response_field=described.response_field,
    )
    longest_s = await largest_work_s(stages, adapter.rehearsed, adapter.rehearsed_noise, spec, described)
    grain = grain_s(calibrated.public_size) + adapter.written.questions * longest_s

    signed = await asyncio.to_thread(_sign, records, calibrated, signed_by)
    charge = await asyncio.to_thread(charge_once, records.ledger, signed)
    assert isinstance(charge, str)  # noqa: S101  (the plan is new)  # nosec B101
    begun = time.monotonic()
    units = await privately(lambda: [*records.store.every_unit(plan.knowledge_base, signed.plan.cohorts)])
    asked = await count(
        units, adapter.written.asking, adapter.rehearsed, adapter.rehearsed_noise, spec, stages, adapter.mechanism
    )
    released = adapter.released(adapter.mechanism.release(asked))
    if padded:
        took = time.monotonic() - begun
        await asyncio.sleep(grain * math.ceil(took / grain) - took)
    stored = await asyncio.to_thread(store_once, records.ledger, signed, charge, released)
    return Rehearsed(signed.address, adapter.counts(stored.answer))


def _sign(records: Records, calibrated: CalibratedPlan, signed_by: str) -> SignedTask:
    check_alone(records)
    plan = calibrated.plan
    ((name, task),) = plan.tasks.items()
    signed = records.ledger.budgets.sign(
        plan.knowledge_base,
        epsilon=plan.budget.epsilon,
        delta=plan.budget.delta,
        accountant=plan.accountant,
        document=calibrated.model_dump_json(),
        tasks=[(name, task.answers)],
        signed_by=signed_by,
        cohorts=calibrated.cohorts,
    )
    return records.ledger.budgets.task(address(plan.knowledge_base, name, signed.version))
