"""Signed plans, read once each."""

from functools import lru_cache

from accounting.ledger.budgets import SignedTask
from accounting.plan import CalibratedPlan, TaskNoise
from accounting.tasks import ClassifyTask, GenerateTask


@lru_cache(maxsize=256)
def read_signed(document: str) -> CalibratedPlan:
    """A calibrated plan from the document that was signed; shared, so change nothing in it."""
    return CalibratedPlan.model_validate_json(document)


def read_task(signed: SignedTask) -> tuple[ClassifyTask | GenerateTask, TaskNoise]:
    """A signed task as it was written, and its noise."""
    plan = read_signed(signed.document)
    return plan.plan.tasks[signed.name], plan.noise[signed.name]


def identity(signed: SignedTask) -> tuple[int, str]:
    """Tells a task from any other: a restore may give its number to another plan's."""
    return signed.id, signed.plan.digest
