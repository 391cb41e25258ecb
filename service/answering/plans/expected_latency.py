"""The expected latency of a plan that is not signed: an estimate, from tasks that this service has measured.

Prompts take about as long as they have tokens, so times are in proportion to those of a measured task of the same kind
and sampling, that with the most similar number. Tasks whose blocks are read ahead are not compared with: their times
are not in proportion to tokens.
"""

import math

from pydantic import BaseModel, Field

from accounting.ledger.budgets import Budgets
from accounting.plans.plan import Plan
from service.answering.latency import Grains, smallest_grain_s
from service.answering.plans.preview import PlanPreview, preview
from service.records.signed import read_signed


class LatencyEstimate(BaseModel):
    """The expected time of a task's answers, in seconds: an estimate, not a measurement."""

    like: str = Field(description="The measured task whose times these are, in proportion to prompt tokens.")
    typical_s: float = Field(description="Work with slots of an ordinary length.")
    largest_s: float = Field(description="Work with the largest slots that there can be.")
    grain_s: float = Field(description="Answers would leave after this, or a multiple.")


def expected_latency(
    plan: Plan, described: PlanPreview, grains: Grains, budgets: Budgets
) -> dict[str, LatencyEstimate]:
    """An estimate for each of a plan's tasks that a measured one is comparable to.

    Args:
        plan: plan that is not signed.
        described: preview of the plan.
        grains: measured grains; tasks that were not measured with a language model here are left out.
        budgets: budgets with the measured tasks.
    """
    known = []
    for latency in grains.report or ():
        if latency.typical_s and not latency.problem and not latency.blocks:
            signed = budgets.task(latency.task, even_retired=True)
            calibrated = read_signed(signed.document)
            tokens = preview(calibrated).tasks[signed.name].llm_tokens
            known.append((latency, calibrated.plan.tasks[signed.name], tokens))
    expected = {}
    for name, task in plan.each.items():
        tokens = described.tasks[name].llm_tokens
        same = task.kind, task.sampling
        alike = [(tokens / other, latency) for latency, asked, other in known if (asked.kind, asked.sampling) == same]
        if alike:
            times, latency = min(alike, key=lambda pair: abs(math.log(pair[0])))
            typical_s, largest_s = times * latency.typical_s, times * latency.work_s
            grain_s = smallest_grain_s(largest_s) if latency.chosen else latency.grain_s  # else the operator has set it
            expected[name] = LatencyEstimate(
                like=latency.task, typical_s=typical_s, largest_s=largest_s, grain_s=grain_s
            )
    return expected
