"""Redacted texts in, answers out; and the bundles that clients redact with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from service.api.dependencies import AnalystKey, AnyKey
from service.api.problems import Problem, may_meet
from service.commands import restoring
from service.commands.restoring import Bundles, BundleView, RestoredAnswer
from service.pipeline.restoring import RedactedText, UnknownBundleError
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/restore", tags=["restoring"])


@router.post(
    "/answers",
    summary="Answer a redacted text",
    responses=may_meet(
        ProblemKind.WRONG_ROLE,
        ProblemKind.UNKNOWN_BUNDLE,
        ProblemKind.BUNDLE_DIFFERS,
        ProblemKind.STEERING_NOT_SERVED,
        ProblemKind.INVALID_QUERY,
        ProblemKind.BUSY,
        ProblemKind.ENGINE_UNAVAILABLE,
    ),
)
async def answer(body: RedactedText, caller: AnalystKey) -> RestoredAnswer:
    """Answer as if the spans that were taken out had been what the profile says.

    Redact and draw with the Python client or `dpicl restore ask`, where the text is: this service never sees the spans.
    """
    return await restoring.answer(caller.actor, caller.services.restoring, body)


@router.get("/bundles", summary="List bundles")
async def list_bundles(caller: AnyKey) -> Bundles:
    """All bundles that are served, by name and version."""
    return await restoring.list_bundles.aside(caller.actor, caller.services.restoring)


@router.get("/bundles/{bundle}", summary="Get a bundle", responses={404: {"description": "There is no such bundle."}})
async def get_bundle(bundle: Annotated[str, Path(examples=["clinic@1"], max_length=80)], caller: AnyKey) -> BundleView:
    """The bundle as it was signed. Its vectors stay here: clients need none."""
    try:
        return BundleView.of(await restoring.bundle.aside(caller.actor, caller.services.restoring, bundle))
    except UnknownBundleError as error:
        raise Problem(ProblemKind.UNKNOWN_BUNDLE, str(error), status=404) from error
