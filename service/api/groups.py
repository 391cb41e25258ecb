"""Groups: knowledge bases that may hold the same people share one budget."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from service.api.dependencies import Admin, AnyKey, TheServices
from service.api.knowledge_bases import KnowledgeBaseName
from service.api.paging import Page, Paging
from service.commands import groups
from service.commands.groups import NewGroup
from service.plans.budget_report import GroupBudget

router = APIRouter(prefix="/v1/groups", tags=["knowledge bases"])

_TAKEN: dict[int | str, dict[str, Any]] = {409: {"description": "There is one of this name."}}
_JOINING: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such group or knowledge base."},
    409: {"description": "It is in a group already, or its plans promise more than the group has left."},
}


@router.post("", status_code=201, summary="Make a group with its lifetime budget", responses=_TAKEN)
async def make_group(body: NewGroup, services: TheServices, admin: Admin) -> GroupBudget:
    """Then put knowledge bases into it. Its budget can never be changed."""
    return await groups.make.aside(admin, services.records, body)


@router.get("", summary="List the groups")
async def list_groups(services: TheServices, key: AnyKey, window: Paging) -> Page[GroupBudget]:
    """Each with its knowledge bases, its budget, and what is left of it."""
    return window.cut(await groups.list_.aside(key.actor, services.records), lambda group: group.group)


@router.put("/{group}/knowledge-bases/{knowledge_base}", summary="Join a group", responses=_JOINING)
async def join_group(
    group: Annotated[str, Path(examples=["care"])],
    knowledge_base: KnowledgeBaseName,
    services: TheServices,
    admin: Admin,
) -> GroupBudget:
    """A knowledge base joins for ever, with every plan that it has signed. Its own budgets stay as they are."""
    return await groups.join.aside(admin, services.records, group, knowledge_base)
