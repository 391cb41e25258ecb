"""Texts to sanitise, answers to redacted texts, and the bundles with which clients redact.

Texts to sanitise arrive in clear: their owners have to trust this service, and the connection to it.
"""

from typing import Annotated

from fastapi import APIRouter, Path

from service.gateway.api.dependencies import AnalystKey, AnyKey
from service.gateway.api.once import OnceRoute, changes_nothing
from service.gateway.api.problems import Problem, may_meet
from service.operations import restoring, sanitising
from service.operations.refusals import NOT_THERE, kind_of
from service.operations.restoring import Bundles, BundleView, RedactedText, RestoredAnswer
from service.operations.sanitising import SanitizedTexts, TextsToSanitize
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1", tags=["texts"], route_class=OnceRoute)


@router.post(
    "/sanitize",
    summary="Sanitise texts",
    responses=may_meet(
        ProblemKind.WRONG_ROLE,
        ProblemKind.OUT_OF_SCOPE,
        ProblemKind.TEXT_BUDGET_EXHAUSTED,
        ProblemKind.EPSILON_NOT_ATTAINABLE,
        ProblemKind.SANITIZER_UNAVAILABLE,
        ProblemKind.BUSY,
    ),
)
async def sanitize_texts(body: TextsToSanitize, caller: AnalystKey) -> SanitizedTexts:
    """Replace the words of texts at random, before they leave for a model that you do not trust.

    The same text of the same key always becomes the same, and is charged once. All texts are sanitised or none.
    """
    services = caller.services
    return await sanitising.sanitize(
        caller.actor, services.answering, services.sanitizers, services.records.texts, body
    )


@router.post(
    "/restore/answers",
    summary="Answer a redacted text",
    responses=may_meet(
        ProblemKind.WRONG_ROLE,
        ProblemKind.OUT_OF_SCOPE,
        ProblemKind.UNKNOWN_BUNDLE,
        ProblemKind.BUNDLE_DIFFERS,
        ProblemKind.STEERING_NOT_SERVED,
        ProblemKind.INVALID_QUERY,
        ProblemKind.BUSY,
        ProblemKind.ENGINE_UNAVAILABLE,
        ProblemKind.UNUSABLE_REPLY,
    ),
)
@changes_nothing
async def answer_redacted_text(body: RedactedText, caller: AnalystKey) -> RestoredAnswer:
    """Answer a redacted text as if the spans that were taken out had been those of the profile.

    Redact and draw with the Python client or `dpicl restore ask`, where the text is: this service never sees the spans.
    """
    return await restoring.answer(caller.actor, caller.services.restoring, body)


@router.get("/restore/bundles", summary="List bundles")
async def list_bundles(caller: AnyKey) -> Bundles:
    """All bundles that are served, by name and version."""
    return await restoring.list_bundles.aside(caller.actor, caller.services.restoring)


@router.get(
    "/restore/bundles/{bundle}", summary="Get a bundle", responses={404: {"description": "There is no such bundle."}}
)
async def get_bundle(bundle: Annotated[str, Path(examples=["clinic@1"], max_length=80)], caller: AnyKey) -> BundleView:
    """A bundle as it was signed. Its vectors stay in the service: clients do not need them."""
    try:
        return BundleView.of(await restoring.bundle.aside(caller.actor, caller.services.restoring, bundle))
    except NOT_THERE as error:
        raise Problem(kind_of(error), str(error), status=404) from error
