"""A knowledge base's cohorts: what is left of each one's budget, which plans draw on it; opened and closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from starlette.responses import Response

from accounting.ledger.errors import CohortError
from exemplar_store import UnrecognisedUnitsError
from service.commands import cohorts as commands
from service.commands.cohorts import NewCohort
from service.commands.command import UnconfirmedError
from service.commands.fields import problems
from service.dashboard.knowledge_base import HOME as KNOWLEDGE_BASE
from service.dashboard.knowledge_base import name_of, tab
from service.dashboard.pages import Pages, Visit
from service.records.roles import Right

pages = Pages()

_HOME = KNOWLEDGE_BASE + "/cohorts"


@pages.get(_HOME, needs=Right.BROWSE)
async def cohorts(visit: Visit) -> Response:
    """The page."""
    return await _show(visit)


@pages.post(_HOME)
async def open_(visit: Visit) -> Response:
    """Open a cohort with its lifetime budget, or say what is wrong, field by field."""
    name, records = name_of(visit), visit.services.records
    try:
        opened = await commands.open_.aside(visit.actor, records, name, visit.read(NewCohort), visit.confirmed)
    except UnconfirmedError as error:
        return await _show(visit, 422, weak=error.doubts)
    except ValidationError as error:
        return await _show(visit, 422, problems(error, NewCohort))
    except (CohortError, UnrecognisedUnitsError) as error:
        return await _show(visit, 409, refused=str(error))
    done = f"Cohort {opened.cohort} is open: people who arrive for the first time from now on belong to it, for ever."
    return visit.redirect(_HOME.format(name=name), done=done)


@pages.post(_HOME + "/{number:number}/close")
async def close(visit: Visit) -> Response:
    """Keep new plans away from a cohort."""
    name, number = name_of(visit), visit.request.path_params["number"]
    try:
        await commands.close.aside(visit.actor, visit.services.records, name, number)
    except CohortError as error:
        return await _show(visit, 409, refused=str(error))
    return visit.redirect(_HOME.format(name=name), done=f"Cohort {number} is closed: no further plan draws on it.")


async def _show(
    visit: Visit,
    status: int = 200,
    wrong: Mapping[str, str] | None = None,
    weak: Sequence[str] = (),
    refused: str | None = None,
) -> Response:
    return await tab(
        visit,
        "cohorts",
        status,
        cohorts=await commands.list_.aside(visit.actor, visit.services.records, name_of(visit)),
        given=visit.given(NewCohort),
        problems=wrong or {},
        weaknesses=weak,
        refused=refused,
    )
