"""Groups: knowledge bases that may hold the same people share one budget."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from service.api.dependencies import Admin, AnyKey
from service.api.knowledge_bases import KnowledgeBaseName
from service.api.paging import Page, Paging
from service.api.problems import may_meet
from service.commands import groups
from service.commands.groups import NewGroup
from service.plans.budget_report import GroupBudget
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/groups", tags=["knowledge bases"])

_TAKEN = may_meet(ProblemKind.GROUP_REFUSED)
_JOINING = may_meet(ProblemKind.UNKNOWN_GROUP, ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.GROUP_REFUSED)


@router.post("", status_code=201, summary="Make a group with its lifetime budget", responses=_TAKEN)
async def make_group(body: NewGroup, caller: Admin) -> GroupBudget:
    """Then put knowledge bases into it. Its budget can never be changed."""
    return await caller.do(groups.make, body)


@router.get("", summary="List the groups")
async def list_groups(caller: AnyKey, window: Paging) -> Page[GroupBudget]:
    """Each with its knowledge bases, its budget, and what is left of it."""
    return window.cut(await caller.do(groups.list_), lambda group: group.group)


@router.put("/{group}/knowledge-bases/{knowledge_base}", summary="Join a group", responses=_JOINING)
async def join_group(
    group: Annotated[str, Path(examples=["care"])], knowledge_base: KnowledgeBaseName, caller: Admin
) -> GroupBudget:
    """A knowledge base joins for ever, with every plan that it has signed. Its own budgets stay as they are."""
    return await caller.do(groups.join, group, knowledge_base)
