"""Signed plans, read once each."""

from functools import lru_cache

from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan, TaskNoise
from accounting.plans.tasks import ClassifyTask, GenerateTask


@lru_cache(maxsize=256)
def read_signed(document: str) -> CalibratedPlan:
    """A calibrated plan from the document that was signed; shared, so change nothing in it."""
    return CalibratedPlan.model_validate_json(document)


def read_task(signed: SignedTask) -> tuple[ClassifyTask | GenerateTask, TaskNoise]:
    """A signed task as it was written, and its noise; of one of its topics, that topic's."""
    plan = read_signed(signed.document)
    return plan.plan.tasks[signed.name], plan.noise[signed.name].on(signed.topic)


def identity(signed: SignedTask) -> tuple[int, str, str]:
    """Tells a task, whatever the topic, from any other: a restore may give its plan's number to another plan."""
    return signed.plan.id, signed.plan.digest, signed.name
