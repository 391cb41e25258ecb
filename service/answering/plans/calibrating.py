"""A plan's noise, such that every mechanism can draw it."""

from collections.abc import Mapping

import accounting.plans.plan
from accounting.plans.plan import CalibratedPlan, Plan, PlanError, Profile, TaskNoise
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


class Variants:
    """As :class:`accounting.plans.plan.Variants`, with a :class:`PlanError` if a mechanism cannot draw its noise."""

    def __init__(self, calibrated: CalibratedPlan) -> None:
        self._variants = accounting.plans.plan.Variants(calibrated)
        self._tasks, self._checked = calibrated.plan.tasks, set[tuple[str, Profile]]()

    def rough_noise(self, plan: Plan) -> Mapping[str, TaskNoise]:
        """About a variant's noise."""
        return self._drawable(plan, self._variants.rough_noise(plan))

    def least_noise(self, plan: Plan) -> Mapping[str, TaskNoise]:
        """A variant's noise."""
        return self._drawable(plan, self._variants.least_noise(plan))

    def _drawable(self, plan: Plan, noise: Mapping[str, TaskNoise]) -> Mapping[str, TaskNoise]:
        same = {(name, noise[name].mechanism) for name, task in plan.tasks.items() if task == self._tasks.get(name)}
        _check(plan, {name: its for name, its in noise.items() if (name, its.mechanism) not in same & self._checked})
        self._checked |= same
        return noise


def _check(plan: Plan, noise: Mapping[str, TaskNoise]) -> None:
    problems = []
    for name, its in noise.items():
        try:
            adapter_of(plan.tasks[name], its).outlook()
        except ValueError as error:
            problems.append((f"tasks.{name}.mechanism", str(error)))
    if problems:
        raise PlanError(*problems)
