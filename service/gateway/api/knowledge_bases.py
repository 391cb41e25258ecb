"""Knowledge bases: created with a lifetime budget, filled in bulk, archived and deleted; and units, forgotten."""

from email.message import Message
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from service.gateway.api.dependencies import Admin, AnyKey, AuditKey, Confirmed, Sent
from service.gateway.api.once import OnceRoute, once
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import Problem, may_meet
from service.gateway.bodies import body_within, streams_body
from service.operations import exemplars, knowledge_bases, statement, uploads
from service.operations.documents import HEADERS, statement_html
from service.operations.exemplars import Ingested
from service.operations.knowledge_bases import KnowledgeBaseChange, KnowledgeBaseView, NewKnowledgeBase
from service.operations.uploads import SentFile, SentUpload
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/knowledge-bases", tags=["knowledge bases"], route_class=OnceRoute)

KnowledgeBaseName = Annotated[str, Path(examples=["support"])]
NO_KNOWLEDGE_BASE = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE)
NOT_SEEN = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.OUT_OF_SCOPE)

_JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_CSV = "text/csv"
_ANY_FILE = "application/octet-stream"
"""Media type that clients send if they do not name the kind of file."""
_ROWS = '{"unit_id": "customer-17", "text": "I was charged twice.", "label": "Billing"}\n'
_LINES = "JSON Lines: an object with strings a line."
_TABLE = "CSV with a header: UTF-8, unless it has a byte order mark or `Content-Type` names a charset."
_ADVICE = "send UTF-8, or name the encoding of CSV, as in `Content-Type: text/csv; charset=windows-1252`"
_FILE = "A file of any kind: a workbook by its first bytes, JSON Lines if it begins with `{`, else CSV."
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string", "description": _LINES}, "example": _ROWS},
            "text/csv": {
                "schema": {"type": "string", "description": _TABLE},
                "example": "unit_id,text,label\ncustomer-17,Charged twice.,Billing\n",
            },
            _ANY_FILE: {
                "schema": {"type": "string", "format": "binary", "description": _FILE},
                "example": _ROWS,
            },
        },
    }
}


class Forgotten(BaseModel):
    """Number of exemplars deleted."""

    exemplars: int


_REFUSED = may_meet(ProblemKind.KNOWLEDGE_BASE_EXISTS, ProblemKind.INVALID_KNOWLEDGE_BASE, ProblemKind.UNCONFIRMED)


@router.post("", status_code=201, summary="Create a knowledge base with its lifetime budget", responses=_REFUSED)
async def create_knowledge_base(body: NewKnowledgeBase, caller: Admin, confirmed: Sent) -> KnowledgeBaseView:
    """The lifetime budget (ε, δ) is a promise to the people in the data and cannot be changed later."""
    return await caller.do(knowledge_bases.create, body, confirmed)


@router.get("", summary="List the knowledge bases")
async def list_knowledge_bases(caller: AnyKey, window: Paging) -> Page[KnowledgeBaseView]:
    """The public facts of all knowledge bases, by name; with a key for some tasks, of theirs alone."""
    return window.cut(await caller.do(knowledge_bases.list_), lambda view: view.name)


@router.get("/{knowledge_base}", summary="Describe a knowledge base", responses=NOT_SEEN)
async def get_knowledge_base(knowledge_base: KnowledgeBaseName, caller: AnyKey) -> KnowledgeBaseView:
    """The public facts of a knowledge base."""
    return await caller.do(knowledge_bases.describe, knowledge_base)


@router.get(
    "/{knowledge_base}/statement",
    summary="Draw up a statement for a data protection officer",
    response_class=HTMLResponse,
    responses={
        200: {
            "description": "One HTML page without scripts, which any browser shows and prints.",
            "content": {"text/html": {"schema": {"type": "string"}}},
        },
        **NO_KNOWLEDGE_BASE,
    },
)
async def get_statement(knowledge_base: KnowledgeBaseName, caller: AuditKey) -> HTMLResponse:
    """What was promised to the people in the rows, what was used of it, by whom it was decided and asked for, and how
    to check that. Nothing in it is private.
    """
    drawn_up = await caller.do(statement.draw_up, knowledge_base)
    return HTMLResponse(statement_html(drawn_up), headers=HEADERS)


