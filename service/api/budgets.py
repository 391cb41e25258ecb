"""What was promised, spent, and is left."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from pydantic import BaseModel

from service.api.dependencies import AnyKey, TheServices
from service.plans.budget_report import KnowledgeBaseBudget, budget_report
from service.records.engine_record import EngineView, last_engine

router = APIRouter(prefix="/v1/budgets", tags=["budgets"])


class BudgetsView(BaseModel):
    """Every knowledge base's budget, and the engine that answers."""

    engine: EngineView | None
    knowledge_bases: list[KnowledgeBaseBudget]


@router.get("", summary="Budgets of all knowledge bases")
async def get_budgets(services: TheServices, _key: AnyKey) -> BudgetsView:
    """Lifetime budget, what plans promise of it, what is free, and the answers left to each task."""
    return BudgetsView(
        engine=await asyncio.to_thread(last_engine, services.records.database),
        knowledge_bases=await asyncio.to_thread(budget_report, services.records),
    )
