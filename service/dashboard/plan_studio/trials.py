"""Trying a plan that is not signed yet, on examples that are public anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from accounting.plan import CalibratedPlan
from exemplar_store import KnowledgeBase
from service.commands import trials
from service.commands.fields import problems
from service.commands.trials import Trying
from service.dashboard.pages import Visit
from service.refusals import REFUSALS
from service.sources.typed import read_fields, read_lines
from service.trials.trials import Trial

_REFUSED: tuple[type[Exception], ...] = (ValueError, *REFUSALS)


@dataclass(frozen=True)
class Attempt:
    """What came of it: a trial, or a problem."""

    trial: Trial | None = None
    problem: str | None = None


async def attempt(visit: Visit, calibrated: CalibratedPlan, described: KnowledgeBase) -> Attempt:
    """Try the form's query on its examples: JSON Lines, or CSV with a header."""
    task = visit.field("trial_task") or next(iter(calibrated.plan.tasks))
    fields = described.embedded_field, described.response_field
    try:
        trying = Trying(query=read_fields(visit.field("trial_query")), exemplars=_rows(visit.field("trial_rows")))
        return Attempt(await trials.try_(visit.actor, visit.services.trials, calibrated, task, trying, *fields))
    except ValidationError as error:
        return Attempt(problem=" ".join(problems(error, Trying).values()))
    except LookupError as error:
        return Attempt(problem=str(error.args[0]))
    except _REFUSED as error:
        return Attempt(problem=f"{error}.")


def _rows(text: str) -> list[dict[str, Any]]:
    if not text:
        raise ValueError("paste one public example at least")
    return list(read_lines(text.splitlines(keepends=True), "the examples", table=not text.startswith("{")))
