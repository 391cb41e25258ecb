"""A plan's noise, such that every mechanism can draw it."""

from collections.abc import Mapping

import accounting.plans.plan
from accounting.plans.plan import CalibratedPlan, Plan, PlanError, TaskNoise
from service.answering.mechanisms.adapter import adapter_of


def calibrate(plan: Plan, public_size: int) -> CalibratedPlan:
    """As :func:`accounting.plans.plan.calibrate_plan`, with a :class:`PlanError` if a mechanism cannot draw it."""
    calibrated = accounting.plans.plan.calibrate_plan(plan, public_size)
    _check(calibrated.plan, calibrated.noise)
    return calibrated


def least_noise(plan: Plan, public_size: int) -> Mapping[str, TaskNoise]:
    """As :func:`accounting.plans.plan.least_noise`, with a :class:`PlanError` if a mechanism cannot draw it."""
    noise = accounting.plans.plan.least_noise(plan, public_size)
    _check(plan, noise)
    return noise


def _check(plan: Plan, noise: Mapping[str, TaskNoise]) -> None:
    problems = []
    for name, task in plan.tasks.items():
        try:
            adapter_of(task, noise[name]).outlook()
        except ValueError as error:
            problems.append((f"tasks.{name}.mechanism", str(error)))
    if problems:
        raise PlanError(*problems)
