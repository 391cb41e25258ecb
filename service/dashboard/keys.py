"""API keys: made, limited, rotated and revoked. A token is shown once, in the answer to the form that made it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from service.dashboard.pages import Pages, Visit
from service.records.api_keys import LONGEST_LIFE, LONGEST_OVERLAP, ApiKey, KeyRotatedError
from service.records.roles import MAY, Right, Role, a, may
from service.services import Services

pages = Pages()

_BLANK = {"name": "", "role": "analyst", "scope": "", "days": "", "quota": "", "rate_per_minute": ""}
_LONGEST_DAYS = LONGEST_LIFE.days
_LONGEST_OVERLAP_H = LONGEST_OVERLAP // timedelta(hours=1)
_LIMITS = ("quota", "rate_per_minute")


@pages.get("/keys")
async def keys(visit: Visit) -> Response:
    """Every key, and the form for another."""
    return await _list(visit, _BLANK, {})


@pages.post("/keys")
async def create(visit: Visit) -> Response:
    """Make a key, and show its token in this answer alone: no address leads to it, and no browser keeps it."""
    given = {name: visit.field(name) for name in _BLANK}
    limits, problems = _read_limits(given)
    if not given["name"]:
        problems["name"] = "Name the key’s owner, so you know which key to revoke."
    role: Role = next((role for role in MAY if role == given["role"]), "analyst")
    if role != given["role"]:
        problems["role"] = "Choose one of them."
    if not may(role, Right.ASK) and limits.get("quota") is not None:
        problems["quota"] = f"{a(role).capitalize()} cannot ask questions, so the key needs no quota. Leave this empty."
    days = given["days"]
    if days and not (days.isascii() and days.isdigit() and len(days) < 10 and 1 <= int(days) <= _LONGEST_DAYS):
        problems["days"] = f"Enter a number of days, 1 to {_LONGEST_DAYS:,}, or nothing for a key that does not expire."
    if not problems:
        try:
            key, token = await asyncio.to_thread(
                visit.services.records.keys.create,
                given["name"],
                role,
                **limits,
                scope=given["scope"].replace(",", " ").split(),
                expires_at=datetime.now(UTC) + timedelta(days=int(days)) if days else None,
                by=visit.session.by,
            )
        except ValueError as error:
            problems = dict([_named(str(error))])
        else:
            example = await asyncio.to_thread(_example, visit.services, key)
            return visit.page("key_created.html", 201, here="keys", key=key, token=token, example=example)
    return await _list(visit, given, problems, 422)


@pages.get("/keys/{id}")
async def key(visit: Visit) -> Response:
    """One key: its limits, and its end."""
    return await _one(visit)


@pages.post("/keys/{id}/limits")
async def limit(visit: Visit) -> Response:
    """Change what a key may do from now on."""
    key = await asyncio.to_thread(visit.services.records.keys.get, visit.request.path_params["id"])
    given = {name: visit.field(name) for name in _LIMITS}
    limits, problems = _read_limits(given)
    if not problems:
        try:
            await asyncio.to_thread(visit.services.records.keys.limit, key.id, **limits, by=visit.session.by)
        except ValueError as error:
            problems = dict([_named(str(error))])
        else:
            return visit.redirect("/keys", done=f"The new limits of “{key.name}” apply from now on.")
    return await _one(visit, problems, 422, given)


@pages.post("/keys/{id}/rotate")
async def rotate(visit: Visit) -> Response:
    """Give a key another token, and show it in this answer alone; the same form sent twice does it once."""
    keys = visit.services.records.keys
    key = await asyncio.to_thread(keys.get, visit.request.path_params["id"])
    hours = visit.field("overlap_hours") or "0"
    if not (hours.isascii() and hours.isdigit() and len(hours) < 10 and int(hours) <= _LONGEST_OVERLAP_H):
        problem = f"Enter a number of hours, 0 to {_LONGEST_OVERLAP_H:,}."
        return await _one(visit, {"overlap_hours": problem}, 422)
    overlap = timedelta(hours=int(hours))
    try:
        if visit.field("rotated_at") != str(key.rotated_at):
            raise KeyRotatedError
        key, token = await asyncio.to_thread(keys.rotate, key, overlap=overlap, by=visit.session.by)
    except KeyRotatedError:
        problem = "The key got another token after this page was shown, so nothing was changed. Check, then rotate it."
        return await _one(visit, {"overlap_hours": problem}, 409)
    response = visit.page("key_created.html", here="keys", key=key, token=token, example=None)
    if key.id == visit.session.by and not overlap:
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
        problem = f"Enter the key’s name, {key.name}, exactly. Nothing was changed."
        return await _one(visit, {"revoke_name": problem}, 422)
    await asyncio.to_thread(visit.services.records.keys.revoke, key.id, visit.session.by)
    if standing.own:
        response = visit.redirect("/sign-in", done=f"“{key.name}” is revoked, and you are signed out.")
        visit.forget(response)
        return response
    return visit.redirect("/keys", done=f"“{key.name}” is revoked: from now on every request with it is refused.")


@dataclass(frozen=True)
class Standing:
    """What hangs on a key.

    Attributes:
        key: itself.
        own: whether the visitor is signed in with it.
        last_admin: whether no other admin key is left.
    """

    key: ApiKey
    own: bool
    last_admin: bool

    @property
    def locks_out(self) -> bool:
        """Whether revoking it shuts somebody out of the dashboard."""
        return self.own or self.last_admin


async def _standing(visit: Visit) -> Standing:
    records = visit.services.records
    key = await asyncio.to_thread(records.keys.get, visit.request.path_params["id"])
    listed = await asyncio.to_thread(records.keys.list)
    admins = [one.id for one in listed if one.role == "admin" and not _ended(one)]
    return Standing(key, key.id == visit.session.by, admins == [key.id])


async def _one(
    visit: Visit, problems: dict[str, str] | None = None, status: int = 200, given: dict[str, str] | None = None
) -> Response:
    standing = await _standing(visit)
    key = standing.key
    shown = given or {name: "" if (value := getattr(key, name)) is None else str(value) for name in _LIMITS}
    return visit.page(
        "key.html",
        status,
        here="keys",
        standing=standing,
        key=key,
        ended=_ended(key),
        given=shown,
        problems=problems or {},
    )


async def _list(visit: Visit, given: dict[str, str], problems: dict[str, str], status: int = 200) -> Response:
    listed = await asyncio.to_thread(visit.services.records.keys.list)
    return visit.page(
        "keys.html",
        status,
        here="keys",
        keys=[key for key in reversed(listed) if not _ended(key)],
        analysts=any(key.role == "analyst" for key in listed),
        ended=[key for key in reversed(listed) if _ended(key)],
        given=given,
        problems=problems,
    )


def _ended(key: ApiKey) -> bool:
    return key.status(datetime.now(UTC)) != "valid"


def _read_limits(given: dict[str, str]) -> tuple[dict[str, int | None], dict[str, str]]:
    """Limits from text, and what cannot be read; an empty one is none."""
    limits: dict[str, int | None] = {}
    problems = {}
    for name, example in (("quota", "500"), ("rate_per_minute", "60")):
        text = given[name].replace(",", "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 19):
            problems[name] = f"Enter a whole number, such as {example}, or nothing for no limit."
        else:
            limits[name] = int(text) if text else None
    return limits, problems


def _named(message: str) -> tuple[str, str]:
    """An error that begins with the field it is about, and the rest of it."""
    name, _, rest = message.partition(": ")
    return (name, f"{rest[:1].upper()}{rest[1:]}.") if name in _BLANK else ("name", message)


def _example(services: Services, key: ApiKey) -> str | None:
    """A task to try the new key on: one of the newest plan of any knowledge base that it is for."""
    tasks = [task for status in services.records.ledger.budgets.statuses() for task in status.tasks if task.left]
    tasks = [task for task in tasks if key.may_ask(task.address)]
    return tasks[-1].address.partition("@")[0] if tasks else None
