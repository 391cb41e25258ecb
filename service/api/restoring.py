"""Redacted texts in, answers out; and the bundles that clients redact with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from service.api.dependencies import AnalystKey, AnyKey, TheServices
from service.api.problems import Problem
from service.commands import restoring
from service.commands.restoring import Bundles, BundleView, RedactedText, RestoredAnswer
from service.pipeline.restoring import UnknownBundleError
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/restore", tags=["restoring"])


@router.post(
    "/answers",
    summary="Answer a redacted text",
    responses={
        403: {"description": "Not an analyst's key."},
        409: {"description": "The bundle is another one here than where the text was redacted."},
        422: {"description": "No such bundle or profile, a text that is too long, or a mode that is not served."},
        429: {"description": "Busy: come back after Retry-After seconds."},
        503: {"description": "The engine does not answer."},
    },
)
async def answer(body: RedactedText, services: TheServices, key: AnalystKey) -> RestoredAnswer:
    """Answer as if the spans that were taken out had been what the profile says.

    Redact and draw with the Python client or `dpicl restore ask`, where the text is: this service never sees the spans.
    """
    return await restoring.answer(key.actor, services.restoring, body)


@router.get("/bundles", summary="List bundles")
async def list_bundles(services: TheServices, key: AnyKey) -> Bundles:
    """All bundles that are served, by name and version."""
    return await restoring.list_bundles.aside(key.actor, services.restoring)


@router.get("/bundles/{bundle}", summary="Get a bundle", responses={404: {"description": "There is no such bundle."}})
async def get_bundle(
    bundle: Annotated[str, Path(examples=["clinic@1"], max_length=80)], services: TheServices, key: AnyKey
) -> BundleView:
    """The bundle as it was signed. Its vectors stay here: clients need none."""
    try:
        return BundleView.of(await restoring.bundle.aside(key.actor, services.restoring, bundle))
    except UnknownBundleError as error:
        raise Problem(ProblemKind.UNKNOWN_BUNDLE, str(error), status=404) from error
