"""API keys: created, limited, rotated and revoked. A token is shown once, in the response to the form that made it."""

from datetime import UTC, datetime

from starlette.responses import Response

from service.gateway.dashboard.pages import Pages, Visit
from service.operations import keys as commands
from service.operations.command import Confirmation
from service.operations.fields import FieldError
from service.operations.keys import KeyLimits, NewKey, Rotation

pages = Pages()


@pages.get("/keys")
async def keys(visit: Visit) -> Response:
    """Every key, and the form for another."""
    listed, now = await visit.do(commands.list_), datetime.now(UTC)
    return visit.page(
        "keys.html",
        here="keys",
        keys=[key for key in reversed(listed) if key.status(now) == "valid"],
        analysts=any(key.role == "analyst" for key in listed),
        ended=[key for key in reversed(listed) if key.status(now) != "valid"],
    )


@pages.post("/keys", again=keys)
async def create(visit: Visit) -> Response:
    """Create a key, and show its token in this response alone: no address leads to it, and no browser keeps it."""
    key = await visit.do(commands.create, visit.read(NewKey))
    example = await visit.do(commands.example, key)
    return visit.page("key_created.html", 201, here="keys", key=key, example=example)


@pages.get("/keys/{id}")
async def key(visit: Visit) -> Response:
    """One key, with forms to limit, rotate and revoke it."""
    standing = await visit.do(commands.standing, visit.path("id"))
    ended = standing.key.status(datetime.now(UTC)) != "valid"
    return visit.page("key.html", here="keys", standing=standing, key=standing.key, ended=ended)


@pages.post("/keys/{id}/limits", again=key)
async def limit(visit: Visit) -> Response:
    """Change what a key may do from now on."""
    unlimited = {name: None for name in KeyLimits.model_fields if name in visit.form and not visit.field(name)}
    key = await visit.do(commands.limit, visit.path("id"), visit.read(KeyLimits, **unlimited))
    return visit.redirect("/keys", done=f"The new limits of “{key.name}” apply from now on.")


@pages.post("/keys/{id}/rotate", again=key, about="overlap_hours")
async def rotate(visit: Visit) -> Response:
    """Give a key another token, and show it in this response alone; the same form sent twice rotates the key once."""
    wanted = visit.read(Rotation)
    standing = await visit.do(commands.standing, visit.path("id"))
    commands.check_shown(standing.key, visit.field("rotated_at"))
    key = await visit.do(commands.rotate, standing.key, wanted, visit.seen)
    response = visit.page("key_created.html", here="keys", key=key, example=None)
    if key.id == visit.actor.id and not wanted.overlap_hours:
        visit.forget(response)
    return response


@pages.post("/keys/{id}/revoke", again=key)
async def revoke(visit: Visit) -> Response:
    """Revoke a key for good, once the admin has confirmed."""
    standing = await visit.do(commands.standing, visit.path("id"))
    key = standing.key
    if key.revoked_at is not None:
        return visit.redirect("/keys", done=f"“{key.name}” was already revoked; nothing changed.")
    if visit.field("sure") != "yes":
        raise FieldError("sure", "tick the box to confirm. Nothing was changed")
    if standing.locks_out and visit.field("name") != key.name:
        raise FieldError("revoke_name", f"enter the key’s name, {key.name}, exactly. Nothing was changed")
    await visit.do(commands.revoke, key.id, {Confirmation.LOCK_OUT, Confirmation.PERMANENT})
    if standing.own:
        response = visit.redirect("/sign-in", done=f"“{key.name}” is revoked, and you are signed out.")
        visit.forget(response)
        return response
    return visit.redirect("/keys", done=f"“{key.name}” is revoked: from now on every request with it is refused.")
