"""Rehearsals: how often a plan's answers would be right, found out privately and at a price, before it is signed."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from accounting.plan import CalibratedPlan, calibrate_plan
from aggregation.rehearsal import Counts
from service.commands.command import command
from service.pipeline.stages import Stages
from service.plans.preview import PlanPreview, preview
from service.plans.rehearsing import EPSILON, QUESTIONS, Rehearsals, begin, finish, written
from service.records.records import Records
from service.records.roles import Actor, Right

_QUEUE: dict[str, Any] = {"task": "queue", "epsilon": 0.1}


class NewRehearsal(BaseModel):
    """A rehearsal to run. Its ε and δ are checked as a plan's."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_QUEUE]})
    task: str | None = Field(default=None, description="Which of the plan's tasks. [default: the first]")
    epsilon: float = Field(default=EPSILON, description="What the rehearsal costs.")
    delta: float | None = Field(default=None, description="Likewise. [default: a tenth of the plan's]")
    questions: int = Field(default=QUESTIONS, ge=1, description="How many are asked at most.")


@dataclass(frozen=True)
class Offer:
    """A rehearsal that can be run: what it takes, and what it is expected to say."""

    calibrated: CalibratedPlan
    preview: PlanPreview


@command(Right.DECIDE)
def offer(_actor: Actor, rehearsed: CalibratedPlan, wanted: NewRehearsal) -> Offer:
    """What a rehearsal of a plan would take and say. Takes seconds; spends nothing.

    Raises:
        PlanError: the task cannot be rehearsed, or not at this price.
    """
    task = wanted.task or next(iter(rehearsed.plan.tasks))
    plan = written(rehearsed, task, wanted.epsilon, wanted.delta, wanted.questions)
    calibrated = calibrate_plan(plan, rehearsed.public_size)
    return Offer(calibrated, preview(calibrated))


@command(Right.DECIDE)
async def start(actor: Actor, rehearsals: Rehearsals, offered: Offer) -> str:
    """Charge a rehearsal for ever and start it beside the queries; its address. Errors as of ``Rehearsals.start``."""
    return await rehearsals.start(offered.calibrated, actor.id)


@command(Right.DECIDE)
async def run(actor: Actor, records: Records, offered: Offer, stages: Stages) -> tuple[str, Counts]:
    """Charge a rehearsal for ever and run it to its end: its address, and the counts that left.

    Errors as of :func:`service.plans.rehearsing.begin`.
    """
    charged = await begin(records, offered.calibrated, actor.id, stages)
    return charged.signed.address, await finish(records, stages, charged, padded=not records.settings.latency_unpadded)
