"""Signed plans, read once each."""

from __future__ import annotations

from functools import lru_cache

from accounting.plan import CalibratedPlan


@lru_cache(maxsize=256)
def read_signed(document: str) -> CalibratedPlan:
    """A calibrated plan from the document that was signed; shared, so change nothing in it."""
    return CalibratedPlan.model_validate_json(document)
