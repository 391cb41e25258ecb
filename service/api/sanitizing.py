"""Texts in, texts that may leave out. The texts come in clear: they have to trust this service, and the way to it."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.dependencies import AnalystKey
from service.api.problems import may_meet
from service.commands import sanitising
from service.commands.sanitising import SanitizedTexts, TextsToSanitize
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1", tags=["sanitising"])


@router.post(
    "/sanitize",
    summary="Sanitise texts",
    responses=may_meet(
        ProblemKind.WRONG_ROLE,
        ProblemKind.TEXT_BUDGET_EXHAUSTED,
        ProblemKind.EPSILON_NOT_ATTAINABLE,
        ProblemKind.SANITIZER_UNAVAILABLE,
    ),
)
async def sanitize(body: TextsToSanitize, caller: AnalystKey) -> SanitizedTexts:
    """Replace the words of texts at random, before they leave for a model that you do not trust.

    The same text of the same key always becomes the same, and is charged once. All texts are sanitised or none.
    """
    return await sanitising.sanitize.aside(
        caller.actor, caller.services.sanitizers, caller.services.records.texts, body
    )
