"""Texts in, texts that may leave out. The texts come in clear: they have to trust this service, and the way to it."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.dependencies import AnalystKey, TheServices
from service.commands import sanitising
from service.commands.sanitising import SanitizedTexts, TextsToSanitize

router = APIRouter(prefix="/v1", tags=["sanitising"])


@router.post(
    "/sanitize",
    summary="Sanitise texts",
    responses={
        403: {"description": "Not an analyst's key; or the texts would cost more than your key's texts may."},
        422: {"description": "No sanitiser has such an ε, or something else is wrong. Nothing was charged."},
        503: {"description": "The service has no sanitiser, or not yet."},
    },
)
async def sanitize(body: TextsToSanitize, services: TheServices, key: AnalystKey) -> SanitizedTexts:
    """Replace the words of texts at random, before they leave for a model that you do not trust.

    The same text of the same key always becomes the same, and is charged once. All texts are sanitised or none.
    """
    return await sanitising.sanitize.aside(key.actor, services.sanitizers, services.records.texts, body)
