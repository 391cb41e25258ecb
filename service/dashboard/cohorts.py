"""A knowledge base's cohorts: what is left of each one's budget, which plans draw on it; opened and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from accounting.ledger.errors import CohortError
from exemplar_store import UnrecognisedUnitsError
from service.dashboard.knowledge_base import HOME as KNOWLEDGE_BASE
from service.dashboard.knowledge_base import tab
from service.dashboard.pages import Pages, Visit
from service.dashboard.promises import numbers, out_of_range
from service.plans.budget_report import CohortBudget
from service.records.new_knowledge_base import NewCohort, weaknesses
from service.records.records import Records
from service.records.roles import Right

pages = Pages()

_HOME = KNOWLEDGE_BASE + "/cohorts"
_BLANK = {"epsilon": "", "delta": "", "public_size": ""}


@dataclass(frozen=True)
class View:
    """What the page shows. All of it public.

    Attributes:
        cohorts: in order; people arrive to the last.
        drawn_on_by: versions of the plans that draw on each, by number.
    """

    cohorts: list[CohortBudget]
    drawn_on_by: Mapping[int, list[int]]


@pages.get(_HOME, needs=Right.BROWSE)
async def cohorts(visit: Visit) -> Response:
    """The page."""
    return await _show(visit, _BLANK)


@pages.post(_HOME)
async def open_(visit: Visit) -> Response:
    """Open a cohort with its lifetime budget, or say what is wrong, field by field."""
    name = visit.request.path_params["name"]
    given = {field: visit.field(field) for field in _BLANK}
    values, problems = numbers(given)
    if problems:
        return await _show(visit, given, 422, problems)
    try:
        wanted = NewCohort(**values)
        weak = weaknesses(wanted.epsilon, wanted.delta, wanted.public_size)
        if weak and visit.field("accept_weak_promise") != "yes":
            return await _show(visit, given, 422, weak=weak)
        open_cohort = visit.services.records.open_cohort
        number = await asyncio.to_thread(open_cohort, name, **wanted.model_dump(), by=visit.session.by)
    except ValidationError as error:
        return await _show(visit, given, 422, out_of_range(error))
    except (CohortError, UnrecognisedUnitsError) as error:
        return await _show(visit, given, 409, refused=str(error))
    done = f"Cohort {number} is open: whoever arrives for the first time from now on belongs to it, for ever."
    return visit.redirect(_HOME.format(name=name), done=done)


@pages.post(_HOME + "/{number:number}/close")
async def close(visit: Visit) -> Response:
    """Keep new plans away from a cohort."""
    name, number = visit.request.path_params["name"], visit.request.path_params["number"]
    try:
        close = visit.services.records.ledger.cohorts.close
        await asyncio.to_thread(close, name, number, by=visit.session.by)
    except CohortError as error:
        return await _show(visit, _BLANK, 409, refused=str(error))
    return visit.redirect(_HOME.format(name=name), done=f"Cohort {number} is closed: no further plan draws on it.")


async def _show(
    visit: Visit,
    given: Mapping[str, str],
    status: int = 200,
    problems: Mapping[str, str] | None = None,
    weak: Sequence[str] = (),
    refused: str | None = None,
) -> Response:
    view = await asyncio.to_thread(_view, visit.services.records, visit.request.path_params["name"])
    context: dict[str, Any] = {"given": given, "problems": problems or {}, "weaknesses": weak, "refused": refused}
    return await tab(visit, "cohorts", status, view=view, **context)


def _view(records: Records, name: str) -> View:
    records.store.get(name)
    found = [CohortBudget.of(one) for one in records.ledger.budgets.status(name).cohorts]
    signed = records.ledger.budgets.plans(name)
    drawn_on_by = {one.cohort: [plan.version for plan in signed if one.cohort in plan.cohorts] for one in found}
    return View(found, drawn_on_by)
