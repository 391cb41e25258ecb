"""Knowledge bases: created with a lifetime budget, filled in bulk, and made to forget."""

from __future__ import annotations

import asyncio
import io
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from exemplar_store import KnowledgeBase, Layout, read_csv, read_json_lines
from service.api.dependencies import AdminKey, AnyKey, TheServices
from service.api.paging import Page, Paging
from service.api.problems import Problem
from service.bodies import streams_body
from service.private_threads import privately
from service.problem_kinds import ProblemKind
from service.records.new_knowledge_base import REMOTE_ENGINE, NewKnowledgeBase, check_promise

router = APIRouter(prefix="/v1/knowledge-bases", tags=["knowledge bases"])

KnowledgeBaseName = Annotated[str, Path(examples=["support"])]
NO_KNOWLEDGE_BASE: dict[str, Any] = {"description": "The knowledge base does not exist."}

_READERS = {
    "application/x-ndjson": read_json_lines,
    "application/jsonl": read_json_lines,
    "application/x-jsonlines": read_json_lines,
    "text/csv": read_csv,
}
_ROWS = '{"unit_id": "customer-17", "text": "I was charged twice.", "label": "Billing"}\n'
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}, "example": _ROWS},
            "text/csv": {
                "schema": {"type": "string"},
                "example": "unit_id,text,label\ncustomer-17,Charged twice.,Billing\n",
            },
        },
    }
}


class KnowledgeBaseChange(BaseModel):
    """What can be changed of a knowledge base."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"remote_engine": True}]})
    remote_engine: bool = Field(description=REMOTE_ENGINE)


class Archiving(BaseModel):
    """That a knowledge base is to be archived."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"name": "tickets"}]})
    name: str = Field(description="The knowledge base's name once more, as it cannot be undone.")


class Archived(BaseModel):
    """A knowledge base that takes nothing new."""

    name: str
    archived_at: datetime


class KnowledgeBaseView(BaseModel):
    """What is public of a knowledge base."""

    name: str
    public_size: int
    fields: list[str]
    embedded_field: str
    response_field: str | None = Field(description="The field that text answers come from; null for none.")
    remote_engine: bool
    created_at: datetime


class Ingested(BaseModel):
    """What an upload stored. Exemplars that were there already were left alone, or `replaced`, which deleted them."""

    exemplars: int
    units: int
    already_there: int
    replaced: int
    ignored_fields: list[str]


class Forgotten(BaseModel):
    """What was deleted."""

    exemplars: int


_REFUSED: dict[int | str, dict[str, Any]] = {
    409: {"description": "There is one of this name."},
    422: {"description": "It cannot be created as described, or its budget protects hardly anyone."},
}


@router.post("", status_code=201, summary="Create a knowledge base with its lifetime budget", responses=_REFUSED)
async def create(
    body: NewKnowledgeBase,
    services: TheServices,
    admin: AdminKey,
    accept_weak_promise: Annotated[
        bool, Query(description="Create it although its ε or δ is large, or its public size small.")
    ] = False,
) -> KnowledgeBaseView:
    """The lifetime budget (ε, δ) is a promise to the people in the data and cannot be changed later."""
    check_promise(body.epsilon, body.delta, body.public_size, accepted=accept_weak_promise)
    await asyncio.to_thread(services.records.create_knowledge_base, **body.model_dump(), by=admin.id)
    return view(await asyncio.to_thread(services.records.store.get, body.name))


@router.get("", summary="List the knowledge bases")
async def list_knowledge_bases(services: TheServices, _key: AnyKey, window: Paging) -> Page[KnowledgeBaseView]:
    """What is public of each, by name."""
    found = await asyncio.to_thread(services.records.store.list)
    return window.cut([view(one) for one in found], lambda one: one.name)


@router.get("/{knowledge_base}", summary="Describe a knowledge base", responses={404: NO_KNOWLEDGE_BASE})
async def get(knowledge_base: KnowledgeBaseName, services: TheServices, _key: AnyKey) -> KnowledgeBaseView:
    """What is public of it."""
    return view(await asyncio.to_thread(services.records.store.get, knowledge_base))


@router.patch(
    "/{knowledge_base}", summary="Allow or forbid an engine outside the deployment", responses={404: NO_KNOWLEDGE_BASE}
)
async def change(
    knowledge_base: KnowledgeBaseName, body: KnowledgeBaseChange, services: TheServices, admin: AdminKey
) -> KnowledgeBaseView:
    """Holds from the next query on; what a remote language model was shown before cannot be taken back."""
    allow = services.records.allow_remote_engine
    return view(await asyncio.to_thread(allow, knowledge_base, body.remote_engine, by=admin.id))


