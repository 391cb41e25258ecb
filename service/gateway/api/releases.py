"""Releases: public, and free to read."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse

from service.gateway.api.dependencies import AnyKey, AuditKey
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import may_meet
from service.gateway.bodies import ExactRoute
from service.operations import answers
from service.operations.answers import RELEASE_ID, ReleaseView
from service.operations.fields import NAME
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/releases", tags=["releases"], route_class=ExactRoute)


_NOT_SEEN = may_meet(ProblemKind.UNKNOWN_RELEASE, ProblemKind.OUT_OF_SCOPE)


@router.get("", summary="List the releases")
async def list_releases(
    caller: AuditKey,
    window: Paging,
    task: Annotated[
        str | None,
        Query(
            pattern=rf"^{NAME}\.{NAME}(@[1-9][0-9]{{0,8}})?$",
            examples=["support.queue"],
            description="Only of this task: in every plan, or with `@version` in one.",
        ),
    ] = None,
    knowledge_base: Annotated[
        str | None, Query(pattern=f"^{NAME}$", examples=["support"], description="Only of this knowledge base.")
    ] = None,
) -> Page[ReleaseView]:
    """Releases, the newest first. Queries are not kept, so none is shown."""
    listed = await caller.do(
        answers.list_releases,
        task=task,
        knowledge_base=knowledge_base,
        after=window.after,
        limit=window.limit + 1,
    )
    return window.page([ReleaseView.of(release) for release in listed], lambda release: release.id)


@router.get("/{release_id}", summary="Read a release again", responses=_NOT_SEEN)
async def get_release(release_id: Annotated[str, Path(examples=[RELEASE_ID])], caller: AnyKey) -> ReleaseView:
    """Releases are public: reading one again costs nothing."""
    return ReleaseView.of(await caller.do(answers.read_release, release_id))


@router.get(
    "/{release_id}/receipt",
    summary="Fetch the receipt of a release",
    response_class=PlainTextResponse,
    responses={
        200: {"description": "The event of the release, hashes that lead to the root, and a signed checkpoint."},
        **may_meet(
            ProblemKind.UNKNOWN_RELEASE,
            ProblemKind.TRAIL_NOT_SIGNED,
            ProblemKind.LEDGER_RESTORED,
            ProblemKind.WITNESS_UNAVAILABLE,
        ),
    },
)
async def get_receipt(release_id: Annotated[str, Path(examples=[RELEASE_ID])], caller: AnyKey) -> PlainTextResponse:
    """What was charged for a release, proved by the signed audit trail: `dpicl receipt verify` checks it offline.

    It is in the format of https://c2sp.org/tlog-proof, and costs nothing.
    """
    return PlainTextResponse(str(await caller.do(answers.receipt, release_id)))
