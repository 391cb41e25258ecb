"""What a plan would get right, measured on labelled rows that may be looked at: the plan, and each change proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from accounting.plans import plain_yaml
from accounting.plans.plan import CalibratedPlan, Plan
from accounting.plans.tasks import ClassifyTask
from exemplar_store import Layout, Row
from service.answering.mechanisms.adapter import adapter_of
from service.answering.plans.calibrating import least_noise
from service.answering.plans.proposals import Proposal, adopted
from service.answering.trials.held_out import HeldOut, HeldOutAccuracy, UnmeasurableError
from service.operations.command import command
from service.operations.fields import ABSENT
from service.operations.roles import Actor, Right
from service.operations.wording import accuracy
from service.records.engine_record import EngineView


class MeasuredTask(BaseModel):
    """What one task of a plan gets right, as planned or with one change."""

    task: str
    change: int | None = Field(**ABSENT, description="Number of the proposal, from 0; absent: as planned.")
    accuracy: float | None = Field(**ABSENT, description="Right answers in percent; absent: not measured.")
    standard_error: float | None = Field(**ABSENT, description="Standard error of the accuracy, in points.")
    zero_shot: float | None = Field(**ABSENT, description="The same of the engine without exemplars, which is free.")
    zero_shot_error: float | None = Field(**ABSENT, description="Standard error of that, in points.")
    rows: int = Field(default=0, description="Number of held-out rows that were asked.")
    exemplars: int = Field(default=0, description="Number of rows that stood in for the knowledge base.")
    caution: str | None = Field(
        **ABSENT, description="What it means that there are fewer exemplars than planned; absent: there are enough."
    )
    not_measured: str | None = Field(**ABSENT, description="Reason why it was not measured; absent: it was.")

    @classmethod
    def of(cls, task: str, change: int | None, measured: HeldOutAccuracy) -> MeasuredTask:
        """A measurement."""
        return cls(
            task=task,
            change=change,
            accuracy=measured.accuracy.share,
            standard_error=measured.accuracy.error,
            zero_shot=measured.zero_shot.share,
            zero_shot_error=measured.zero_shot.error,
            rows=measured.accuracy.rows,
            exemplars=measured.used,
            caution=measured.caution or None,
        )

    @property
    def sentence(self) -> str:
        """The figures in one sentence, for people."""
        if self.accuracy is None or self.zero_shot is None:
            return f"Not measured: {self.not_measured}."
        right = accuracy(self.accuracy, self.standard_error, self.rows)
        without = accuracy(self.zero_shot, self.zero_shot_error, self.rows)
        return (
            f"{right} of answers right on {self.rows:,} held-out rows, zero-shot {without}."
            f"{' ' + self.caution if self.caution else ''}"
        )


class Measuring(BaseModel):
    """A plan, and labelled rows to measure it on."""

    model_config = ConfigDict(extra="forbid")

    plan: str | dict[str, Any] = Field(description="The plan, as YAML or as an object.")
    rows: list[dict[str, Any]] = Field(
        min_length=1,
        description="Rows at which you may look, each with the fields of the plan's prompts and the id of a person. "
        "They are in memory until they are measured, and a remote engine sees them.",
    )
    unit_id: str = Field(default="unit_id", description="Field of the rows with the id of the person.")

    @property
    def text(self) -> str:
        """The plan as written."""
        return self.plan if isinstance(self.plan, str) else plain_yaml.dump(self.plan)

    def read(self, plan: Plan) -> list[Row]:
        """The rows, checked as an upload's.

        Raises:
            exemplar_store.BadRowError: one is not valid; the error names it.
        """
        layout = Layout(fields(plan), self.unit_id)
        return [layout.row(number, row) for number, row in enumerate(self.rows, 1)]


class Measured(BaseModel):
    """What a plan gets right, and what it would with each of some changes."""

    proposals: list[Proposal]
    measured: list[MeasuredTask]


def fields(plan: Plan) -> list[str]:
    """The fields that rows must have, in alphabetical order; none if no task answers with labels."""
    tasks = [task for task in plan.tasks.values() if isinstance(task, ClassifyTask)]
    return sorted({field for task in tasks for field in task.exemplar_fields})


@command(Right.DECIDE)
async def measure(
    _actor: Actor,
    held_out: HeldOut,
    calibrated: CalibratedPlan,
    proposals: Sequence[Proposal],
    *,
    served_by: EngineView | None = None,
) -> list[MeasuredTask]:
    """Measure each task of a plan that answers with labels, as planned and with each change. The rows are not kept.

    Args:
        held_out: rows with the :func:`fields`, at which the admin may look, and the engine to ask.
        calibrated: the plan with its noise.
        proposals: changes of it.
        served_by: engine that will answer, where another one is asked here; None: the one that is asked.

    Raises:
        service.answering.queries.InvalidQueryError: a held-out row cannot be asked.
        service.answering.answering.BusyError: the engine has more work than it takes on.
        service.engines.errors.EngineUnavailableError: the engine or the embedder does not answer.
    """
    asked = await held_out.engine()
    other = served_by if served_by is not None and served_by.name != asked.name else None
    found = []
    for task, change in _wanted(calibrated, proposals):
        try:
            changed = calibrated if change is None else await _changed(calibrated, proposals[change])
            if other is not None and adapter_of(changed.plan.tasks[task], changed.noise[task]).calls:
                raise UnmeasurableError(
                    f"{other.name} answers in the service, not {asked.name}: name its engine config"
                )
            found.append(MeasuredTask.of(task, change, await held_out.measure(changed, task)))
        except UnmeasurableError as error:
            found.append(MeasuredTask(task=task, change=change, not_measured=str(error)))
    return found


def _wanted(calibrated: CalibratedPlan, proposals: Sequence[Proposal]) -> Iterator[tuple[str, int | None]]:
    yield from ((task, None) for task in calibrated.plan.tasks)
    for number, proposal in enumerate(proposals):
        if isinstance(calibrated.plan.tasks[proposal.task], ClassifyTask):
            yield proposal.task, number


async def _changed(calibrated: CalibratedPlan, proposal: Proposal) -> CalibratedPlan:
    plan = adopted(calibrated.plan, proposal)
    noise = await asyncio.to_thread(least_noise, plan, calibrated.public_size)
    return calibrated.model_copy(update={"plan": plan, "noise": dict(noise)})
