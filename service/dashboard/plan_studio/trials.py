"""Trying a plan that is not signed yet, on examples that are public anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounting.plan import CalibratedPlan
from exemplar_store import BadRowError, KnowledgeBase
from service.engines.protocol import EngineUnavailableError
from service.pipeline.answering import BusyError
from service.pipeline.queries import InvalidQueryError
from service.records.text_ledger import TextBudgetExhaustedError
from service.sources.typed import read_fields, read_lines
from service.trials.trials import Trial, Trials


@dataclass(frozen=True)
class Attempt:
    """What came of it: a trial, or a problem."""

    trial: Trial | None = None
    problem: str | None = None


async def attempt(
    trials: Trials,
    calibrated: CalibratedPlan,
    described: KnowledgeBase,
    *,
    task: str,
    rows: str,
    query: str,
    asker: str,
) -> Attempt:
    """Try one query.

    Args:
        trials: of the services.
        calibrated: the plan with its noise.
        described: the knowledge base.
        task: one of the plan's; its first if empty.
        rows: public examples, as JSON Lines or CSV with a header.
        query: a text, or a JSON object with the fields of the query.
        asker: who asks, as the audit trail names them.
    """
    try:
        trial = await trials.try_task(
            calibrated,
            task or next(iter(calibrated.plan.tasks)),
            read_fields(query),
            _rows(rows),
            embedded_field=described.embedded_field,
            response_field=described.response_field,
            asker=asker,
        )
    except LookupError as error:
        return Attempt(problem=str(error.args[0]))
    except InvalidQueryError as error:
        return Attempt(problem=f"The question does not fit: {error}.")
    except (BadRowError, ValueError, BusyError, EngineUnavailableError, TextBudgetExhaustedError) as error:
        return Attempt(problem=f"{error}.")
    return Attempt(trial)


def _rows(text: str) -> list[dict[str, Any]]:
    if not text:
        raise ValueError("paste one public example at least")
    return list(read_lines(text.splitlines(keepends=True), "the examples", table=not text.startswith("{")))
