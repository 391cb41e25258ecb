"""A knowledge base's cohorts: what is left of each one's budget, which plans draw on it; opened and closed."""

from __future__ import annotations

from starlette.responses import Response

from service.commands import cohorts as commands
from service.commands.cohorts import NewCohort
from service.dashboard.knowledge_base import HOME as KNOWLEDGE_BASE
from service.dashboard.knowledge_base import tab
from service.dashboard.pages import Pages, Visit
from service.records.roles import Right

pages = Pages()

_HOME = KNOWLEDGE_BASE + "/cohorts"


@pages.get(_HOME, needs=Right.BROWSE)
async def cohorts(visit: Visit) -> Response:
    """The page."""
    listed = await visit.do(commands.list_, visit.path("name"))
    return await tab(visit, "cohorts", cohorts=listed)


@pages.post(_HOME, again=cohorts)
async def open_(visit: Visit) -> Response:
    """Open a cohort with its lifetime budget, or say what is wrong, field by field."""
    name = visit.path("name")
    opened = await visit.do(commands.open_, name, visit.read(NewCohort), visit.confirmed)
    done = f"Cohort {opened.cohort} is open: people who arrive for the first time from now on belong to it, for ever."
    return visit.redirect(_HOME.format(name=name), done=done)


@pages.post(_HOME + "/{number:number}/close", again=cohorts)
async def close(visit: Visit) -> Response:
    """Keep new plans away from a cohort."""
    name, number = visit.path("name"), visit.path("number")
    await visit.do(commands.close, name, number)
    return visit.redirect(_HOME.format(name=name), done=f"Cohort {number} is closed: no further plan draws on it.")
