"""Lifetime budgets of knowledge bases, cohorts and groups: promised, spent and free."""

from typing import Annotated

from fastapi import APIRouter, Path

from service.gateway.api.dependencies import Admin, AnyKey, Sent
from service.gateway.api.knowledge_bases import NOT_SEEN, KnowledgeBaseName
from service.gateway.api.once import OnceRoute
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import may_meet
from service.operations import budgets
from service.operations.budget_report import GroupBudget
from service.operations.budgets import BudgetsView, CohortView, NewCohort, NewGroup
from service.operations.fields import WrittenWhole
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1", tags=["budgets"], route_class=OnceRoute)

_COHORTS = "/knowledge-bases/{knowledge_base}/cohorts"
_REFUSED = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.COHORT_REFUSED, ProblemKind.UNCONFIRMED)
_TAKEN = may_meet(ProblemKind.GROUP_REFUSED, ProblemKind.UNCONFIRMED)
_JOINING = may_meet(
    ProblemKind.UNKNOWN_GROUP,
    ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    ProblemKind.GROUP_REFUSED,
    ProblemKind.UNCONFIRMED,
)


@router.get("/budgets", summary="Budgets of all knowledge bases")
async def get_budgets(caller: AnyKey) -> BudgetsView:
    """Lifetime budgets, the parts promised to plans and still free, and the answers left to each task. A key for some
    tasks is shown these and their knowledge bases alone.
    """
    return await caller.do(budgets.read)


@router.post(_COHORTS, status_code=201, summary="Open a cohort with its lifetime budget", responses=_REFUSED)
async def open_cohort(knowledge_base: KnowledgeBaseName, body: NewCohort, caller: Admin, confirmed: Sent) -> CohortView:
    """People who arrive for the first time from now on belong to it, permanently. Open it at a time set by a calendar
    or a contract, not when you see who has arrived. If the newest has the same figures, confirm it (`?confirm=again`):
    this may be a request that was sent twice.
    """
    return await caller.do(budgets.open_cohort, knowledge_base, body, confirmed)


@router.get(_COHORTS, summary="List the cohorts", responses=NOT_SEEN)
async def list_cohorts(knowledge_base: KnowledgeBaseName, caller: AnyKey, window: Paging) -> Page[CohortView]:
    """Cohorts with their budgets, and what is left of them; people who arrive belong to the last one."""
    listed = await caller.do(budgets.list_cohorts, knowledge_base)
    return window.cut(listed, lambda cohort: str(cohort.cohort))


@router.post(_COHORTS + "/{cohort}/close", summary="Close a cohort to further plans", responses=_REFUSED)
async def close_cohort(
    knowledge_base: KnowledgeBaseName,
    cohort: Annotated[WrittenWhole, Path(ge=1, lt=2**31, examples=[1])],
    caller: Admin,
    confirmed: Sent,
) -> CohortView:
    """No further plan draws on it, permanently. Plans that are signed go on. The newest cohort cannot be closed."""
    return await caller.do(budgets.close_cohort, knowledge_base, cohort, confirmed)


@router.post("/groups", status_code=201, summary="Make a group with its lifetime budget", responses=_TAKEN)
async def make_group(body: NewGroup, caller: Admin, confirmed: Sent) -> GroupBudget:
    """Its budget can never be changed. Put knowledge bases into it afterwards."""
    return await caller.do(budgets.make_group, body, confirmed)


@router.get("/groups", summary="List the groups")
async def list_groups(caller: AnyKey, window: Paging) -> Page[GroupBudget]:
    """Groups with their knowledge bases, their budgets, and what is left of them."""
    return window.cut(await caller.do(budgets.list_groups), lambda group: group.group)


@router.put("/groups/{group}/knowledge-bases/{knowledge_base}", summary="Join a group", responses=_JOINING)
async def join_group(
    group: Annotated[str, Path(examples=["care"])], knowledge_base: KnowledgeBaseName, caller: Admin, confirmed: Sent
) -> GroupBudget:
    """A knowledge base joins permanently, with every plan signed for it. Its own budgets stay as they are."""
    return await caller.do(budgets.join_group, group, knowledge_base, confirmed)