@router.patch(
    "/{knowledge_base}", summary="Allow or forbid an engine outside the deployment", responses=NO_KNOWLEDGE_BASE
)
async def change_knowledge_base(
    knowledge_base: KnowledgeBaseName, body: KnowledgeBaseChange, caller: Admin
) -> KnowledgeBaseView:
    """Holds from the next query on; exemplars that a remote language model was shown before cannot be taken back."""
    return await caller.do(knowledge_bases.change, knowledge_base, body)


_ARCHIVING = may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.KNOWLEDGE_BASE_ARCHIVED, ProblemKind.UNCONFIRMED)


@router.post("/{knowledge_base}/archive", summary="Archive a knowledge base permanently", responses=_ARCHIVING)
async def archive_knowledge_base(
    knowledge_base: Annotated[str, Path(examples=["tickets"])], caller: Admin, confirmed: Confirmed
) -> KnowledgeBaseView:
    """It takes no further plan, cohort or exemplar, and this cannot be undone. Plans that are signed go on, units can
    be forgotten, and its ledger and audit trail stay.
    """
    return await caller.do(knowledge_bases.archive, knowledge_base, confirmed)


@router.delete(
    "/{knowledge_base}",
    status_code=204,
    summary="Delete an empty knowledge base",
    responses=may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.KNOWLEDGE_BASE_NOT_EMPTY),
)
async def delete_knowledge_base(knowledge_base: Annotated[str, Path(examples=["tickets"])], caller: Admin) -> Response:
    """Possible only while it is empty: no plan was ever signed, no exemplar uploaded, and it is in no group. Its name
    becomes free, and the audit trail keeps both events.
    """
    await caller.do(knowledge_bases.delete, knowledge_base)
    return Response(status_code=204)


_REFUSED_UPLOADS = may_meet(
    ProblemKind.UNKNOWN_KNOWLEDGE_BASE,
    ProblemKind.KNOWLEDGE_BASE_ARCHIVED,
    ProblemKind.UPLOAD_TOO_LARGE,
    ProblemKind.UNSUPPORTED_MEDIA_TYPE,
    ProblemKind.BAD_ROW,
    ProblemKind.UNIT_TOO_LARGE,
)


@router.post(
    "/{knowledge_base}/exemplars",
    summary="Upload exemplars (JSON Lines, CSV or a workbook)",
    openapi_extra=_UPLOAD,
    responses=_REFUSED_UPLOADS,
)
@streams_body
async def upload_exemplars(
    knowledge_base: KnowledgeBaseName, request: Request, caller: Admin, how: Annotated[SentUpload, Query()]
) -> Ingested:
    """All rows are stored, or none; an error names a bad row. Repeating an upload is harmless.

    The upload is embedded before it is stored, at some ten milliseconds an exemplar; twice that if there is
    a response field.
    """
    sent = Message()
    sent["Content-Type"] = header = request.headers.get("content-type", "")
    media_type = header.partition(";")[0].strip().lower()  # without a header, Message assumes text/plain
    if media_type not in (known := (*_JSON_LINES, _CSV, _ANY_FILE)):
        raise Problem(
            ProblemKind.UNSUPPORTED_MEDIA_TYPE, f"send one of {', '.join(known)}, not {media_type or 'nothing'}"
        )
    # Before its body is read, so that nothing is sent that cannot be stored.
    await caller.do(knowledge_bases.describe, knowledge_base)
    limit = caller.services.records.settings.max_upload_bytes
    too_large = f"an upload is at most {limit} bytes; send several, or use `dpicl kb ingest`"
    body = await body_within(request, limit, Problem(ProblemKind.UPLOAD_TOO_LARGE, too_large))
    if not how.dry_run:
        await once(request, body)
    json_lines = None if media_type == _ANY_FILE else media_type in _JSON_LINES
    file = SentFile(body, json_lines, sent.get_content_charset(), _ADVICE)
    return await caller.do(uploads.ingest_sent, knowledge_base, file, how, caller.services.embedder.embed_many)


@router.delete(
    "/{knowledge_base}/units/{unit:path}",
    summary="Forget a unit",
    responses=may_meet(ProblemKind.UNKNOWN_KNOWLEDGE_BASE, ProblemKind.UNKNOWN_UNIT),
)
async def forget_unit(
    knowledge_base: KnowledgeBaseName, unit: Annotated[str, Path(examples=["customer-17"])], caller: Admin
) -> Forgotten:
    """Delete all exemplars of a unit. Answers released before stay: the privacy guarantee covers them."""
    return Forgotten(exemplars=await caller.do(exemplars.forget, knowledge_base, unit))
