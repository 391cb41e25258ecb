"""API keys: made, listed and revoked by admins."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from service.api.dependencies import Admin, Confirmed, TheServices
from service.api.paging import Page, Paging
from service.commands import keys
from service.commands.keys import CreatedKey, KeyLimits, KeyView, NewKey, Rotation

router = APIRouter(prefix="/v1/keys", tags=["keys"])


KeyId = Annotated[str, Path(examples=["6a19e5ce-f0c6-4e53-ac8f-9f493baecb88"])]
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"description": "The key does not exist, or was revoked."}}


@router.post("", status_code=201, summary="Create a key; its token is shown once")
async def create_key(body: NewKey, services: TheServices, admin: Admin) -> CreatedKey:
    """Only a hash of the token is stored: copy it now."""
    return CreatedKey.of(await keys.create.aside(admin, services.records, body))


@router.get("", summary="List the keys")
async def list_keys(services: TheServices, admin: Admin, window: Paging) -> Page[KeyView]:
    """All keys, including revoked ones, oldest first."""
    listed = await keys.list_.aside(admin, services.records)
    return window.cut([KeyView.model_validate(key) for key in listed], lambda key: key.id)


@router.patch("/{key_id}", summary="Change a key's limits", responses=_UNKNOWN)
async def limit_key(key_id: KeyId, body: KeyLimits, services: TheServices, admin: Admin) -> KeyView:
    """Charged answers stay charged: a quota below that counts as used up."""
    return KeyView.model_validate(await keys.limit.aside(admin, services.records, key_id, body))


@router.post(
    "/{key_id}/rotate",
    summary="Give a key another token, shown once",
    responses={**_UNKNOWN, 409: {"description": "Somebody else rotated it at the same time."}},
)
async def rotate_key(key_id: KeyId, body: Rotation, services: TheServices, admin: Admin) -> CreatedKey:
    """The key's id, limits, scope and charges stay. Without an overlap its sessions on the dashboard end, too."""
    seen = await asyncio.to_thread(services.records.keys.get, key_id)
    return CreatedKey.of(await keys.rotate.aside(admin, services.records, seen, body))


@router.delete(
    "/{key_id}",
    status_code=204,
    summary="Revoke a key",
    responses={**_UNKNOWN, 422: {"description": "It is the only admin key, and you did not confirm that."}},
)
async def revoke_key(key_id: KeyId, services: TheServices, admin: Admin, confirmed: Confirmed) -> Response:
    """The key is refused from now on. What it spent stays spent."""
    await keys.revoke.aside(admin, services.records, key_id, confirmed)
    return Response(status_code=204)
