"""Groups: knowledge bases that may hold the same people share one budget. Groups are made and joined here, for ever."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError
from starlette.responses import Response

from accounting.ledger.errors import GroupError, UnknownBudgetError
from service.commands import groups as commands
from service.commands import knowledge_bases
from service.commands.fields import problems
from service.commands.groups import NewGroup
from service.dashboard.pages import Pages, Visit
from service.records.roles import Right

pages = Pages()


@pages.get("/groups", needs=Right.BROWSE)
async def groups(visit: Visit) -> Response:
    """Every group and what is left of its budget."""
    return await _show(visit)


@pages.post("/groups")
async def open_(visit: Visit) -> Response:
    """Make a group with its lifetime budget, or say what is wrong, field by field."""
    try:
        made = await commands.make.aside(visit.actor, visit.services.records, visit.read(NewGroup))
    except ValidationError as error:
        return await _show(visit, 422, problems(error, NewGroup))
    except GroupError as error:
        return await _show(visit, 409, problems(error, NewGroup))
    return visit.redirect("/groups", done=f"Group “{made.group}” has its budget. Next: put knowledge bases into it.")


@pages.post("/groups/{group}/join")
async def join(visit: Visit) -> Response:
    """Put a knowledge base into a group, with every plan that it has signed."""
    group, name = visit.request.path_params["group"], visit.field("knowledge_base")
    try:
        await commands.join.aside(visit.actor, visit.services.records, group, name)
    except (GroupError, UnknownBudgetError) as error:
        return await _show(visit, 409, refused=str(error))
    return visit.redirect("/groups", done=f"“{name}” shares the budget of group “{group}” from now on.")


async def _show(
    visit: Visit, status: int = 200, wrong: Mapping[str, str] | None = None, refused: str | None = None
) -> Response:
    records = visit.services.records
    listed = await commands.list_.aside(visit.actor, records)
    grouped = {name for group in listed for name in group.knowledge_bases}
    known = await knowledge_bases.list_.aside(visit.actor, records)
    return visit.page(
        "groups.html",
        status,
        here="overview",
        groups=listed,
        alone=[view.name for view in known if view.name not in grouped],
        given=visit.given(NewGroup),
        problems=wrong or {},
        refused=refused,
    )
