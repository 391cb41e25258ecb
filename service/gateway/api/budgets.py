"""Lifetime budgets: what was promised, spent, and is left; of cohorts, and shared by groups of knowledge bases."""

from typing import Annotated

from fastapi import APIRouter, Path

from service.gateway.api.dependencies import Admin, AnyKey, Confirmed
from service.gateway.api.knowledge_bases import NO_KNOWLEDGE_BASE, KnowledgeBaseName
from service.gateway.api.once import OnceRoute
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import may_meet
from service.operations import budgets
from service.operations.budget_report import GroupBudget
from service.operations.budgets import BudgetsView, CohortView, NewCohort, NewGroup
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1", tags=["budgets"], route_class=OnceRoute)

_COHORTS = "/knowledge-bases/{knowledge_base}/cohorts"
_REFUSED = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.COHORT_REFUSED)
_TAKEN = may_meet(ProblemKind.GROUP_REFUSED)
_JOINING = may_meet(ProblemKind.UNKNOWN_GROUP, ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.GROUP_REFUSED)


@router.get("/budgets", summary="Budgets of all knowledge bases")
async def get_budgets(caller: AnyKey) -> BudgetsView:
    """Lifetime budget, what plans promise of it, what is free, and the answers left to each task."""
    return await caller.do(budgets.read)


@router.post(_COHORTS, status_code=201, summary="Open a cohort with its lifetime budget", responses=_REFUSED)
async def open_cohort(
    knowledge_base: KnowledgeBaseName, body: NewCohort, caller: Admin, confirmed: Confirmed
) -> CohortView:
    """Whoever arrives for the first time from now on belongs to it, for ever. Open it when a calendar or a contract
    says so, not when you see who has arrived.
    """
    return await caller.do(budgets.open_cohort, knowledge_base, body, confirmed)


@router.get(_COHORTS, summary="List the cohorts", responses=NO_KNOWLEDGE_BASE)
async def list_cohorts(knowledge_base: KnowledgeBaseName, caller: AnyKey, window: Paging) -> Page[CohortView]:
    """Each with its budget, and what is left of it; the last one is the one that people arrive to."""
    listed = await caller.do(budgets.list_cohorts, knowledge_base)
    return window.cut(listed, lambda cohort: str(cohort.cohort))


@router.post(_COHORTS + "/{cohort}/close", summary="Close a cohort to further plans", responses=_REFUSED)
async def close_cohort(
    knowledge_base: KnowledgeBaseName, cohort: Annotated[int, Path(ge=1, examples=[1])], caller: Admin
) -> CohortView:
    """No further plan draws on it, for ever. Plans that are signed go on. The newest cannot be closed."""
    return await caller.do(budgets.close_cohort, knowledge_base, cohort)


@router.post("/groups", status_code=201, summary="Make a group with its lifetime budget", responses=_TAKEN)
async def make_group(body: NewGroup, caller: Admin) -> GroupBudget:
    """Then put knowledge bases into it. Its budget can never be changed."""
    return await caller.do(budgets.make_group, body)


@router.get("/groups", summary="List the groups")
async def list_groups(caller: AnyKey, window: Paging) -> Page[GroupBudget]:
    """Each with its knowledge bases, its budget, and what is left of it."""
    return window.cut(await caller.do(budgets.list_groups), lambda group: group.group)


@router.put("/groups/{group}/knowledge-bases/{knowledge_base}", summary="Join a group", responses=_JOINING)
async def join_group(
    group: Annotated[str, Path(examples=["care"])], knowledge_base: KnowledgeBaseName, caller: Admin
) -> GroupBudget:
    """A knowledge base joins for ever, with every plan that it has signed. Its own budgets stay as they are."""
    return await caller.do(budgets.join_group, group, knowledge_base)
