"""What was promised, spent, and is left."""

from __future__ import annotations

from pydantic import BaseModel

from service.commands.command import command
from service.plans.budget_report import KnowledgeBaseBudget, budget_report
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records
from service.records.roles import Actor, Right


class BudgetsView(BaseModel):
    """Every knowledge base's budget, and the engine that answers."""

    engine: EngineView | None
    knowledge_bases: list[KnowledgeBaseBudget]


@command(Right.SEE)
def read(_actor: Actor, records: Records) -> BudgetsView:
    """Every knowledge base's budget, by name."""
    return BudgetsView(engine=last_engine(records.database), knowledge_bases=budget_report(records))
