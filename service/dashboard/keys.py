"""API keys: made, limited, rotated and revoked. A token is shown once, in the answer to the form that made it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import ValidationError
from starlette.responses import Response

from service.commands import keys as commands
from service.commands.command import Confirmation
from service.commands.fields import problems
from service.commands.keys import KeyLimits, NewKey, Rotation, Standing
from service.dashboard.pages import Pages, Visit
from service.records.api_keys import ApiKey, KeyRotatedError
from service.services import Services

pages = Pages()

_BLANK = dict.fromkeys(NewKey.model_fields, "") | {"role": "analyst"}


@pages.get("/keys")
async def keys(visit: Visit) -> Response:
    """Every key, and the form for another."""
    return await _list(visit, _BLANK, {})


@pages.post("/keys")
async def create(visit: Visit) -> Response:
    """Make a key, and show its token in this answer alone: no address leads to it, and no browser keeps it."""
    try:
        key, token = await commands.create.aside(visit.actor, visit.services.records, visit.read(NewKey))
    except ValidationError as error:
        return await _list(visit, visit.given(NewKey), problems(error, NewKey), 422)
    example = await asyncio.to_thread(_example, visit.services, key)
    return visit.page("key_created.html", 201, here="keys", key=key, token=token, example=example)


@pages.get("/keys/{id}")
async def key(visit: Visit) -> Response:
    """One key: its limits, and its end."""
    return await _one(visit)


@pages.post("/keys/{id}/limits")
async def limit(visit: Visit) -> Response:
    """Change what a key may do from now on."""
    try:
        wanted = visit.read(KeyLimits)
    except ValidationError as error:
        return await _one(visit, problems(error, KeyLimits), 422, visit.given(KeyLimits))
    key = await commands.limit.aside(visit.actor, visit.services.records, _id(visit), wanted)
    return visit.redirect("/keys", done=f"The new limits of “{key.name}” apply from now on.")


@pages.post("/keys/{id}/rotate")
async def rotate(visit: Visit) -> Response:
    """Give a key another token, and show it in this answer alone; the same form sent twice does it once."""
    records = visit.services.records
    seen = await asyncio.to_thread(records.keys.get, _id(visit))
    try:
        wanted = visit.read(Rotation)
        if visit.field("rotated_at") != str(seen.rotated_at):
            raise KeyRotatedError
        key, token = await commands.rotate.aside(visit.actor, records, seen, wanted)
    except ValidationError as error:
        return await _one(visit, problems(error, Rotation), 422)
    except KeyRotatedError:
        problem = "The key got another token after this page was shown, so nothing was changed. Check, then rotate it."
        return await _one(visit, {"overlap_hours": problem}, 409)
    response = visit.page("key_created.html", here="keys", key=key, token=token, example=None)
    if key.id == visit.actor.id and not wanted.overlap_hours:
        visit.forget(response)
    return response


@pages.post("/keys/{id}/revoke")
async def revoke(visit: Visit) -> Response:
    """Revoke a key for good, once the admin has confirmed."""
    standing = await _standing(visit)
    key = standing.key
    if key.revoked_at is not None:
        return visit.redirect("/keys", done=f"“{key.name}” was already revoked; nothing changed.")
    if visit.field("sure") != "yes":
        return await _one(visit, {"sure": "Tick the box to confirm. Nothing was changed."}, 422)
    if standing.locks_out and visit.field("name") != key.name:
        return await _one(
            visit, {"revoke_name": f"Enter the key’s name, {key.name}, exactly. Nothing was changed."}, 422
        )
    await commands.revoke.aside(visit.actor, visit.services.records, key.id, {Confirmation.LOCK_OUT})
    if standing.own:
        response = visit.redirect("/sign-in", done=f"“{key.name}” is revoked, and you are signed out.")
        visit.forget(response)
        return response
    return visit.redirect("/keys", done=f"“{key.name}” is revoked: from now on every request with it is refused.")


def _id(visit: Visit) -> str:
    key_id: str = visit.request.path_params["id"]
    return key_id


async def _standing(visit: Visit) -> Standing:
    return await commands.standing.aside(visit.actor, visit.services.records, _id(visit))


async def _one(
    visit: Visit, wrong: Mapping[str, str] | None = None, status: int = 200, given: Mapping[str, str] | None = None
) -> Response:
    standing = await _standing(visit)
    key = standing.key
    limits = {name: "" if (value := getattr(key, name)) is None else str(value) for name in KeyLimits.model_fields}
    return visit.page(
        "key.html",
        status,
        here="keys",
        standing=standing,
        key=key,
        ended=_ended(key),
        given=given or limits,
        problems=wrong or {},
    )


async def _list(visit: Visit, given: Mapping[str, str], wrong: Mapping[str, str], status: int = 200) -> Response:
    listed = await commands.list_.aside(visit.actor, visit.services.records)
    return visit.page(
        "keys.html",
        status,
        here="keys",
        keys=[key for key in reversed(listed) if not _ended(key)],
        analysts=any(key.role == "analyst" for key in listed),
        ended=[key for key in reversed(listed) if _ended(key)],
        given=given,
        problems=wrong,
    )


def _ended(key: ApiKey) -> bool:
    return key.status(datetime.now(UTC)) != "valid"


def _example(services: Services, key: ApiKey) -> str | None:
    """A task to try the new key on: one of the newest plan of any knowledge base that it is for."""
    tasks = [task for status in services.records.ledger.budgets.statuses() for task in status.tasks if task.left]
    tasks = [task for task in tasks if key.may_ask(task.address)]
    return tasks[-1].address.partition("@")[0] if tasks else None
