"""API keys: made, listed and revoked by admins."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from service.api.dependencies import AdminKey, TheServices
from service.api.paging import Page, Paging
from service.api.releases import NAME
from service.records.api_keys import ApiKey
from service.records.roles import Role

router = APIRouter(prefix="/v1/keys", tags=["keys"])


KeyId = Annotated[str, Path(examples=["6a19e5ce-f0c6-4e53-ac8f-9f493baecb88"])]
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"description": "The key does not exist, or was revoked."}}
Quota = Annotated[int | None, Field(ge=0, lt=2**53, description="Answers it may be charged in all.")]
RatePerMinute = Annotated[int | None, Field(ge=1, le=1_000_000, description="Requests it may send per minute.")]


class NewKey(BaseModel):
    """A key to make."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"name": "ana", "role": "analyst", "quota": 500, "rate_per_minute": 60, "scope": ["support.queue"]}
            ]
        },
    )
    name: Annotated[str, StringConstraints(pattern=r"^\P{C}{1,100}$", strip_whitespace=True)]
    role: Role
    quota: Quota = None
    rate_per_minute: RatePerMinute = None
    scope: Annotated[
        list[Annotated[str, StringConstraints(pattern=rf"^{NAME}(\.{NAME})?$")]],
        Field(max_length=100, description="Knowledge bases and tasks that an analyst's key may ask. Empty: all."),
    ] = []
    expires_at: Annotated[
        AwareDatetime | None,
        Field(strict=False, description="From when on it is refused, in 36,500 days at most. null: never."),
    ] = None


class KeyLimits(BaseModel):
    """A key's limits, both of them; null is no limit."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"quota": 1000, "rate_per_minute": None}]},
    )
    quota: Quota
    rate_per_minute: RatePerMinute


class Rotation(BaseModel):
    """How a key's token is replaced."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"overlap_hours": 24}]})
    overlap_hours: Annotated[
        int, Field(ge=0, le=8760, description="How long the token before stands, too. 0: it is refused at once.")
    ] = 0


class KeyView(BaseModel):
    """A key without its secret."""

    id: str
    name: str
    role: Role
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    quota: int | None
    charged: int
    rate_per_minute: int | None
    scope: list[str]
    expires_at: datetime | None
    rotated_at: datetime | None


class CreatedKey(KeyView):
    """A key with its secret, shown this once."""

    token: str


@router.post("", status_code=201, summary="Create a key; its token is shown once")
async def create_key(body: NewKey, services: TheServices, admin: AdminKey) -> CreatedKey:
    """Only a hash of the token is stored: copy it now."""
    key, token = await asyncio.to_thread(
        services.records.keys.create,
        body.name,
        body.role,
        quota=body.quota,
        rate_per_minute=body.rate_per_minute,
        scope=body.scope,
        expires_at=body.expires_at,
        by=admin.id,
    )
    return CreatedKey(**view(key).model_dump(), token=token)


@router.get("", summary="List the keys")
async def list_keys(services: TheServices, _admin: AdminKey, window: Paging) -> Page[KeyView]:
    """All keys, including revoked ones, oldest first."""
    return window.cut([view(key) for key in await asyncio.to_thread(services.records.keys.list)], lambda key: key.id)


@router.patch("/{key_id}", summary="Change a key's limits", responses=_UNKNOWN)
async def limit_key(key_id: KeyId, body: KeyLimits, services: TheServices, admin: AdminKey) -> KeyView:
    """Charged answers stay charged: a quota below that counts as used up."""
    limits = {"quota": body.quota, "rate_per_minute": body.rate_per_minute}
    return view(await asyncio.to_thread(services.records.keys.limit, key_id, **limits, by=admin.id))


@router.post(
    "/{key_id}/rotate",
    summary="Give a key another token, shown once",
    responses={**_UNKNOWN, 409: {"description": "Somebody else rotated it at the same time."}},
)
async def rotate_key(key_id: KeyId, body: Rotation, services: TheServices, admin: AdminKey) -> CreatedKey:
    """The key's id, limits, scope and charges stay. Without an overlap its sessions on the dashboard end, too."""
    keys = services.records.keys
    seen = await asyncio.to_thread(keys.get, key_id)
    overlap = timedelta(hours=body.overlap_hours)
    key, token = await asyncio.to_thread(keys.rotate, seen, overlap=overlap, by=admin.id)
    return CreatedKey(**view(key).model_dump(), token=token)


@router.delete("/{key_id}", status_code=204, summary="Revoke a key", responses=_UNKNOWN)
async def revoke_key(key_id: KeyId, services: TheServices, admin: AdminKey) -> Response:
    """The key is refused from now on. What it spent stays spent."""
    await asyncio.to_thread(services.records.keys.revoke, key_id, admin.id)
    return Response(status_code=204)


def view(key: ApiKey) -> KeyView:
    """A key as it may be shown."""
    return KeyView.model_validate(key, from_attributes=True)
