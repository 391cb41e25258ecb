"""A task of a plan, signed or not, tried on public exemplars: free, and no private exemplar is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan
from exemplar_store import KnowledgeBase
from service.answering.trials.trials import MAX_EXEMPLARS, MAX_REPEATS, Trial, Trials
from service.operations.command import command
from service.operations.fields import ABSENT
from service.operations.roles import Actor, Right
from service.records.engine_record import EngineView
from service.records.records import Records
from service.records.signed import read_signed

if TYPE_CHECKING:
    from service.operations.services import Services

_EXAMPLE: dict[str, Any] = {
    "query": "I was charged twice for my subscription in March.",
    "exemplars": [
        {"text": "My invoice shows the wrong company name.", "label": "Billing"},
        {"text": "The app crashes when I open the settings.", "label": "Technical"},
    ],
}


class Trying(BaseModel):
    """A query and public exemplars for a trial of a task."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    query: str | dict[str, str]
    exemplars: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_EXEMPLARS,
        description="Exemplars that you declare public by sending them: nothing protects them, and a remote engine "
        "sees them. Each has the fields that the task's prompt shows; others are ignored.",
    )
    repeats: int = Field(
        default=20, ge=1, le=MAX_REPEATS, description="Number of times that noise is drawn, for `agreeing`."
    )


class TrialAnswer(BaseModel):
    """An answer: a label, or a text with the words or sentences it is made of."""

    label: str | None = Field(**ABSENT)
    score: float | None = Field(**ABSENT)
    scores: dict[str, float] | None = Field(**ABSENT)
    probability: float | None = Field(**ABSENT)
    probabilities: dict[str, float] | None = Field(**ABSENT)
    text: str | None = Field(**ABSENT)
    keywords: list[str] | None = Field(**ABSENT)
    sentences: list[str] | None = Field(**ABSENT)
    fallback: bool | None = Field(**ABSENT)
    method: str | None = Field(**ABSENT)


class StandIn(BaseModel):
    """Size of the supplied exemplars compared with the knowledge base that they stand in for."""

    supplied: int
    public_size: int = Field(description="Number of exemplars that the knowledge base declares.")
    expected_per_answer: int = Field(description="Number of exemplars that an answer draws on average.")
    caution: str


class TrialView(TrialAnswer):
    """An answer with the plan's noise, and details that may be shown since nothing here is private."""

    preview: Literal[True] = True
    task: str = Field(examples=["support.queue@1"])
    noiseless: TrialAnswer = Field(description="The answer of the same slots without noise.")
    support: dict[str, float] = Field(
        description="Support for `noiseless` and for other answers by `measure`, largest first."
    )
    measure: Literal["votes", "slots", "mean similarity"] = Field(
        description="Unit of `support`: votes by label, slots by word, or mean similarity of a candidate to the slots' "
        "answers."
    )
    repeats: int
    agreeing: float = Field(description="Share of the repeats, each with its own noise, that gave `noiseless`.")
    falling_back: float | None = Field(
        **ABSENT, description="Share of the repeats that fell back; absent if the mechanism never does."
    )
    slots: int = Field(description="Number of slots drawn.")
    answered: int = Field(description="Number of slots that gave an output; the others were empty, or abstained.")
    exemplars: StandIn
    engine: EngineView

    @classmethod
    def of(cls, task: str, trial: Trial) -> TrialView:
        """A trial of a task at this address."""
        return cls(
            **trial.answer,
            task=task,
            noiseless=TrialAnswer(**trial.consensus.answer),
            # No last digits: where what shares a batch on a GPU may move them, they could reveal other queries.
            support={answer: round(speaks, 2) for answer, speaks in trial.consensus.support.items()},
            measure=trial.consensus.measure,
            repeats=trial.repeats,
            agreeing=trial.agreeing / trial.repeats,
            falling_back=None if trial.fallbacks is None else trial.fallbacks / trial.repeats,
            slots=trial.slots,
            answered=trial.answered,
            exemplars=StandIn(
                supplied=trial.supplied,
                public_size=trial.public_size,
                expected_per_answer=trial.expected,
                caution=trial.caution,
            ),
            engine=EngineView.of(trial.engine),
        )


@command(Right.TRY)
async def try_(
    actor: Actor,
    trials: Trials,
    calibrated: CalibratedPlan,
    task: str,
    trying: Trying,
    embedded_field: str,
    response_field: str | None,
) -> Trial:
    """Try a plan's task; arguments and errors as of :meth:`service.answering.trials.trials.Trials.try_task`.

    Trials of an account on the machine, with an engine of its own, are not remembered.
    """
    return await trials.try_task(
        calibrated,
        task,
        trying.query,
        trying.exemplars,
        embedded_field=embedded_field,
        response_field=response_field,
        repeats=trying.repeats,
        asker="" if actor.kind == "account" else actor.id,
    )


@command(Right.TRY)
async def try_signed(actor: Actor, services: Services, task: str, trying: Trying) -> TrialView:
    """Try a signed task that is in the actor's scope.

    Raises:
        service.operations.roles.OutOfScopeError: the task is out of scope.
        accounting.ledger.errors.UnknownTaskError: no task has this address.
    """
    actor.require_task(task)
    signed, described = await asyncio.to_thread(_signed, services.records, task)
    plan, fields = read_signed(signed.document), (described.embedded_field, described.response_field)
    return TrialView.of(signed.address, await try_(actor, services.trials, plan, signed.name, trying, *fields))


def _signed(records: Records, task: str) -> tuple[SignedTask, KnowledgeBase]:
    signed = records.ledger.budgets.task(task)
    return signed, records.store.get(signed.knowledge_base)
