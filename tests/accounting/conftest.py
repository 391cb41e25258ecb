"""A small plan, calibrated once."""

import pytest

from accounting.plans.plan import CalibratedPlan, calibrate_plan, parse_plan


@pytest.fixture(scope="session")
def calibrated() -> CalibratedPlan:
    prompt = {"exemplar": "{text} {label}", "query": "{text}"}
    drawn = {"shots": 2, "ensemble": 10, "answers": 4, "mechanism": {"type": "rnm_gaussian"}}
    task = {"kind": "classify", "labels": ["a", "b"], "prompt": prompt, **drawn}
    plan = {"knowledge_base": "kb", "budget": {"epsilon": 1, "delta": 1e-5}, "tasks": {"topic": task}}
    return calibrate_plan(parse_plan(plan), 1000)
