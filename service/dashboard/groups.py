"""Groups: knowledge bases that may hold the same people share one budget. Groups are made and joined here, for ever."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from pydantic import ValidationError
from starlette.responses import Response

from accounting.ledger.errors import GroupError, UnknownBudgetError
from service.dashboard.pages import Pages, Visit
from service.dashboard.promises import numbers, out_of_range
from service.plans.budget_report import GroupBudget
from service.records.new_knowledge_base import NAME, NewGroup
from service.records.roles import Right

pages = Pages()

_BLANK = {"name": "", "epsilon": "", "delta": ""}


@pages.get("/groups", needs=Right.BROWSE)
async def groups(visit: Visit) -> Response:
    """Every group and what is left of its budget."""
    return await _show(visit, _BLANK)


@pages.post("/groups")
async def open_(visit: Visit) -> Response:
    """Make a group with its lifetime budget, or say what is wrong, field by field."""
    given = {field: visit.field(field) for field in _BLANK}
    values, problems = numbers(given)
    if problems:
        return await _show(visit, given, 422, problems)
    try:
        wanted = NewGroup(name=given["name"], **values)
        make = visit.services.records.ledger.groups.open
        await asyncio.to_thread(make, wanted.name, wanted.epsilon, wanted.delta, by=visit.session.by)
    except ValidationError as error:
        return await _show(visit, given, 422, out_of_range(error))
    except GroupError as error:
        why = str(error)
        return await _show(visit, given, 409, {"name": f"{why[0].upper()}{why[1:]}."})
    return visit.redirect("/groups", done=f"Group “{wanted.name}” has its budget. Next: put knowledge bases into it.")


@pages.post("/groups/{group}/join")
async def join(visit: Visit) -> Response:
    """Put a knowledge base into a group, with every plan that it has signed."""
    group, name = visit.request.path_params["group"], visit.field("knowledge_base")
    try:
        if not re.fullmatch(NAME, name):  # PostgreSQL cannot look up a NUL character
            raise UnknownBudgetError(f"there is no knowledge base {name!r}")
        await asyncio.to_thread(visit.services.records.ledger.groups.join, group, name, by=visit.session.by)
    except (GroupError, UnknownBudgetError) as error:
        return await _show(visit, _BLANK, 409, refused=str(error))
    return visit.redirect("/groups", done=f"“{name}” shares the budget of group “{group}” from now on.")


async def _show(
    visit: Visit,
    given: Mapping[str, str],
    status: int = 200,
    problems: Mapping[str, str] | None = None,
    refused: str | None = None,
) -> Response:
    ledger = visit.services.records.ledger
    found = [GroupBudget.of(one) for one in await asyncio.to_thread(ledger.groups.statuses)]
    grouped = {name for one in found for name in one.knowledge_bases}
    budgets = await asyncio.to_thread(ledger.budgets.statuses)
    return visit.page(
        "groups.html",
        status,
        here="overview",
        groups=found,
        alone=[one.knowledge_base for one in budgets if one.knowledge_base not in grouped],
        given=given,
        problems=problems or {},
        refused=refused,
    )
