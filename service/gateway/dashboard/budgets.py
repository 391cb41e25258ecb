"""Cohorts, with budgets of their own, and groups of knowledge bases, which share one: opened, closed and joined."""

from starlette.responses import Response

from service.gateway.dashboard.knowledge_base import HOME, tab
from service.gateway.dashboard.pages import Pages, Visit
from service.operations import budgets as commands
from service.operations import knowledge_bases
from service.operations.budgets import NewCohort, NewGroup
from service.operations.roles import Right

pages = Pages()

_COHORTS = HOME + "/cohorts"


@pages.get(_COHORTS, needs=Right.BROWSE)
async def cohorts(visit: Visit) -> Response:
    """The cohorts with what is left of their budgets, and the plans that draw on them."""
    return await tab(visit, "cohorts", cohorts=await visit.do(commands.list_cohorts, visit.path("name")))


@pages.post(_COHORTS, again=cohorts)
async def open_cohort(visit: Visit) -> Response:
    """Open a cohort with its lifetime budget, or show the problems, field by field."""
    name = visit.path("name")
    opened = await visit.do(commands.open_cohort, name, visit.read(NewCohort), visit.seen)
    done = f"Cohort {opened.cohort} is open: people who arrive for the first time from now on belong to it for good."
    return visit.redirect(_COHORTS.format(name=name), done=done)


@pages.post(_COHORTS + "/{number:number}/close", again=cohorts)
async def close_cohort(visit: Visit) -> Response:
    """Close a cohort to new plans."""
    name, number = visit.path("name"), visit.path("number")
    await visit.do(commands.close_cohort, name, number, visit.seen)
    return visit.redirect(_COHORTS.format(name=name), done=f"Cohort {number} is closed: no further plan draws on it.")


@pages.get("/groups", needs=Right.BROWSE)
async def groups(visit: Visit) -> Response:
    """Every group, with what is left of its budget."""
    listed = await visit.do(commands.list_groups)
    grouped = {name for group in listed for name in group.knowledge_bases}
    alone = [view.name for view in await visit.do(knowledge_bases.list_) if view.name not in grouped]
    return visit.page("groups.html", here="overview", groups=listed, alone=alone)


@pages.post("/groups", again=groups, about="name")
async def make_group(visit: Visit) -> Response:
    """Make a group with its lifetime budget, or show the problems, field by field."""
    made = await visit.do(commands.make_group, visit.read(NewGroup), visit.seen)
    return visit.redirect("/groups", done=f"Group “{made.group}” has its budget. Next: put knowledge bases into it.")


@pages.post("/groups/{group}/join", again=groups)
async def join_group(visit: Visit) -> Response:
    """Put a knowledge base into a group, with every plan signed for it."""
    group, name = visit.path("group"), visit.field("knowledge_base")
    await visit.do(commands.join_group, group, name, visit.seen)
    return visit.redirect("/groups", done=f"“{name}” shares the budget of group “{group}” from now on.")