@router.post(
    "/{knowledge_base}/archive",
    summary="Archive a knowledge base, for ever",
    responses={404: NO_KNOWLEDGE_BASE, 409: {"description": "It is archived already."}},
)
async def archive(
    knowledge_base: Annotated[str, Path(examples=["tickets"])], body: Archiving, services: TheServices, admin: AdminKey
) -> Archived:
    """It takes no plan, cohort or exemplar any more, and this cannot be undone. Plans that are signed go on, units can
    be forgotten, and its ledger and audit trail stay.
    """
    if body.name != knowledge_base:
        raise Problem(ProblemKind.INVALID_REQUEST, f"name: to archive it, write {knowledge_base!r} here once more")
    ledger = services.records.ledger
    await asyncio.to_thread(services.records.store.get, knowledge_base)
    await asyncio.to_thread(ledger.cohorts.archive, knowledge_base, by=admin.id)
    status = await asyncio.to_thread(ledger.budgets.status, knowledge_base)
    assert status.archived_at is not None  # noqa: S101  (just now)  # nosec B101
    return Archived(name=knowledge_base, archived_at=status.archived_at)


_REFUSED_UPLOADS: dict[int | str, dict[str, Any]] = {
    404: NO_KNOWLEDGE_BASE,
    409: {"description": "The knowledge base is archived."},
    413: {"description": "The upload is too large: send several."},
    415: {"description": "Neither JSON Lines nor CSV."},
    422: {"description": "A row cannot be stored; the detail names it."},
}


@router.post(
    "/{knowledge_base}/exemplars",
    summary="Upload exemplars (JSON Lines or CSV)",
    openapi_extra=_UPLOAD,
    responses=_REFUSED_UPLOADS,
)
@streams_body
async def upload(
    knowledge_base: KnowledgeBaseName,
    request: Request,
    services: TheServices,
    admin: AdminKey,
    unit_id: Annotated[
        str, Query(description="Name of the column with the privacy unit's id.", pattern=r"^[^\x00]*$")
    ] = "unit_id",
    replace: Annotated[
        bool, Query(description="The rows are all there is of their units: delete what these had before.")
    ] = False,
) -> Ingested:
    """All rows are stored, or none; an error names a bad row. Repeating an upload is harmless.

    The upload is embedded before it is stored, at some ten milliseconds an exemplar; twice that if there is
    a response field.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if (reader := _READERS.get(media_type)) is None:
        raise Problem(
            ProblemKind.UNSUPPORTED_MEDIA_TYPE, f"send one of {', '.join(_READERS)}, not {media_type or 'nothing'}"
        )
    described = await asyncio.to_thread(services.records.store.get, knowledge_base)
    body = await _body(request, services.records.settings.max_upload_bytes)
    rows = reader(io.BytesIO(body), Layout(described.fields, unit_id))
    embed, ingest = services.embedder.embed, services.records.ingest
    report = await privately(lambda: ingest(knowledge_base, rows, embed, by=admin.id, replace=replace))
    return Ingested.model_validate(report, from_attributes=True)


@router.delete(
    "/{knowledge_base}/units/{unit:path}",
    summary="Forget a unit",
    responses={404: {"description": "The knowledge base or the unit does not exist."}},
)
async def forget(
    knowledge_base: KnowledgeBaseName,
    unit: Annotated[str, Path(examples=["customer-17"])],
    services: TheServices,
    admin: AdminKey,
) -> Forgotten:
    """Delete all exemplars of a unit. Answers released before stay: the privacy guarantee covers them."""
    forget_ = services.records.forget
    return Forgotten(exemplars=await privately(lambda: forget_(knowledge_base, unit, by=admin.id)))


def view(knowledge_base: KnowledgeBase) -> KnowledgeBaseView:
    """A knowledge base as it may be shown."""
    return KnowledgeBaseView.model_validate(knowledge_base, from_attributes=True)


async def _body(request: Request, limit: int) -> bytes:
    """The request's body, kept in memory: private text is never written to disk in the clear."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            detail = f"an upload is at most {limit} bytes; send several, or use `dpicl kb ingest`"
            raise Problem(ProblemKind.UPLOAD_TOO_LARGE, detail)
    return bytes(body)
