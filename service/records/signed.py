"""Signed plans, read once each."""

from functools import lru_cache

from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan, TaskNoise
from accounting.plans.tasks import ClassifyTask, GenerateTask


@lru_cache(maxsize=256)
def read_signed(document: str) -> CalibratedPlan:
    """A calibrated plan from the signed document; callers share the object, so change nothing in it."""
    return CalibratedPlan.model_validate_json(document)


def read_task(signed: SignedTask) -> tuple[ClassifyTask | GenerateTask, TaskNoise]:
    """A signed task as it was written, and its noise; for one of its topics, that topic's noise."""
    plan = read_signed(signed.document)
    return plan.plan.tasks[signed.name], plan.noise[signed.name].on(signed.topic)


def identity(signed: SignedTask) -> tuple[int, str, str]:
    """The identity of a task, with all its topics. A restore may give its plan's number to another plan."""
    return signed.plan.id, signed.plan.digest, signed.name
