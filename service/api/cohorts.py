"""Cohorts: people by when they arrived, each cohort with its own lifetime budget."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from service.api.dependencies import Admin, AnyKey, Confirmed
from service.api.knowledge_bases import NO_KNOWLEDGE_BASE, KnowledgeBaseName
from service.api.paging import Page, Paging
from service.api.problems import may_meet
from service.commands import cohorts
from service.commands.cohorts import CohortView, NewCohort
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/knowledge-bases/{knowledge_base}/cohorts", tags=["knowledge bases"])


_RESPONSES = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.COHORT_REFUSED)


@router.post("", status_code=201, summary="Open a cohort with its lifetime budget", responses=_RESPONSES)
async def open_cohort(
    knowledge_base: KnowledgeBaseName, body: NewCohort, caller: Admin, confirmed: Confirmed
) -> CohortView:
    """Whoever arrives for the first time from now on belongs to it, for ever. Open it when a calendar or a contract
    says so, not when you see who has arrived.
    """
    return await caller.do(cohorts.open_, knowledge_base, body, confirmed)


@router.get("", summary="List the cohorts", responses=NO_KNOWLEDGE_BASE)
async def list_cohorts(knowledge_base: KnowledgeBaseName, caller: AnyKey, window: Paging) -> Page[CohortView]:
    """Each with its budget, and what is left of it; the last one is the one that people arrive to."""
    listed = await caller.do(cohorts.list_, knowledge_base)
    return window.cut(listed, lambda cohort: str(cohort.cohort))


@router.post("/{cohort}/close", summary="Close a cohort to further plans", responses=_RESPONSES)
async def close_cohort(
    knowledge_base: KnowledgeBaseName, cohort: Annotated[int, Path(ge=1, examples=[1])], caller: Admin
) -> CohortView:
    """No further plan draws on it, for ever. Plans that are signed go on. The newest cannot be closed."""
    return await caller.do(cohorts.close, knowledge_base, cohort)
