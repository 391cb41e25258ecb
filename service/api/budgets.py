"""What was promised, spent, and is left."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.dependencies import AnyKey
from service.commands import budgets
from service.commands.budgets import BudgetsView

router = APIRouter(prefix="/v1/budgets", tags=["budgets"])


@router.get("", summary="Budgets of all knowledge bases")
async def get_budgets(caller: AnyKey) -> BudgetsView:
    """Lifetime budget, what plans promise of it, what is free, and the answers left to each task."""
    return await caller.do(budgets.read)
