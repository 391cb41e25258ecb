"""Signing in with an admin key, signing out, and how the pages look."""

from __future__ import annotations

import asyncio
import ipaddress
import math

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.dashboard.forms import FormError, read_form
from service.dashboard.pages import COOKIE, Pages, Visit
from service.dashboard.security import from_our_page
from service.dashboard.wording import lasting

pages = Pages()

_MAX_BYTES = 4096
# A key has 256 random bits, so this stops no guessing that could succeed; it keeps the attempts from being a load.
_PER_ADDRESS = {"per_minute": 10, "burst": 10}
_OVERALL = {"per_minute": 120, "burst": 60}


async def show(request: Request) -> Response:
    """The sign-in page."""
    return _show(Visit(request, None), request.query_params.get("next", ""))


async def sign_in(request: Request) -> Response:
    """Exchange an admin key for a session."""
    visit = await _sent(request)
    if isinstance(visit, Response):
        return visit
    going = visit.field("next")
    if wait_s := await asyncio.to_thread(_too_soon, visit):
        return _show(visit, going, 429, f"Too many attempts. Try again in {lasting(wait_s)}.", wait_s)
    key = await asyncio.to_thread(visit.services.records.keys.authenticate, visit.field("key"))
    if key is None:
        return _show(visit, going, 401, "This key is unknown or was revoked.")
    if key.role != "admin":
        return _show(
            visit,
            going,
            403,
            f"“{key.name}” is an analyst’s key: it asks questions over the API. The dashboard is for admin keys, which "
            "decide about budgets and cannot ask.",
        )
    token = await asyncio.to_thread(request.app.state.sessions.start, key)
    await asyncio.to_thread(visit.services.records.rates.forget_idle)
    response = visit.redirect(visit.inside(visit.root + going) or "/")
    visit.sign_in(response, token)
    return response


async def theme(request: Request) -> Response:
    """Choose light or dark, or what the system has."""
    visit = await _sent(request)
    if isinstance(visit, Response):
        return visit
    response = visit.redirect(visit.inside(visit.field("back")) or "/")
    visit.choose_theme(response, visit.field("theme"))
    return response


@pages.post("/sign-out", max_bytes=_MAX_BYTES)
async def sign_out(visit: Visit) -> Response:
    """End the session."""
    await asyncio.to_thread(visit.request.app.state.sessions.end, visit.request.cookies[COOKIE])
    response = visit.redirect("/sign-in", done="You are signed out.")
    visit.forget(response)
    return response


pages.routes += [
    Route("/sign-in", show, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/theme", theme, methods=["POST"]),
]


async def _sent(request: Request) -> Visit | Response:
    """A form of somebody who need not be signed in, if it comes from our page."""
    visit = Visit(request, None)
    if not from_our_page(request):
        return visit.page("error.html", 403, title="Not from this page", detail="Open the dashboard and try again.")
    try:
        return Visit(request, None, await read_form(request, _MAX_BYTES))
    except FormError as error:
        return visit.page("error.html", 413, title="Not taken", detail=str(error))


def _too_soon(visit: Visit) -> float | None:
    """Seconds to wait, after too many attempts from this address or from all."""
    client = visit.request.client
    rates = visit.services.records.rates
    # The address as the service sees it: behind a proxy all share one. A header that names another can be forged.
    mine = rates.take(f"sign-in {_neighbourhood(client.host if client else '?')}", **_PER_ADDRESS)
    return mine.wait_s or rates.take("sign-in", **_OVERALL).wait_s


def _neighbourhood(host: str) -> str:
    """Whose attempts count as one's: of IPv6 a network of 64 bits, since one machine may have all of its addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64)
    return str(address)


def _show(
    visit: Visit, going: str, status: int = 200, problem: str | None = None, retry_after_s: float | None = None
) -> Response:
    response = visit.page("sign_in.html", status, going=going, problem=problem)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(math.ceil(retry_after_s))
    return response
