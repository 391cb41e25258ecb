"""The calibrated plan behind a signed task, read once."""

from __future__ import annotations

from functools import lru_cache

from accounting.ledger.charges import SignedTask
from accounting.plan import CalibratedPlan


def signed_plan(signed: SignedTask) -> CalibratedPlan:
    """The calibrated plan a task was signed with."""
    return _read(signed.document)


@lru_cache(maxsize=256)
def _read(document: str) -> CalibratedPlan:
    return CalibratedPlan.model_validate_json(document)
