"""API keys: created, listed, limited, rotated and revoked by admins."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Response

from service.gateway.api.dependencies import Admin, Sent
from service.gateway.api.once import OnceRoute, shown_once
from service.gateway.api.paging import Page, Paging
from service.gateway.api.problems import may_meet
from service.operations import keys
from service.operations.keys import ApiKey, CreatedKey, KeyLimits, NewKey, Rotation
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=OnceRoute)


KeyId = Annotated[str, Path(examples=["6a19e5ce-f0c6-4e53-ac8f-9f493baecb88"])]
_UNKNOWN = may_meet(ProblemKind.UNKNOWN_KEY)


@router.post("", status_code=201, summary="Create a key; its token is shown once")
@shown_once
async def create_key(body: NewKey, caller: Admin) -> CreatedKey:
    """Only a hash of the token is stored: copy it now."""
    return await caller.do(keys.create, body)


@router.get("", summary="List the keys")
async def list_keys(caller: Admin, window: Paging) -> Page[ApiKey]:
    """All keys, including revoked ones, oldest first."""
    return window.cut(await caller.do(keys.list_), lambda key: key.id)


@router.patch("/{key_id}", summary="Change a key's limits", responses=_UNKNOWN)
async def limit_key(key_id: KeyId, body: KeyLimits, caller: Admin) -> ApiKey:
    """A limit that is left out stays; null removes it. Charged answers stay charged: a quota below their number is used
    up.
    """
    return await caller.do(keys.limit, key_id, body)


@router.post(
    "/{key_id}/rotate",
    summary="Give a key another token, shown once",
    responses=may_meet(ProblemKind.UNKNOWN_KEY, ProblemKind.KEY_ROTATED, ProblemKind.UNCONFIRMED),
)
@shown_once
async def rotate_key(key_id: KeyId, body: Rotation, caller: Admin, confirmed: Sent) -> CreatedKey:
    """The key's id, limits, scope and charges stay. Without an overlap its sessions on the dashboard end, too."""
    seen = await asyncio.to_thread(caller.services.records.keys.get, key_id)
    return await caller.do(keys.rotate, seen, body, confirmed)


@router.delete(
    "/{key_id}",
    status_code=204,
    summary="Revoke a key",
    responses=may_meet(ProblemKind.UNKNOWN_KEY, ProblemKind.UNCONFIRMED),
)
async def revoke_key(key_id: KeyId, caller: Admin, confirmed: Sent) -> Response:
    """The key is refused from now on. What it spent stays spent."""
    await caller.do(keys.revoke, key_id, confirmed)
    return Response(status_code=204)
