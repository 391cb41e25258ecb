"""The audit trail, for admins: read page by page, or exported whole to be replayed elsewhere."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, Json

from service.gateway.api.dependencies import AuditKey
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import Problem, may_meet
from service.operations import audit
from service.problem_kinds import ProblemKind

NDJSON = "application/x-ndjson"
_UNSIGNED = may_meet(ProblemKind.TRAIL_NOT_SIGNED, ProblemKind.LEDGER_RESTORED, ProblemKind.WITNESS_UNAVAILABLE)

router = APIRouter(prefix="/v1/audit", tags=["audit"])


class EventView(BaseModel):
    """An event of the trail."""

    model_config = ConfigDict(from_attributes=True)
    sequence: int
    at: datetime
    kind: str = Field(examples=["charge"])
    body: Json[dict[str, Any]]
    previous: str = Field(description="Hash of the event before.")
    hash: str


@router.get("", summary="Read the audit trail, oldest first")
async def list_events(
    caller: AuditKey,
    window: Paging,
    kind: Annotated[list[str] | None, Query(max_length=20, description="Only events of these kinds.")] = None,
    knowledge_base: Annotated[str | None, Query(max_length=64, description="Only events that name it.")] = None,
) -> Page[EventView]:
    """Grants, charges, releases and refusals; `after` is a sequence number. Nothing in it is private."""
    if window.after is not None and not (window.after.isascii() and window.after.isdigit() and len(window.after) < 18):
        raise Problem(ProblemKind.UNKNOWN_CURSOR, f"after: {window.after!r} is not an event's sequence number")
    events = await caller.do(
        audit.events,
        after=int(window.after or 0),
        limit=window.limit + 1,
        kinds=kind,
        knowledge_base=knowledge_base,
    )
    return window.page([EventView.model_validate(event) for event in events], lambda event: str(event.sequence))


@router.get(
    "/export",
    summary="Export the audit trail",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One event a line; the last line shows where the trail ended.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        },
        **_UNSIGNED,
    },
)
async def export_events(caller: AuditKey) -> StreamingResponse:
    """Replay it anywhere with `dpicl audit verify FILE`. Where the trail is signed, its last line has a checkpoint."""
    return StreamingResponse(
        await caller.do(audit.export),
        media_type=NDJSON,
        headers={"Content-Disposition": 'attachment; filename="dpicl-audit.ndjson"'},
    )


@router.get(
    "/checkpoint",
    summary="Sign a checkpoint of the audit trail",
    response_class=PlainTextResponse,
    responses={200: {"description": "A note: name, number of events, root, an empty line, signatures."}, **_UNSIGNED},
)
async def read_checkpoint(caller: AuditKey) -> PlainTextResponse:
    """Keep it elsewhere: `dpicl audit verify` shows by it whether an export was rewritten, cut or forked since.

    It is in the format of https://c2sp.org/tlog-checkpoint.
    """
    return PlainTextResponse(str(await caller.do(audit.checkpoint)))
