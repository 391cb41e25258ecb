"""Groups: knowledge bases that may hold the same people share one budget."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path

from service.api.dependencies import AdminKey, AnyKey, TheServices
from service.api.knowledge_bases import KnowledgeBaseName
from service.api.paging import Page, Paging
from service.plans.budget_report import GroupBudget
from service.records.new_knowledge_base import NewGroup

router = APIRouter(prefix="/v1/groups", tags=["knowledge bases"])


@router.post(
    "",
    status_code=201,
    summary="Make a group with its lifetime budget",
    responses={409: {"description": "There is one of this name."}},
)
async def make_group(body: NewGroup, services: TheServices, admin: AdminKey) -> GroupBudget:
    """Then put knowledge bases into it. Its budget can never be changed."""
    groups = services.records.ledger.groups
    await asyncio.to_thread(groups.open, body.name, body.epsilon, body.delta, by=admin.id)
    return GroupBudget.of(await asyncio.to_thread(groups.status, body.name))


@router.get("", summary="List the groups")
async def list_groups(services: TheServices, _key: AnyKey, window: Paging) -> Page[GroupBudget]:
    """Each with its knowledge bases, its budget, and what is left of it."""
    found = await asyncio.to_thread(services.records.ledger.groups.statuses)
    return window.cut([GroupBudget.of(one) for one in found], lambda one: one.group)


_JOINING: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such group or knowledge base."},
    409: {"description": "It is in a group already, or its plans promise more than the group has left."},
}


@router.put("/{group}/knowledge-bases/{knowledge_base}", summary="Join a group", responses=_JOINING)
async def join_group(
    group: Annotated[str, Path(examples=["care"])],
    knowledge_base: KnowledgeBaseName,
    services: TheServices,
    admin: AdminKey,
) -> GroupBudget:
    """A knowledge base joins for ever, with every plan that it has signed. Its own budgets stay as they are."""
    groups = services.records.ledger.groups
    await asyncio.to_thread(groups.join, group, knowledge_base, by=admin.id)
    return GroupBudget.of(await asyncio.to_thread(groups.status, group))
