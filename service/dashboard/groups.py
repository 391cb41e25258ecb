"""Groups: knowledge bases that may hold the same people share one budget. Groups are made and joined here, for ever."""

from __future__ import annotations

from starlette.responses import Response

from service.commands import groups as commands
from service.commands import knowledge_bases
from service.commands.groups import NewGroup
from service.dashboard.pages import Pages, Visit
from service.records.roles import Right

pages = Pages()


@pages.get("/groups", needs=Right.BROWSE)
async def groups(visit: Visit) -> Response:
    """Every group and what is left of its budget."""
    listed = await visit.do(commands.list_)
    grouped = {name for group in listed for name in group.knowledge_bases}
    alone = [view.name for view in await visit.do(knowledge_bases.list_) if view.name not in grouped]
    return visit.page("groups.html", here="overview", groups=listed, alone=alone)


@pages.post("/groups", again=groups, about="name")
async def open_(visit: Visit) -> Response:
    """Make a group with its lifetime budget, or say what is wrong, field by field."""
    made = await visit.do(commands.make, visit.read(NewGroup))
    return visit.redirect("/groups", done=f"Group “{made.group}” has its budget. Next: put knowledge bases into it.")


@pages.post("/groups/{group}/join", again=groups)
async def join(visit: Visit) -> Response:
    """Put a knowledge base into a group, with every plan that it has signed."""
    group, name = visit.path("group"), visit.field("knowledge_base")
    await visit.do(commands.join, group, name)
    return visit.redirect("/groups", done=f"“{name}” shares the budget of group “{group}” from now on.")
