"""A task tried on public exemplars: free, and no private exemplar is read."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from service.api.answers import TaskAddress
from service.api.dependencies import TrialKey
from service.api.problems import may_meet
from service.commands import trials
from service.commands.trials import TrialView, Trying
from service.problem_kinds import ProblemKind
from service.records.signed import read_signed

router = APIRouter(prefix="/v1", tags=["answers"])


@router.post(
    "/tasks/{task}/preview",
    summary="Try a task on public exemplars, free",
    responses=may_meet(
        ProblemKind.OUT_OF_SCOPE,
        ProblemKind.UNKNOWN_TASK,
        ProblemKind.INVALID_QUERY,
        ProblemKind.BUSY,
        ProblemKind.RATE_LIMITED,
        ProblemKind.ENGINE_UNAVAILABLE,
    ),
)
async def preview(task: TaskAddress, body: Trying, caller: TrialKey) -> TrialView:
    """See what a task makes of a query, on exemplars that are public.

    The engine, the prompts, the mechanism and its noise are those of the signed plan; the exemplars are the ones you
    send, dealt to slots of the sizes that a knowledge base of the declared size would give. Nothing is charged, no
    release is stored, no private exemplar is read. Analysts and admins may; it counts toward the key's rate limit.
    """
    caller.actor.require_task(task)
    records = caller.services.records
    signed = await asyncio.to_thread(records.ledger.budgets.task, task)
    described = await asyncio.to_thread(records.store.get, signed.knowledge_base)
    fields = described.embedded_field, described.response_field
    plan = read_signed(signed.document)
    return TrialView.of(
        signed.address, await trials.try_(caller.actor, caller.services.trials, plan, signed.name, body, *fields)
    )
