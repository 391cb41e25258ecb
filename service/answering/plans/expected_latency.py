"""The expected latency of a plan that is not signed: an estimate, from tasks that this service has measured.

Prompts take about as long as they have tokens, so times are in proportion to those of a measured task of the same kind
and sampling, that with the most similar number. Tasks whose blocks are read ahead are not compared with: their times
are not in proportion to tokens.
"""

import math

from pydantic import BaseModel, Field

from accounting.ledger.budgets import Budgets
from accounting.plans.plan import Plan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from service.answering.latency import Grains, smallest_grain_s
from service.answering.plans.preview import PlanPreview, preview
from service.records.signed import read_signed


class LatencyEstimate(BaseModel):
    """The expected time of a task's answers, in seconds: an estimate, not a measurement."""

    like: str = Field(description="The measured task whose times these are, in proportion to prompt tokens.")
    typical_s: float = Field(description="Work with slots of an ordinary length.")
    largest_s: float = Field(description="Work with the largest slots that there can be.")
    grain_s: float = Field(description="Answers would leave after this, or a multiple.")
    repeats: float | None = Field(
        default=None,
        description="Share of public questions in which the model repeats the label that it is shown beside public "
        "texts: whether it reads exemplars. Null: the measured task has other labels, texts or prompts, or references "
        "of each slot's own.",
    )


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
        alike = [(tokens / other, latency) for latency, asked, other in known if _form(asked) == _form(task)]
        if alike:
            times, latency = min(alike, key=lambda pair: abs(math.log(pair[0])))
            repeats = (latency.repeats for latency, asked, _ in known if _shown(asked) == _shown(task))
            typical_s, largest_s = times * latency.typical_s, times * latency.work_s
            grain_s = smallest_grain_s(largest_s) if latency.chosen else latency.grain_s  # else the operator has set it
            expected[name] = LatencyEstimate(
                like=latency.task,
                typical_s=typical_s,
                largest_s=largest_s,
                grain_s=grain_s,
                repeats=next((share for share in repeats if share is not None), None),
            )
    return expected


def _form(task: ClassifyTask | GenerateTask) -> tuple[object, ...]:
    """What tasks have in common whose times are in proportion to tokens."""
    return task.kind, task.sampling, isinstance(task, ClassifyTask) and task.own_share > 0


def _shown(task: ClassifyTask | GenerateTask) -> tuple[object, ...]:
    """What the references of label scores are made of."""
    labels = (task.labels, task.calibration_queries) if isinstance(task, ClassifyTask) else ()
    return task.prompt, task.shots, task.public_exemplars, labels
