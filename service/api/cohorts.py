"""Cohorts: people by when they arrived, each cohort with its own lifetime budget."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from service.api.dependencies import AdminKey, AnyKey, TheServices
from service.api.knowledge_bases import NO_KNOWLEDGE_BASE, KnowledgeBaseName
from service.api.paging import Page, Paging
from service.plans.budget_report import CohortBudget
from service.records.new_knowledge_base import NewCohort, check_promise
from service.records.records import Records

router = APIRouter(prefix="/v1/knowledge-bases/{knowledge_base}/cohorts", tags=["knowledge bases"])


class CohortView(CohortBudget):
    """What is public of a cohort."""

    public_size: int = Field(description="Exemplars that were declared when it was opened.")


_RESPONSES: dict[int | str, dict[str, Any]] = {
    404: NO_KNOWLEDGE_BASE,
    409: {"description": "It cannot be opened or closed; the detail says why."},
}


@router.post("", status_code=201, summary="Open a cohort with its lifetime budget", responses=_RESPONSES)
async def open_cohort(
    knowledge_base: KnowledgeBaseName,
    body: NewCohort,
    services: TheServices,
    admin: AdminKey,
    accept_weak_promise: Annotated[
        bool, Query(description="Open it although its ε or δ is large, or its public size small.")
    ] = False,
) -> CohortView:
    """Whoever arrives for the first time from now on belongs to it, for ever. Open it when a calendar or a contract
    says so, not when you see who has arrived.
    """
    check_promise(body.epsilon, body.delta, body.public_size, accepted=accept_weak_promise)
    records = services.records
    number = await asyncio.to_thread(records.open_cohort, knowledge_base, **body.model_dump(), by=admin.id)
    return (await asyncio.to_thread(_views, records, knowledge_base))[number - 1]


@router.get("", summary="List the cohorts", responses={404: NO_KNOWLEDGE_BASE})
async def list_cohorts(
    knowledge_base: KnowledgeBaseName, services: TheServices, _key: AnyKey, window: Paging
) -> Page[CohortView]:
    """Each with its budget, and what is left of it; the last one is the one that people arrive to."""
    return window.cut(await asyncio.to_thread(_views, services.records, knowledge_base), lambda one: str(one.cohort))


@router.post("/{cohort}/close", summary="Close a cohort to further plans", responses=_RESPONSES)
async def close_cohort(
    knowledge_base: KnowledgeBaseName,
    cohort: Annotated[int, Path(ge=1, examples=[1])],
    services: TheServices,
    admin: AdminKey,
) -> CohortView:
    """No further plan draws on it, for ever. Plans that are signed go on. The newest cannot be closed."""
    records = services.records
    await asyncio.to_thread(records.store.get, knowledge_base)
    await asyncio.to_thread(records.ledger.cohorts.close, knowledge_base, cohort, by=admin.id)
    return (await asyncio.to_thread(_views, records, knowledge_base))[cohort - 1]


def _views(records: Records, name: str) -> list[CohortView]:
    sizes = records.store.get(name).public_sizes
    return [
        CohortView(**CohortBudget.of(one).model_dump(), public_size=size)
        for one, size in zip(records.ledger.budgets.status(name).cohorts, sizes, strict=False)
    ]
